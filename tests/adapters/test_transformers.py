"""A tiny GPT-2 with random weights, steered: every text satisfies its constraint, by sampling and by beams."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import weakref
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from undertow import HMM  # noqa: E402
from undertow.adapters.transformers import ConstraintLogitsProcessor  # noqa: E402
from undertow.constraints import Contains, Phrase, Without  # noqa: E402
from undertow.errors import InputError, NotFittedError  # noqa: E402

V, EOS, LENGTH = 40, 0, 10


@pytest.fixture(scope="module")
def lm():
    torch.manual_seed(0)
    size = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 64}
    config = transformers.GPT2Config(
        vocab_size=V, **size, bos_token_id=EOS, eos_token_id=EOS, pad_token_id=EOS, initializer_range=0.5
    )
    return transformers.GPT2LMHeadModel(config).eval()


def sampler(lm, seed=0):
    generator = iter(range(seed, 10_000))

    def draw():
        torch.manual_seed(next(generator))
        start = torch.full((32, 1), EOS)
        out = lm.generate(start, attention_mask=torch.ones_like(start), max_new_tokens=30, do_sample=True, top_k=0)
        return out[:, 1:]

    return draw


FORMS = {"dense": {}, "features": {"n_blocks": 2, "rank": 4}}


@pytest.fixture(scope="module", params=FORMS)
def hmm(lm, request: pytest.FixtureRequest) -> HMM:
    """With a transition through features each token is one compiled call that is given addresses."""
    return HMM(8, n_iter=4, random_state=0, **FORMS[request.param]).distill(sampler(lm), n_tokens=8000, vocab_size=V)


def written(lm, prompt, processor, **how):
    torch.manual_seed(1)
    out = lm.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=LENGTH, logits_processor=[processor], **how
    )
    for row in out[:, prompt.shape[1] :].tolist():
        yield [str(v) for v in (row[: row.index(EOS)] if EOS in row else row)]


def test_distilled_from_ids(hmm: HMM) -> None:
    assert hmm.vocabulary_.words == ("<unk>", *map(str, range(V)))
    assert hmm.vocabulary_.counts.sum() >= 8000
    assert hmm.perplexity([[str(v) for v in range(V)]]) < np.inf


CONSTRAINTS = [
    Contains("7", "13"),
    Contains("7") & Without("5", "6 7"),
    Phrase("3 1 4"),
    ~Contains("2") & Contains("39", "11", ordered=True),
]
WAYS = {
    "sampling": {"do_sample": True, "top_k": 0},
    "top k": {"do_sample": True, "top_k": 5, "temperature": 0.7},
    "beams": {"num_beams": 4, "num_return_sequences": 4},
    "sampling beams": {"num_beams": 3, "do_sample": True},
    "greedy": {},
    "no cache": {"do_sample": True, "use_cache": False},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_text_satisfies_its_constraint(lm, hmm: HMM, way: str) -> None:
    prompts = torch.tensor([[9, 8], [3, 3], [1, 2]])
    for constraint in CONSTRAINTS:
        processor = ConstraintLogitsProcessor(hmm, constraint, length=LENGTH, eos_token_id=EOS)
        texts = list(written(lm, prompts, processor, **WAYS[way]))
        assert len(texts) == 3 * WAYS[way].get("num_return_sequences", 1)
        assert all(constraint.holds(text) for text in texts), (constraint, texts)
    free = [t for _ in range(5) for t in written(lm, prompts, lambda ids, scores: scores, **WAYS["sampling"])]
    assert not all(CONSTRAINTS[0].holds(text) for text in free)


def test_scores_are_the_language_models_times_the_look_ahead(lm, hmm: HMM) -> None:
    """Whatever the order of the rows, as beams reorder them, and equal to a processor that begins there."""
    processor = ConstraintLogitsProcessor(hmm, Contains("7"), length=6)
    prompt = torch.tensor([[9, 8], [3, 3]])
    scores = torch.randn(2, V)
    first = processor(prompt, scores)
    np.testing.assert_allclose(first.exp().sum(dim=1), 1.0, rtol=1e-5)
    steering = processor.steering
    words = [hmm.vocabulary_.encode(["9", "8"]), hmm.vocabulary_.encode(["3", "3"])]
    expected = torch.tensor(steering.log_weights(steering.start(words))[:, 1:])
    np.testing.assert_allclose(first, torch.log_softmax(scores + expected, dim=1), rtol=1e-4, atol=1e-5)

    grown = torch.tensor([[3, 3, 5], [9, 8, 7], [3, 3, 6]])
    second = processor(grown, torch.zeros(3, V))
    one = ConstraintLogitsProcessor(hmm, Contains("7"), length=6)
    one(prompt[:1], scores[:1])
    np.testing.assert_allclose(one(grown[1:2], torch.zeros(1, V))[0], second[1], rtol=1e-5)
    np.testing.assert_allclose(second[1], np.full(V, -np.log(V)), rtol=1e-5)  # it has its word: all are alike


def test_scores_of_any_type_and_tokens_that_something_else_forbids(hmm: HMM) -> None:
    processor = ConstraintLogitsProcessor(hmm, Phrase("7 7"), length=2)
    scores = torch.randn(2, V)
    found = processor(torch.tensor([[9, 8], [3, 3]]), scores)
    assert (found.argmax(dim=1) == 7).all()
    processor.reset()
    half = processor(torch.tensor([[9, 8], [3, 3]]), scores.half().requires_grad_())
    assert half.dtype == torch.float16 and not half.requires_grad
    np.testing.assert_allclose(half[:, 7], found[:, 7], atol=1e-3)
    processor.reset()
    scores[1, 7] = -torch.inf
    with pytest.raises(InputError, match="Text 2: the language model gives probability zero"):
        processor(torch.tensor([[9, 8], [3, 3]]), scores)


def by_steps(*args, **how) -> ConstraintLogitsProcessor:
    """Every token by the methods of `Steering`, one after the other."""
    processor = ConstraintLogitsProcessor(*args, **how)
    processor.steering.addresses = None
    return processor


@pytest.fixture(scope="module")
def through_features(lm) -> HMM:
    return HMM(8, n_iter=4, random_state=0, **FORMS["features"]).distill(sampler(lm), n_tokens=8000, vocab_size=V)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=repr)
def test_one_call_a_token_gives_what_its_steps_give(through_features: HMM, constraint) -> None:
    """Prompts of unequal length, two of them equal, and texts that satisfy the constraint on the way or not at all."""
    how = {"length": LENGTH, "eos_token_id": EOS, "pad_token_id": 2}
    fast, slow = (kind(through_features, constraint, **how) for kind in (ConstraintLogitsProcessor, by_steps))
    rng = torch.Generator().manual_seed(0)
    ids = torch.tensor([[2, 2, 9], [3, 3, 1], [3, 3, 1], [2, 2, 2], [5, 2, 4]])
    for t in range(LENGTH):
        scores = torch.randn(5, V, generator=rng)
        found, expected = fast(ids, scores), slow(ids, scores)
        assert (fast._writing is not None) == (t <= 7) and slow._writing is None
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(found.isinf(), expected.isinf())
        ids = torch.cat([ids, torch.multinomial(found.exp(), 1, generator=rng)], dim=1)
        if t == 7:  # what is handed over need not be contiguous
            ids = ids.T.contiguous().T
    texts = [[str(v) for v in (row[: row.index(EOS)] if EOS in row else row)] for row in ids[:, 3:].tolist()]
    assert all(constraint.holds(text) for text in texts)
    with pytest.raises(InputError, match=f"More than length={LENGTH} tokens"):
        fast(ids, scores)


@pytest.mark.parametrize("rows", [[1, 0], [1], [0, 0]], ids=str)
def test_texts_that_change_on_the_way(through_features: HMM, rows: list[int]) -> None:
    """Rows that are reordered or left out are those of a processor that has seen nothing else; prompts begin anew."""
    processor, alone = (ConstraintLogitsProcessor(through_features, Contains("7"), length=6) for _ in range(2))
    zeros = torch.zeros(2, V)
    ids = torch.tensor([[9, 8, 4], [3, 3, 5]])
    for t in (2, 3):
        begun = processor(ids[:, :t], zeros)
    now = torch.cat([ids[rows], torch.full((len(rows), 1), 6)], dim=1)
    for t in (2, 3, 4):
        expected = alone(now[:, :t], zeros[: len(rows)])
    np.testing.assert_allclose(processor(now, zeros[: len(rows)]), expected, rtol=1e-5)
    assert processor._writing is None
    for t in (2, 3):
        again = processor(ids[:, :t], zeros)
    assert processor._writing is not None
    np.testing.assert_array_equal(again, begun)


@pytest.mark.parametrize("wrong", [V, -1, 10**12])
@pytest.mark.parametrize("when", ["prompt", "later"])
def test_ids_that_are_no_tokens_are_refused(hmm: HMM, wrong: int, when: str) -> None:
    processor = ConstraintLogitsProcessor(hmm, Contains("7"), length=5)
    ids, scores = torch.tensor([[3, 1], [4, 1]]), torch.zeros(2, V)
    if when == "later":
        processor(ids, scores)
        ids = torch.cat([ids, torch.tensor([[2], [2]])], dim=1)
    ids[1, -1] = wrong
    with pytest.raises(
        InputError, match=f"has the token {wrong}, and the language model scores the tokens 0 to {V - 1}"
    ):
        processor(ids, scores)


def test_a_copy_has_its_own_arrays(through_features: HMM) -> None:
    """The addresses of the first one's arrays would outlive them."""
    processor = ConstraintLogitsProcessor(through_features, Contains("7"), length=6)
    ids, zeros = torch.tensor([[9, 8]]), torch.zeros(1, V)
    processor(ids, zeros)
    copies = [copy.deepcopy(processor), pickle.loads(pickle.dumps(processor))]  # noqa: S301
    grown = torch.tensor([[9, 8, 4]])
    expected = processor(grown, zeros)
    for other in copies:
        assert other._writing is None
        mine, its = (p.steering.addresses[0][:, 0] for p in (processor, other))
        assert not set(mine.tolist()) & set(its.tolist())
        np.testing.assert_array_equal(other(grown, zeros), expected)
        other.reset()
        other(ids, zeros)
        assert other._writing is not None
        np.testing.assert_array_equal(other(grown, zeros), expected)


