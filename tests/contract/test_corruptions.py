"""Saved models whose numbers make no sense, with every hash and the digest made to fit: none is loaded, none is saved.

A corruption changes a tensor or the configuration of a directory; `CORRUPTIONS` names them by the kind of model.
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from contract.cases import CASES, SENTENCES
from sealing import edit_sealed, reseal
from sentences import is_one_sentence
from undertow import LDS
from undertow.errors import FormatError, InputError
from undertow.models.base import Estimator
from undertow.results.tagging import CRFTagger, LocalTagger, Tagger
from undertow.storage import CONFIG, TENSORS, load_model

Change = Callable[[Any], None]


def in_tensor(name: str, change: Callable[[Any], Any]) -> tuple[str, Change]:
    def apply(tensors: dict[str, Any]) -> None:
        tensors[name] = np.ascontiguousarray(change(tensors[name].copy()), dtype=tensors[name].dtype)

    return "tensor", apply


def first(value: Any) -> Callable[[Any], Any]:
    """Put a value in the first place."""

    def change(x: Any) -> Any:
        x.flat[0] = value
        return x

    return change


def in_fitted(change: Change) -> tuple[str, Change]:
    return "fitted", change


def tilted(x: Any) -> Any:
    """No longer symmetric, though its eigenvalues may be."""
    x[..., 0, 1] += 0.5 * np.abs(x).max()
    return x


def nowhere(x: Any) -> Any:
    x.flat[-1] = 1 << 20
    return x


DISTRIBUTION: dict[str, Callable[[Any], Any]] = {
    "negative": lambda x: -x,
    "twice": lambda x: 2 * x,
    "zero": lambda x: 0 * x,
}
COVARIANCE: dict[str, Callable[[Any], Any]] = {"negated": lambda x: -x, "tilted": tilted, "zero": lambda x: 0 * x}

RULES = {
    "a misspelt rule": {"rule": "words", "lowes": True, "numbers": "class", "hyphens": "split", "sentences": "split",
                        "version": 1},
    "half a rule": {"rule": "words"},
    "a newer rule": {"rule": "words", "lower": True, "numbers": "class", "hyphens": "split", "sentences": "split",
                     "symbols": "whole", "version": 3},
    "a library without its rule": {"rule": "words", "lower": True, "numbers": "class", "hyphens": "split",
                                   "sentences": "split", "symbols": "whole", "version": 2, "library": "jieba 0.42"},
    "a rule of numbers": 3,
}  # fmt: skip


def distributions(*names: str) -> dict[str, tuple[str, Change]]:
    return {f"{name} {what}": in_tensor(name, change) for name in names for what, change in DISTRIBUTION.items()}


def covariances(*names: str) -> dict[str, tuple[str, Change]]:
    return {f"{name} {what}": in_tensor(name, change) for name in names for what, change in COVARIANCE.items()}


def rules() -> dict[str, tuple[str, Change]]:
    return {what: in_fitted(lambda f, rule=rule: f.update(tokenizer=rule)) for what, rule in RULES.items()}  # type: ignore[misc]


def fitted(**changes: Any) -> dict[str, tuple[str, Change]]:
    return {f"{k}={v}": in_fitted(lambda f, k=k, v=v: f.update({k: v})) for k, v in changes.items()}  # type: ignore[misc]


LABELS: dict[str, tuple[str, Change]] = {
    "labels upside down": in_fitted(lambda f: f["labels"].reverse()),
    "a label twice": in_fitted(lambda f: f["labels"].__setitem__(1, f["labels"][0])),
    "a number for a label": in_fitted(lambda f: f["labels"].__setitem__(0, 0)),
    "a label with a space": in_fitted(lambda f: f["labels"].__setitem__(0, " ")),
    **fitted(scheme="braces", surprise=1),
    **rules(),
}

CORRUPTIONS: dict[str, dict[str, tuple[str, Change]]] = {
    "test-deleted-interpolation": distributions("weights"),
    "lds": {
        **distributions("mu"),
        **covariances("Q", "M", "state_moment"),
        "A explodes": in_tensor("A", lambda x: x + 2 * np.eye(len(x))),
        "C off the complement": in_tensor("C", lambda x: x + 1),
        "C explains too much": in_tensor("C", lambda x: 1000 * x),
        "dropped above one": in_tensor("dropped", first(1.5)),
        "dropped below zero": in_tensor("dropped", first(-0.5)),
        **fitted(surprise=1),
        **rules(),
    },
    "fhmm": {
        **distributions("initial", "transition"),
        "theta apart": in_tensor("theta", first(-500.0)),
        "theta far": in_tensor("theta", lambda x: x + 1e300),
        **fitted(n_layers=1, n_states=7, validation_history=["x"], surprise=1),
        **rules(),
    },
    "hmm": {
        **distributions("initial", "emission"),
        "an unknown size": in_fitted(lambda f: f["sizes"].update(surprise=1)),
        "more sequences than tokens": in_fitted(lambda f: f.update(seen=[3, 4])),
        "a text without sequences": in_fitted(lambda f: f.update(seen=[3, 0])),
        "a text of half a token": in_fitted(lambda f: f.update(seen=[3.5, 1])),
        **fitted(validation_history=None, surprise=1, seen=None),
        **rules(),
    },
    "grammar": {
        **distributions("start", "rules", "left", "right", "emission"),
        "uses negative": in_tensor("symbol_counts", lambda x: -x),
        "no uses": in_tensor("symbol_counts", lambda x: 0 * x),
        **fitted(validation_history=None, surprise=1, n_sentences=0),
        "half a sentence": in_fitted(lambda f: f.update(n_sentences=1.5)),
        **rules(),
    },
    "clusters": {
        "a cluster that is not there": in_tensor("clusters", nowhere),
        "below no cluster": in_tensor("clusters", lambda x: x - 2),
        "no word has one": in_tensor("clusters", lambda x: 0 * x - 1),
        "words without": in_tensor("clusters", lambda x: 0 * x),
        "paths that meet": in_fitted(lambda f: f["paths"].__setitem__(0, f["paths"][1] + "0")),
        "the same path": in_fitted(lambda f: f["paths"].__setitem__(0, f["paths"][1])),
        "a path of letters": in_fitted(lambda f: f["paths"].__setitem__(0, "left")),
        **fitted(surprise=1),
        **rules(),
    },
    "pmi": {
        "too long": in_tensor("vectors", lambda x: 2 * x),
        "one too short": in_tensor("vectors", first(0.5)),
        **fitted(surprise=1),
        **rules(),
    },
    "context": {
        "a weight beyond all": in_tensor("around", first(1e30)),
        **fitted(letters=1, surprise=1),
        **rules(),
    },
    "dynamic": {
        **covariances("filtered_covariances"),
        "drift negative": in_tensor("drift", lambda x: -x),
        "drift zero": in_tensor("drift", lambda x: 0 * x),
        "drift huge": in_tensor("drift", first(1e300)),
        "gaps zero": in_tensor("gaps", lambda x: 0 * x),
        "gaps negative": in_tensor("gaps", lambda x: -x),
        "a gap before the first": in_tensor("gaps", first(1.0)),
        "counts negative": in_tensor("event_counts", lambda x: -x),
        "counts huge": in_tensor("event_counts", first(1e18)),
        "a row that is not there": in_tensor("event_rows", nowhere),
        "a column that is not there": in_tensor("event_columns", nowhere),
        "a row below none": in_tensor("event_rows", first(-1)),
        "steps backwards": in_tensor("event_steps", lambda x: x[::-1]),
        "an event twice": in_tensor("event_columns", lambda x: 0 * x),
        "names that end nowhere": in_tensor("row_ends", lambda x: x[::-1]),
        "names not in UTF-8": in_tensor("row_names", lambda x: 0 * x + 255),
        "a time twice": in_fitted(lambda f: f["times"].__setitem__(0, f["times"][1])),
        "a time of truth": in_fitted(lambda f: f["times"].__setitem__(0, True)),
        "one kind": in_fitted(lambda f: f.update(kind_names=["row", "row"])),
        **fitted(start_variance=-1.0, tempering=0.0, burstiness=-1.0, covariance="diagonal", covariance_reason=3,
                 surprise=1),
    },
    "local-tagger": {
        "a weight beyond all": in_tensor("W1", first(1e30)),
        "a kept model's frequencies": in_tensor("features.0.mu", lambda x: -x),
        "a kept model's covariance": in_tensor("features.0.Q", lambda x: -x),
        "a kept model's rule": in_fitted(lambda f: f["models"][0]["fitted"].update(tokenizer={"rule": "words"})),
        "a kept model's surprise": in_fitted(lambda f: f["models"][0]["fitted"].update(surprise=1)),
        "a kept model's parameter": in_fitted(lambda f: f["models"][0]["params"].update(surprise=1)),
        "a kept model's history": in_fitted(lambda f: f["models"][0].update(history=["1"])),
        "an adapter's option": in_fitted(lambda f: f["features"][0]["options"].update(surprise=1)),
        "no such model": in_fitted(lambda f: f["features"][0].update(model=-1)),
        **fitted(scale=-1.0),
        **LABELS,
    },
    "crf-tagger": {
        "a tag that is not there": in_tensor("label", nowhere),
        "a tag below none": in_tensor("label", first(-1)),
        "tags that do not rise": in_tensor("label", lambda x: 0 * x),
        "pairs that begin elsewhere": in_tensor("start", first(1)),
        "pairs backwards": in_tensor("start", lambda x: x[::-1]),
        "pairs that end elsewhere": in_tensor("start", lambda x: spoilt(x, -1, x[-1] + 1)),
        "an attribute without pairs": in_tensor("start", lambda x: spoilt(x, 1, 0)),
        "a weight beyond all": in_tensor("sparse", first(1e30)),
        "a transition beyond all": in_tensor("transition", first(-1e30)),
        "a number's weight beyond all": in_tensor("dense", first(1e30)),
        "names not in UTF-8": in_tensor("attributes", lambda x: 0 * x + 255),
        "names all the same": in_tensor("attributes", lambda x: np.where(x == ord("\n"), x, ord("a")).astype(np.uint8)),
        "one name more": in_tensor("attributes", first(ord("\n"))),
        "one name less": in_tensor("attributes", lambda x: spoilt(x, int(np.flatnonzero(x == ord("\n"))[0]), ord("a"))),
        **fitted(span_threshold=0.3),
        **fitted(extra=1, n_pairs=3, n_attributes=2, n_numbers=1, name_bytes=4),
        **LABELS,
    },
    "tagger": {
        "a label of the CRF twice": in_fitted(lambda f: f["crf"]["fitted"]["labels"].__setitem__(1, "D")),
        "a surprise in the CRF": in_fitted(lambda f: f["crf"]["fitted"].update(surprise=1)),
        "another kind than a CRF": in_fitted(lambda f: f["crf"].update(kind="local-tagger")),
        "more right than there are": in_fitted(lambda f: scored(f["held_out"]["tokens"]["all"], 14)),
        "half a token right": in_fitted(lambda f: scored(f["held_out"]["tokens"]["all"], 3.5)),
        "an accuracy of its own": in_fitted(lambda f: f["held_out"]["tokens"]["all"].update(accuracy=0.1)),
        "no scores": in_fitted(lambda f: f.update(held_out={})),
        "a shift of O, as earlier versions had it": in_fitted(lambda f: f.update(outside_shift=-0.5)),
        "a threshold without spans": in_fitted(lambda f: f["crf"]["fitted"].update(span_threshold=0.3)),
        **fitted(representation="best", columns={"tags": 1}, surprise=1),
    },
}  # fmt: skip


def scored(group: dict[str, Any], right: float) -> None:
    group.update(right=right, accuracy=right / group["total"])


def spoilt(x: Any, at: int, value: int) -> Any:
    x[at] = value
    return x


TAGS = [["D" if w in ("the", "a", "her") else "N" if len(w) > 3 else "X" for w in s] for s in SENTENCES]


@functools.cache
def model_of(name: str) -> Any:
    if name in ("local-tagger", "crf-tagger"):
        lds = LDS(3, n_iter=1, n_full=0, lags=3, ssid_lags=2, kappa=1.0, random_state=0).fit(SENTENCES)
        tagger: Any = LocalTagger(lds, n_iter=2, random_state=0) if name == "local-tagger" else CRFTagger(lds, n_iter=5)
        return tagger.fit(SENTENCES, TAGS)
    if name == "tagger":
        return Tagger(None, n_iter=3).fit(SENTENCES, TAGS, validation=(SENTENCES[:1], TAGS[:1]))
    return next(case for case in CASES if case.name == name).fitted()


@functools.cache
def files_of(name: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        model_of(name).save(Path(place) / "m")
        return {p.name: p.read_bytes() for p in (Path(place) / "m").iterdir()}


TAGGERS = ["local-tagger", "crf-tagger", "tagger"]
NAMES = [case.name for case in CASES] + TAGGERS


@pytest.fixture(params=NAMES)
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    directory = tmp_path / "m"
    directory.mkdir()
    for name, data in files_of(request.param).items():
        (directory / name).write_bytes(data)
    yield model_of(request.param), directory


def corrupted(directory: Path, where: str, change: Change) -> None:
    if where == "tensor":
        tensors = safetensors.numpy.load_file(directory / TENSORS)
        change(tensors)
        safetensors.numpy.save_file(tensors, directory / TENSORS)
        reseal(directory / CONFIG)
    else:
        edit_sealed(directory / CONFIG, lambda c: change(c["fitted"]))


def test_numbers_that_no_fit_gives_are_not_loaded(whole: tuple[Estimator, Path]) -> None:
    model, directory = whole
    load_model(directory)
    tensors = safetensors.numpy.load_file(directory / TENSORS)
    named = dict(CORRUPTIONS[model.kind])
    for name in {"transition", "R", "E", "ET", "data"} & set(tensors) if model.kind == "hmm" else ():
        named |= {f"{name} {what}": in_tensor(name, DISTRIBUTION[what]) for what in ("negative", "twice")}
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and tensor.size:
            named |= {f"{name} {bad}": in_tensor(name, first(bad)) for bad in (np.nan, np.inf)}
    before = {p: p.read_bytes() for p in directory.iterdir()}
    for what, (where, change) in named.items():
        corrupted(directory, where, change)
        with pytest.raises(FormatError) as e:
            load_model(directory)
            pytest.fail(f"{what} was loaded")
        assert is_one_sentence(str(e.value)) and len(str(e.value)) <= 500, str(e.value)
        for path, data in before.items():
            path.write_bytes(data)


def test_and_not_saved(whole: tuple[Estimator, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = whole
    for what, (where, change) in CORRUPTIONS[model.kind].items():
        if where != "tensor" or what in KNOWN_BY_LOADING or "kept" in what:
            continue
        broken, tensors = copy.copy(model), dict(model._tensors())
        change(tensors)
        with monkeypatch.context() as patch:
            patch.setattr(broken, "_tensors", lambda tensors=tensors: tensors)
            with pytest.raises(InputError, match="cannot be saved"):
                broken.save(tmp_path / "broken")
                pytest.fail(f"{what} was saved")


# these need the words beside the tensors, or the names that are packed in them
KNOWN_BY_LOADING = {
    "words without", "no word has one", "names that end nowhere", "names not in UTF-8", "an event twice",
}  # fmt: skip
