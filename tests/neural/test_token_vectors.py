"""The vectors of a model as a layer of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from contract.cases import EVENTS, SENTENCES  # noqa: E402
from sentences import is_one_sentence  # noqa: E402
from undertow import HMM, LDS, DynamicEmbedding  # noqa: E402
from undertow.errors import InputError  # noqa: E402
from undertow.neural import TokenVectors  # noqa: E402

TEXT = [["the", "dragon", "river"], [], ["bank"]]


@pytest.fixture(scope="module")
def lds() -> LDS:
    return LDS(3, n_iter=3, n_full=1, lags=3, ssid_lags=2, kappa=1.0, random_state=0, n_jobs=1).fit(SENTENCES)


def padded(model: Any, **options: Any) -> np.ndarray:
    """The slow twin: number by number."""
    rows = model.transform(TEXT, **options)
    out = np.zeros((len(TEXT), 3, rows[0].shape[1]), dtype=np.float32)
    for s, vectors in enumerate(rows):
        for t, vector in enumerate(vectors):
            out[s, t] = vector
    return out


@pytest.mark.parametrize("trainable", [False, True])
def test_vectors_are_those_of_the_model(lds: LDS, trainable: bool) -> None:
    layer = TokenVectors(lds, trainable=trainable)
    vectors, mask = layer(TEXT)
    np.testing.assert_array_equal(vectors.detach().numpy(), padded(lds))
    assert mask.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    assert layer.width == 6 and vectors.requires_grad == trainable
    assert len(list(layer.parameters())) == len(layer.state_dict()) == trainable


def test_a_view(lds: LDS) -> None:
    np.testing.assert_array_equal(TokenVectors(lds, "smooth")(TEXT).vectors.numpy(), padded(lds, view="smooth"))


def test_only_the_words_are_trained(lds: LDS) -> None:
    layer = TokenVectors(lds, trainable=True)
    before = layer(TEXT).vectors.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer(TEXT).vectors.pow(2).sum().backward()
    optimizer.step()
    after = layer(TEXT).vectors.detach()
    assert not torch.allclose(after[0, 0, :3], before[0, 0, :3]) and torch.equal(after[..., 3:], before[..., 3:])
    np.testing.assert_array_equal(lds.transform(TEXT)[0], before[0].numpy())  # the model itself is not changed
    again = TokenVectors(lds, trainable=True)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(TEXT).vectors, after)


@pytest.mark.parametrize("trainable", [False, True])
def test_a_classifier_on_top_learns(lds: LDS, trainable: bool) -> None:
    torch.manual_seed(0)
    layer = TokenVectors(lds, trainable=trainable)
    top = torch.nn.Linear(layer.width, 2)
    y = torch.tensor([int("river" in s) for s in SENTENCES])
    optimizer = torch.optim.Adam([*layer.parameters(), *top.parameters()], lr=0.3)
    losses = []
    for _ in range(60):
        vectors, mask = layer(SENTENCES)
        loss = torch.nn.functional.cross_entropy(top(vectors.sum(1) / mask.sum(1, keepdim=True)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda lds: TokenVectors(lds, "smooth", trainable=True), "features"),
        (lambda lds: TokenVectors(HMM(2, n_iter=1).fit(SENTENCES), trainable=True), "features"),
        (lambda lds: TokenVectors(DynamicEmbedding(n_iter=1, random_state=0).fit(EVENTS)), "no vectors"),
        (lambda lds: TokenVectors(lds)([]), "no sentence"),
        (lambda lds: TokenVectors(lds)(["the river"]), "string"),
    ],
)
def test_what_is_refused(lds: LDS, use: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as e:
        use(lds)
    assert is_one_sentence(str(e.value))