def test_hugging_face_finds_the_signature_ready(hmm: HMM) -> None:
    processor = ConstraintLogitsProcessor(hmm, Contains("7"), length=3)
    for one in (processor, copy.deepcopy(processor)):
        assert inspect.signature(one.__call__) is inspect.signature(processor.__call__)
        assert list(inspect.signature(one.__call__).parameters) == ["input_ids", "scores"]
        ids, zeros = torch.tensor([[9, 8]]), torch.zeros(1, V)
        np.testing.assert_array_equal(one.__call__(ids, zeros), processor(ids, zeros))
    gone = weakref.ref(processor)
    del processor, one
    assert gone() is None  # its tables are large: nothing waits for the garbage collector


def test_prompts_of_unequal_length(hmm: HMM) -> None:
    """Padded on the left, the shorter one is as if alone."""
    both = ConstraintLogitsProcessor(hmm, Contains("7"), length=3, pad_token_id=EOS)
    ids = torch.tensor([[EOS, EOS, 9], [4, 9, 8], [EOS, EOS, 9], [EOS, EOS, EOS]])
    found = both(ids, torch.zeros(4, V))
    for row, prompt in zip(found, ([9], [4, 9, 8], [9], []), strict=True):
        alone = ConstraintLogitsProcessor(hmm, Contains("7"), length=3)
        given = torch.tensor([prompt], dtype=torch.long).reshape(1, len(prompt))
        np.testing.assert_allclose(row, alone(given, torch.zeros(1, V))[0], rtol=1e-5)


