"""HMMs saved with tables of 8 bits: small, nearly as good, and as carefully loaded as others."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from contract.cases import SENTENCES
from sealing import edit_sealed, reseal
from sentences import is_one_sentence
from undertow import HMM, LDS, load
from undertow.errors import FormatError, InputError
from undertow.storage import CONFIG, TENSORS, inspect_model

FORMS: dict[str, dict[str, Any]] = {
    "dense": {"n_states": 3},
    "low rank": {"n_states": 6, "n_blocks": 1, "rank": 2},
    "band": {"n_states": 6, "n_blocks": 1, "rank": 2, "band": 2},
    "pairs": {"n_states": 8, "n_blocks": 4},
    "block low rank": {"n_states": 6, "n_blocks": 3, "rank": 2},
}
TABLES = {
    "dense": {"transition", "emission"},
    "low rank": {"R", "E", "emission"},
    "band": {"R", "E", "band", "emission"},
    "pairs": {"data", "emission"},
    "block low rank": {"R", "ET", "emission"},
}


@pytest.fixture(scope="module", params=list(FORMS))
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, HMM, Path]:
    model = HMM(**FORMS[request.param], n_iter=3, random_state=0).fit(SENTENCES)
    path = tmp_path_factory.mktemp("bits") / "m"
    model.save(path, bits=8)
    return request.param, model, path


@pytest.fixture
def copied(saved: tuple[str, HMM, Path], tmp_path: Path) -> tuple[str, Path]:
    return saved[0], Path(shutil.copytree(saved[2], tmp_path / "copy"))


def refused(path: Path, match: str | None = None) -> None:
    with pytest.raises(FormatError, match=match) as e:
        load(path)
    assert is_one_sentence(str(e.value)) and len(str(e.value)) <= 500, str(e.value)


def in_tensors(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    tensors = safetensors.numpy.load_file(path / TENSORS)
    change(tensors)
    safetensors.numpy.save_file(tensors, path / TENSORS)
    reseal(path / CONFIG)


def test_every_number_comes_back_within_a_step(saved: tuple[str, HMM, Path]) -> None:
    form, model, path = saved
    loaded: Any = load(path)
    config = inspect_model(path)
    assert config["bits"] == 8 and {n.removesuffix(".codes") for n in config["tensors"] if "codes" in n} == TABLES[form]
    before, after = model._tensors(), loaded._tensors()
    assert list(before) == list(after)
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype and after[name].shape == tensor.shape
        if name in TABLES[form]:
            assert ((after[name] == 0) == (tensor == 0)).all()
            far = tensor > 1e-6
            np.testing.assert_allclose(after[name][far], tensor[far], rtol=0.1)
        else:
            np.testing.assert_array_equal(after[name], tensor)
    loaded.params_.check()
    assert loaded.score(SENTENCES) == pytest.approx(model.score(SENTENCES), rel=0.01)
    assert [len(x) for x in loaded.decode(SENTENCES)] == [len(x) for x in SENTENCES]
    assert loaded.next_words(["the"], 3) and loaded.fill(["the", None, "sat"])
    assert loaded.sample(5, random_state=0) and loaded.partial_fit(SENTENCES[:3]) is loaded


def test_words_that_no_text_has_keep_their_probability(tmp_path: Path) -> None:
    """With blocks these have one number for all states, and a row of their own."""
    model = HMM(8, n_blocks=4, n_iter=3, random_state=0).fit(SENTENCES)
    everywhere = model.params_.blocks.word_block < 0
    assert everywhere.any()
    model.save(tmp_path / "m", bits=8)
    loaded: Any = load(tmp_path / "m")
    np.testing.assert_allclose(
        loaded.params_.dense_emission()[:, everywhere], model.params_.dense_emission()[:, everywhere], rtol=1e-6
    )


def first(value: float) -> Callable[[Any], Any]:
    def change(x: Any) -> Any:
        x.flat[0] = value
        return x

    return change


WRONG: dict[str, tuple[str, Callable[[Any], Any], str | None]] = {
    "all codes zero": ("codes", lambda x: 0 * x, "do not fit each other"),
    "codes without a largest": ("codes", lambda x: np.minimum(x, 254), "do not fit each other"),
    "codes backwards": ("codes", lambda x: x ^ 255, None),
    "negative scales": ("scale", lambda x: -x, "negative"),
    "one negative scale": ("scale", first(-0.5), "negative"),
    "scales twice": ("scale", lambda x: 2 * x, "do not sum to one"),
    "scales zero": ("scale", lambda x: 0 * x, "do not fit each other"),
    "one scale zero": ("scale", first(0.0), "do not fit each other"),
    "scales huge": ("scale", lambda x: x + np.float32(3e38), None),
    "scale nan": ("scale", first(np.nan), "not finite"),
    "scale infinite": ("scale", first(np.inf), "not finite"),
}


@pytest.mark.parametrize("what", WRONG)
def test_numbers_that_no_save_gives_are_refused(copied: tuple[str, Path], what: str) -> None:
    form, path = copied
    part, change, match = WRONG[what]
    before = {p: p.read_bytes() for p in path.iterdir()}
    for table in sorted(TABLES[form]):
        name = f"{table}.{part}"
        in_tensors(path, lambda t, n=name: t.update({n: np.ascontiguousarray(change(t[n].copy()), dtype=t[n].dtype)}))
        refused(path, match)
        for p, data in before.items():
            p.write_bytes(data)
    load(path)


def test_rows_of_zeros_are_refused(copied: tuple[str, Path]) -> None:
    """Codes and scales fit each other, but there is no distribution."""
    form, path = copied
    table = sorted(TABLES[form])[0]
    in_tensors(path, lambda t: [t[f"{table}.{part}"].fill(0) for part in ("codes", "scale")])
    refused(path, "sum to one")


TENSOR_FILES: dict[str, Callable[[dict[str, Any], str], Any]] = {
    "floats for codes": lambda t, n: t.update({f"{n}.codes": t[f"{n}.codes"].astype(np.float32)}),
    "signed codes": lambda t, n: t.update({f"{n}.codes": t[f"{n}.codes"].view(np.int8)}),
    "double scales": lambda t, n: t.update({f"{n}.scale": t[f"{n}.scale"].astype(np.float64)}),
    "a scale more": lambda t, n: t.update({f"{n}.scale": np.append(t[f"{n}.scale"], np.float32(1))}),
    "a code less": lambda t, n: t.update({f"{n}.codes": np.ascontiguousarray(t[f"{n}.codes"][:-1])}),
    "no scales": lambda t, n: t.pop(f"{n}.scale"),
    "the table too": lambda t, n: t.update({n: t[f"{n}.codes"].astype(np.float32)}),
    "the table instead": lambda t, n: t.update({n: (t.pop(f"{n}.scale"), t.pop(f"{n}.codes").astype(np.float32))[1]}),
}


@pytest.mark.parametrize("what", TENSOR_FILES)
def test_other_tensors_are_refused_before_mapping(
    copied: tuple[str, Path], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = copied
    in_tensors(path, lambda t: TENSOR_FILES[what](t, "emission"))
    monkeypatch.setattr(safetensors.numpy, "load_file", lambda path: pytest.fail("it was mapped"))
    refused(path, "damaged")


@pytest.mark.parametrize("bits", [None, 4, 16, 32, 8.0, True, "8", [8], 10**30])
def test_other_bits_are_refused(copied: tuple[str, Path], bits: Any) -> None:
    edit_sealed(copied[1] / CONFIG, lambda c: c.update(bits=bits))
    refused(copied[1], "no tables of bits")


def test_bits_must_be_those_of_the_tensors(copied: tuple[str, Path], tmp_path: Path) -> None:
    edit_sealed(copied[1] / CONFIG, lambda c: c.pop("bits"))
    refused(copied[1], "table of tensors")
    HMM(3, n_iter=1, random_state=0).fit(SENTENCES).save(tmp_path / "plain")
    load(tmp_path / "plain")
    edit_sealed(tmp_path / "plain" / CONFIG, lambda c: c.update(bits=8))
    refused(tmp_path / "plain", "table of tensors")


def test_indices_are_checked_before_codes_are_read(tmp_path: Path) -> None:
    HMM(8, n_blocks=4, n_iter=2, random_state=0).fit(SENTENCES).save(tmp_path / "m", bits=8)
    before = {p: p.read_bytes() for p in (tmp_path / "m").iterdir()}
    for name, value in {"word_block": 1 << 20, "block_states": 1 << 40, "before": 1 << 20, "after": -5}.items():
        in_tensors(tmp_path / "m", lambda t, name=name, value=value: t[name].__setitem__(0, value))
        refused(tmp_path / "m")
        for p, data in before.items():
            p.write_bytes(data)


def test_what_cannot_be_saved_in_8_bits(tmp_path: Path) -> None:
    lds = LDS(2, n_iter=1, n_full=0, lags=3, ssid_lags=2, kappa=1.0, random_state=0).fit(SENTENCES)
    with pytest.raises(InputError, match=r"^LDS has no tables of bits=8: leave it out\.$"):
        lds.save(tmp_path / "m", bits=8)
    model = HMM(3, n_iter=1, random_state=0).fit(SENTENCES)
    with pytest.raises(InputError, match=r"^HMM has no tables of bits=4: give 8, or leave it out\.$"):
        model.save(tmp_path / "m", bits=4)
    model.params_.chain.emission[0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        model.save(tmp_path / "m", bits=8)
    assert not (tmp_path / "m").exists()


def lines(path: Path) -> list[list[str]]:
    with lzma.open(path, "rt", encoding="utf-8") as f:
        return [[*line.split(), "<eos>"] for line in f]


def tokens_of(sentences: list[list[str]], most: int) -> list[list[str]]:
    ends = np.cumsum([len(s) for s in sentences])
    return sentences[: int(np.searchsorted(ends, most)) + 1]


@pytest.mark.parametrize("parameterization", ["table", "neural"])
def test_real_text_loses_little_and_the_file_is_a_quarter(
    data_dir: Path, tmp_path: Path, parameterization: str
) -> None:
    train = tokens_of(lines(data_dir / "text" / "wikitext2.train.txt.xz"), 300_000)
    tail = tokens_of(lines(data_dir / "text" / "wikitext2.valid.txt.xz")[::-1], 30_000)
    model = HMM(512, parameterization=parameterization, n_iter=3, random_state=0).fit(train)
    model.save(tmp_path / "whole")
    model.save(tmp_path / "small", bits=8)
    loaded: Any = load(tmp_path / "small")
    assert loaded.perplexity(tail) < 1.005 * model.perplexity(tail)
    whole, small = ((tmp_path / name / TENSORS).stat().st_size for name in ("whole", "small"))
    assert whole / small >= 3.5