def test_a_processor_serves_several_prompts(lm, hmm: HMM) -> None:
    processor = ConstraintLogitsProcessor(hmm, CONSTRAINTS[0], length=LENGTH, eos_token_id=EOS)
    for prompt in ([[9, 8]], [[4, 4, 4]], [[9, 8]]):
        [text] = written(lm, torch.tensor(prompt), processor, do_sample=True)
        assert CONSTRAINTS[0].holds(text)


def test_padded_prompts_are_those_without_padding(hmm: HMM) -> None:
    padded = ConstraintLogitsProcessor(hmm, Contains("7"), length=3, pad_token_id=EOS)
    plain = ConstraintLogitsProcessor(hmm, Contains("7"), length=3)
    a = padded(torch.tensor([[EOS, EOS, 9, 8]]), torch.zeros(1, V))
    np.testing.assert_allclose(a, plain(torch.tensor([[9, 8]]), torch.zeros(1, V)), rtol=1e-6)


def test_own_words_for_the_tokens(lm) -> None:
    words = [f"w{i}" for i in range(V)]
    texts = [[words[i] for i in row] for row in sampler(lm)().tolist()]
    model = HMM(4, n_iter=2, random_state=0).distill(texts, n_tokens=None)
    asked = Contains(Counter(itertools.chain(*texts)).most_common(3)[2][0])
    processor = ConstraintLogitsProcessor(model, asked, length=LENGTH, words=words)
    out = processor(torch.tensor([[1, 2]]), torch.zeros(1, V))
    assert out.shape == (1, V) and torch.isfinite(out).all()
    wrong = ConstraintLogitsProcessor(model, asked, length=LENGTH, words=words[:-1])
    with pytest.raises(InputError, match="name each"):
        wrong(torch.tensor([[1, 2]]), torch.zeros(1, V))


def test_bad_input(lm, hmm: HMM) -> None:
    with pytest.raises(InputError, match="at least 1"):
        ConstraintLogitsProcessor(hmm, Contains("7"), length=0)
    with pytest.raises(InputError, match="not in the model's vocabulary"):
        ConstraintLogitsProcessor(hmm, Contains("4000"), length=5)
    with pytest.raises(InputError, match="No text of 1 tokens"):
        ConstraintLogitsProcessor(hmm, Contains("7", "8"), length=1)
    with pytest.raises(InputError, match="ends a text"):
        ConstraintLogitsProcessor(hmm, Contains("7"), length=5, eos_token_id=V)
    with pytest.raises(NotFittedError):
        ConstraintLogitsProcessor(HMM(), Contains("7"), length=5)
    with pytest.raises(InputError, match="max_new_tokens=length"):
        list(written(lm, torch.tensor([[1]]), ConstraintLogitsProcessor(hmm, Without("7"), length=3), do_sample=True))
