"""What every estimator promises, one function a promise.

`check_xxx(case)` raises AssertionError when the promise is broken. `test_checks_can_fail` holds for each of
them a model that breaks it, which is why the list is believed. To put a model under the contract, add it to
`cases.CASES`; there is nothing else to write.
"""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from contract.cases import Case
from sealing import edit_sealed
from undertow.errors import InputError, NotFittedError, UndertowError
from undertow.models.base import Estimator
from undertow.models.fitting import InterruptedFitWarning, TrainingEvent
from undertow.storage import CARD, CONFIG, load_model
from undertow.text.corpus import Corpus
from undertow.text.vocabulary import Vocabulary

Check = Callable[[Case], None]
CHECKS: list[tuple[Check, tuple[str, ...]]] = []

STRANGE = [["the", "river"], [], ["bank"], ["zzz", "qqq"], ["the", "zzz", "sea"]]


def check(*needs: str) -> Callable[[Check], Check]:
    """Put a function on the list; it runs for the cases that have all the capabilities it needs."""

    def add(function: Check) -> Check:
        CHECKS.append((function, needs))
        return function

    return add


# --- tools ----------------------------------------------------------------------------------------------


@contextmanager
def refuses(what: str, error: type[UndertowError] = UndertowError) -> Iterator[None]:
    """The block must raise an error of undertow that says one sentence."""
    try:
        yield
    except UndertowError as e:
        sentence = str(e)
        assert isinstance(e, error), f"{what}: {type(e).__name__} instead of {error.__name__}"
        assert sentence.endswith(".") and "\n" not in sentence, f"{what}: not one sentence: {sentence!r}"
    except Exception as e:
        raise AssertionError(f"{what}: raised {type(e).__name__}: {e}") from e
    else:
        raise AssertionError(f"{what} was accepted")


@contextmanager
def accepts(what: str) -> Iterator[None]:
    try:
        yield
    except AssertionError:
        raise
    except Exception as e:
        raise AssertionError(f"{what}: raised {type(e).__name__}: {e}") from e


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def files_of(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir())}


def saved_bytes(model: Estimator) -> dict[str, bytes]:
    """The files a model is saved as: equal if and only if the fitted models and parameters are."""
    with scratch() as place, accepts("saving"):
        model.save(place / "model")
        return files_of(place / "model")


def tensor_bytes(model: Estimator) -> bytes:
    return saved_bytes(model)["model.safetensors"]


def global_randomness() -> tuple[Any, ...]:
    """The state of NumPy's and Python's shared generators; drawing moves the position, not always the key."""
    state: Any = np.random.get_state(legacy=False)
    return state["state"]["key"].tobytes(), state["state"]["pos"], random.getstate()


def same_params(a: Estimator, b: Estimator) -> bool:
    return {k: repr(v) for k, v in a.get_params().items()} == {k: repr(v) for k, v in b.get_params().items()}


def assert_same_arrays(a: list[Any], b: list[Any], what: str) -> None:
    assert len(a) == len(b), what
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes(), what


# --- parameters -----------------------------------------------------------------------------------------


@check()
def check_constructor_only_stores(case: Case) -> None:
    model_class = type(case.make())
    params = {name: object() for name in model_class.param_defaults()}
    with accepts("a constructor given arbitrary objects"):
        model = model_class(**params)
    assert set(vars(model)) == set(params), "the constructor sets other attributes than its parameters"
    for name, value in params.items():
        assert getattr(model, name) is value, f"the constructor does not store {name} as it is"
    model, defaults = model_class(), model_class.param_defaults()
    for name, value in defaults.items():
        assert getattr(model, name) is value, f"the constructor replaces the default of {name}"


@check()
def check_keyword_only_after_first(case: Case) -> None:
    parameters = list(inspect.signature(type(case.make())).parameters.values())
    for p in parameters[1:]:
        assert p.kind is p.KEYWORD_ONLY, f"{p.name} is not keyword-only"
    for p in parameters:
        assert p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY), f"{p.name} hides the parameters' names"
        assert p.default is not p.empty, f"{p.name} has no default"


@check()
def check_params_by_name(case: Case) -> None:
    model = case.make()
    params = model.get_params(deep=True)
    assert list(params) == list(type(model).param_defaults()), "get_params does not follow the constructor"
    value = object()
    for name in params:
        assert model.set_params(**{name: value}) is model, "set_params does not return the model"
        assert model.get_params()[name] is value, f"set_params does not store {name}"
    before = model.get_params()
    with refuses("an unknown parameter", InputError):
        model.set_params(**{next(iter(params)): 1, "no_such_parameter": 1})
    assert model.get_params() == before, "a refused set_params changed something"
    assert repr(type(model)()) == f"{type(model).__name__}()", "repr shows parameters that are defaults"


@check()
def check_parameters_must_be_finite(case: Case) -> None:
    model_class = type(case.make())
    for name, default in model_class.param_defaults().items():
        if isinstance(default, int | float) and not isinstance(default, bool):
            for bad in (math.nan, np.float32("nan")):
                with refuses(f"fit with {name}={bad}"):
                    case.make(**{name: bad}).fit(case.data)


@check()
def check_parameters_are_constrained(case: Case) -> None:
    """Each parameter has a constraint, and refuses an object that no parameter can be."""
    model_class = type(case.make())
    names, declared = set(model_class.param_defaults()), set(model_class.constraints)
    assert declared == names, f"constraints and parameters differ: {sorted(declared ^ names)}"
    for name in names:
        with refuses(f"fit with a foreign object for {name}", InputError):
            case.make(**{name: object()}).fit(case.data)


NONSENSE: list[Any] = ["x", None, -1, 0, 1e300, math.nan, math.inf, [], 2**70, True, "y" * 10_000]


@check()
def check_nonsense_parameters(case: Case) -> None:
    """Whatever a parameter is given, fit works or says in a sentence that it does not."""
    for name in type(case.make()).param_defaults():
        for value in NONSENSE:
            what = f"fit with {name}={str(value)[:20]}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an odd parameter may be worth a warning
                try:
                    case.make(**{name: value}).fit(case.data)
                except UndertowError as e:
                    sentence = str(e)
                    assert sentence.endswith(".") and "\n" not in sentence, f"{what}: not one sentence: {sentence!r}"
                    assert len(sentence) <= 500, f"{what}: a message of {len(sentence)} characters"
                except Exception as e:
                    raise AssertionError(f"{what}: raised {type(e).__name__}: {e}") from e


# --- fit ------------------------------------------------------------------------------------------------


@check()
def check_fit_returns_self(case: Case) -> None:
    model = case.make()
    assert model.fit(case.data) is model


@check()
def check_fitted_attributes(case: Case) -> None:
    model = case.make()
    before = model.get_params()
    model.fit(case.data)
    for name, value in before.items():
        assert getattr(model, name) is value, f"fit changed the parameter {name}"
    new = set(vars(model)) - set(before)
    wrong = [name for name in new if not name.startswith("_") and not name.endswith("_")]
    assert not wrong, f"fitted attributes without a final underscore: {wrong}"


@check()
def check_history_and_vocabulary(case: Case) -> None:
    model = case.fitted()
    assert type(model.history_) is list and model.history_, "history_ is not a filled list"
    assert all(type(x) is float and math.isfinite(x) for x in model.history_), "history_ is not of finite floats"
    if case.fits_sentences:
        assert isinstance(model.vocabulary_, Vocabulary), "vocabulary_ is not a Vocabulary"
        missing = {word for sentence in case.data for word in sentence} - set(model.vocabulary_.words)
        assert not missing, f"vocabulary_ lacks {missing}"


@check()
def check_not_fitted(case: Case) -> None:
    model = case.make()
    with refuses("history_ before fit", NotFittedError):
        _ = model.history_
    with scratch() as place, refuses("save before fit", NotFittedError):
        model.save(place / "model")
    with refuses("vocabulary_ before fit", NotFittedError):
        _ = model.vocabulary_
    for method, needed in [
        ("transform", case.has_transform),
        ("score", case.has_score),
        ("perplexity", case.has_score),
    ]:
        if needed:
            with refuses(f"{method} before fit", NotFittedError):
                getattr(model, method)(case.data)


@check()
def check_refit_starts_afresh(case: Case) -> None:
    model = case.make()
    model.fit(case.other_data)
    model.fit(case.data)
    assert saved_bytes(model) == saved_bytes(case.fitted()), "an earlier fit shows in a later one"


@check("fits_sentences")
def check_kinds_of_text(case: Case) -> None:
    expected = saved_bytes(case.fitted())
    given = copy.deepcopy(case.data)
    forms = {
        "a list": given,
        "a tuple of tuples": tuple(map(tuple, case.data)),
        "a Corpus": Corpus.from_sentences(case.data),
        "a one-shot generator": (list(s) for s in case.data),
        "a generator of arrays": (np.array(s) for s in case.data),
        "empty sentences between": [[], *case.data, []],
    }
    for what, form in forms.items():
        model = case.make()
        with accepts(f"fit on {what}"):
            model.fit(form)
        assert saved_bytes(model) == expected, f"{what} gives another model than a list"
    assert given == case.data, "fit changed its input"


# --- randomness -----------------------------------------------------------------------------------------


@check()
def check_deterministic(case: Case) -> None:
    assert saved_bytes(case.fitted(random_state=7)) == saved_bytes(case.fitted(random_state=7)), (
        "the same random_state gives different models"
    )


@check()
def check_random_state(case: Case) -> None:
    def tensors(random_state: Any) -> bytes:
        with accepts(f"random_state={random_state!r}"):
            return tensor_bytes(case.fitted(random_state=random_state))

    before = global_randomness()
    tensors(None)
    assert tensors(np.int64(3)) == tensors(3), "NumPy's integers seed differently"
    assert tensors(np.random.default_rng(3)) == tensors(np.random.default_rng(3)), "a Generator is not used alone"
    if case.uses_randomness:
        assert tensors(3) != tensors(4), "different seeds give the same model"
        shared = np.random.default_rng(3)
        assert tensors(shared) != tensors(shared), "a Generator does not move on"
    assert global_randomness() == before, "the global random state was used"
    for bad in (-1, 1.5, "seed", True, [1]):
        with refuses(f"random_state={bad!r}", InputError):
            case.make(random_state=bad).fit(case.data)


# --- what a fitted model gives --------------------------------------------------------------------------


@check("has_transform", "fits_sentences")
def check_transform(case: Case) -> None:
    model = case.fitted()
    with accepts("transform"):
        vectors = model.transform(STRANGE)
        nothing = model.transform([])
        from_generator = model.transform(iter(STRANGE))
    assert type(vectors) is list and nothing == [], "transform does not give a list"
    assert all(isinstance(v, np.ndarray) and v.ndim == 2 for v in vectors), "not a matrix for each sentence"
    assert [len(v) for v in vectors] == [len(s) for s in STRANGE], "not a row for each token"
    assert len({v.shape[1] for v in vectors}) == 1, "the width depends on the sentence"
    assert all(v.dtype == np.float32 for v in vectors), f"transform gives {vectors[0].dtype}, not float32"
    assert all(np.isfinite(v).all() for v in vectors), "transform gives values that are not finite"
    assert_same_arrays(vectors, from_generator, "a generator is transformed differently")
    alone = [model.transform([s])[0] for s in STRANGE]
    for together, single in zip(vectors, alone, strict=True):
        np.testing.assert_allclose(together, single, rtol=1e-4, atol=1e-6, err_msg="sentences are not independent")


@check("has_transform", "fits_sentences")
def check_transform_of_corpus(case: Case) -> None:
    model = case.fitted()
    for text in (case.data, case.other_data):  # the second has ids of its own
        with accepts("transform of a Corpus"):
            vectors = model.transform(Corpus.from_sentences(text))
        assert_same_arrays(vectors, model.transform(text), "a Corpus is transformed differently than its tokens")


@check("has_score", "fits_sentences")
def check_score(case: Case) -> None:
    model = case.fitted()
    with accepts("score and perplexity"):
        score, perplexity = model.score(case.data), model.perplexity(case.data)
        strange = model.score(STRANGE)
    assert type(score) is float and math.isfinite(score) and math.isfinite(strange), "score is not a finite float"
    assert type(perplexity) is float, "perplexity is not a float"
    np.testing.assert_allclose(perplexity, math.exp(-score), rtol=1e-9, err_msg="perplexity is not exp(-score)")
    assert model.score(Corpus.from_sentences(case.data)) == score, "a Corpus scores differently than its tokens"
    n = [sum(map(len, part)) for part in (case.data[:2], case.data[2:])]
    mean = (n[0] * model.score(case.data[:2]) + n[1] * model.score(case.data[2:])) / sum(n)
    np.testing.assert_allclose(score, mean, rtol=1e-6, err_msg="score is not a mean over tokens")
    for empty in ([], [[]]):
        with refuses(f"score of {empty}", InputError):
            model.score(empty)


@check()
def check_use_changes_nothing(case: Case) -> None:
    model = case.fitted()
    before, attributes = saved_bytes(model), set(vars(model))
    if case.has_transform:
        model.transform(case.data)
    if case.has_score:
        model.score(case.data)
    assert saved_bytes(model) == before and set(vars(model)) == attributes, "using the model changed it"


# --- training events ------------------------------------------------------------------------------------


@check()
def check_callbacks(case: Case) -> None:
    events: list[TrainingEvent] = []
    model = case.fitted(callbacks=[events.append])
    assert events, "no callback was called"
    assert all(isinstance(e, TrainingEvent) for e in events), "callbacks receive something else"
    assert [e.iteration for e in events] == list(range(1, len(events) + 1)), "iterations are not counted from 1"
    assert [e.objective for e in events] == model.history_, "events and history_ disagree"
    assert len({e.n_iter for e in events}) == 1 and events[-1].iteration <= events[0].n_iter, "n_iter is wrong"
    seconds = [e.seconds for e in events]
    assert seconds[0] >= 0 and seconds == sorted(seconds), "time runs backwards"
    for bad in (print, [1], "print"):
        with refuses(f"callbacks={bad!r}", InputError):
            case.make(callbacks=bad).fit(case.data)


class _CallbackFailure(Exception):
    pass


def _fail_at(iteration: int, error: type[BaseException]) -> Callable[[TrainingEvent], None]:
    def callback(event: TrainingEvent) -> None:
        if event.iteration == iteration:
            raise error

    return callback


@check()
def check_failed_fit_changes_nothing(case: Case) -> None:
    for iteration in (1, 2):
        model = case.make(callbacks=[_fail_at(iteration, _CallbackFailure)])
        try:
            model.fit(case.data)
        except _CallbackFailure:
            pass
        else:
            raise AssertionError("an exception in a callback was swallowed")
        assert set(vars(model)) == set(model.get_params()), "a failed fit left fitted attributes behind"
    model = case.fitted()
    before = saved_bytes(model)
    model.set_params(callbacks=[_fail_at(2, _CallbackFailure)])
    with suppress(_CallbackFailure):
        model.fit(case.other_data)
    with refuses("fit on None"):
        model.fit(None)
    assert saved_bytes(model) == before, "a failed fit changed a fitted model"


@check()
def check_interrupt_keeps_last_iteration(case: Case) -> None:
    whole = case.fitted()
    assert len(whole.history_) > 2, "the case needs more than 2 iterations to be interrupted"
    model = case.make(callbacks=[_fail_at(2, KeyboardInterrupt)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = model.fit(case.data)
        except KeyboardInterrupt:
            raise AssertionError("Ctrl-C lost the finished iterations") from None
    assert result is model or result is None
    assert any(issubclass(w.category, InterruptedFitWarning) for w in caught), "nobody is told of the interruption"
    with accepts("using an interrupted model"):
        assert model.history_ == whole.history_[:2], "the history is not that of the finished iterations"
        saved_bytes(model)
        if case.has_transform:
            model.transform(case.data)


# --- bad input ------------------------------------------------------------------------------------------


@check("fits_sentences")
def check_bad_text(case: Case) -> None:
    everywhere = {
        "None": None,
        "a number": 3,
        "one string": "the river",
        "a list of strings": ["the river", "the bank"],
        "bytes for a sentence": [b"the river"],
        "a number for a sentence": [3],
        "a set for a sentence": [{"the", "river"}],
        "a dict": {"the": 1},
        "a number for a token": [["the", 3]],
        "None for a token": [["the", None]],
        "NaN for a token": [["the", math.nan]],
        "bytes for a token": [["the", b"river"]],
        "a list for a token": [["the", ["river"]]],
        "a string after sentences": [["the", "river"], "the bank"],
    }
    only_fit = {"no sentence": [], "empty sentences": [[], []], "an exhausted generator": iter([])}
    for what, bad in (everywhere | only_fit).items():
        with refuses(f"fit on {what}", InputError):
            case.make().fit(bad)
    model = case.fitted()
    for method, has in [("transform", case.has_transform), ("score", case.has_score)]:
        for what, bad in everywhere.items() if has else ():
            with refuses(f"{method} of {what}", InputError):
                getattr(model, method)(bad)


# --- saving ---------------------------------------------------------------------------------------------


@check()
def check_save_and_load(case: Case) -> None:
    model = case.fitted()
    with scratch() as place, accepts("saving and loading"):
        model.save(place / "a")
        loaded = load_model(place / "a")
        loaded.save(place / "b")
        assert files_of(place / "a") == files_of(place / "b"), "save, load, save gives other bytes"
        with refuses("saving onto a model", InputError):
            model.save(place / "a")
        model.save(place / "a", overwrite=True)
        assert files_of(place / "a") == files_of(place / "b"), "overwriting gives other bytes"
    assert type(loaded) is type(model) and same_params(loaded, model), "another class or parameters came back"
    fitted, restored = ({k: type(v) for k, v in vars(m).items() if k.endswith("_")} for m in (model, loaded))
    assert fitted == restored, f"fitted attributes changed: {fitted} became {restored}"
    assert loaded.history_ == model.history_, "another history came back"
    if case.fits_sentences:
        assert loaded.vocabulary_ == model.vocabulary_, "another vocabulary came back"
        texts: list[Any] = [case.data, STRANGE]
        for text in texts:
            if case.has_transform:
                assert_same_arrays(loaded.transform(text), model.transform(text), "transform changed")  # type: ignore[attr-defined]
            if case.has_score:
                assert loaded.score(text) == model.score(text), "score changed"  # type: ignore[attr-defined]


@check()
def check_tables_of_fewer_bits(case: Case) -> None:
    model = case.fitted()
    known = type(model).table_bits
    with scratch() as place:
        for bits in {4, 8, 16, 32} - set(known):
            with refuses(f"bits={bits}", InputError):
                model.save(place / "refused", bits=bits)
        wrong: list[Any] = [0, -8, True, 8.0, "8"]
        for value in wrong:
            with refuses(f"bits={value!r}", InputError):
                model.save(place / "refused", bits=value)
        assert not (place / "refused").exists(), "something was written"
        for bits in known:
            with accepts(f"bits={bits}"):
                model.save(place / "a", bits=bits)
                load_model(place / "a").save(place / "b", bits=bits)
                assert files_of(place / "a") == files_of(place / "b"), "save, load, save gives other bytes"
                load_model(place / "a").save(place / "whole")
                again = load_model(place / "whole")
                assert_same_tensors(again, load_model(place / "a"))


def assert_same_tensors(a: Estimator, b: Estimator) -> None:
    one, other = a._tensors(), b._tensors()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], strict=True)


@check()
def check_never_unpickles(case: Case) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("something was unpickled")

    with scratch() as place:
        case.fitted().save(place / "model")
        names = ["load", "loads", "Unpickler", "_Unpickler", "_load", "_loads"]
        patches = [mock.patch.object(pickle, name, refuse) for name in names]
        for patch in patches:
            patch.start()
        try:
            with accepts("loading without pickle"):
                loaded: Any = load_model(place / "model")
                if case.has_transform:
                    loaded.transform(case.data)
        finally:
            for patch in patches:
                patch.stop()


def _edit_config(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda directory: edit_sealed(directory / CONFIG, change)


def _edit_bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda directory: (directory / name).write_bytes(change((directory / name).read_bytes())) and None


def _flip(position: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        i = min(int(position * len(data)), len(data) - 1)
        return data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]

    return flip


def damages(names: list[str]) -> dict[str, Callable[[Path], None]]:
    """Ways to spoil a saved model, each of which a loader must notice."""
    out: dict[str, Callable[[Path], None]] = {
        "a duplicate key": _edit_bytes(CONFIG, lambda d: d.replace(b"{", b'{"kind": "x", ', 1)),
        "an unknown parameter": _edit_config(lambda c: c["params"].update(no_such_parameter=1)),
        "a missing parameter": _edit_config(lambda c: c["params"].popitem()),
        "a missing fitted value": _edit_config(lambda c: c.pop("fitted")),
        "an unknown kind": _edit_config(lambda c: c.update(kind="no-such-kind")),
        "a newer format": _edit_config(lambda c: c.update(format_version=c["format_version"] + 1)),
        "an infinite history": _edit_bytes(CONFIG, lambda d: d.replace(b'"history": [', b'"history": [1e999, ')),
        "NaN in the history": _edit_bytes(CONFIG, lambda d: d.replace(b'"history": [', b'"history": [NaN, ')),
        "an empty history": _edit_config(lambda c: c.update(history=[])),
        "a history without its digest": _edit_bytes(CONFIG, lambda d: d.replace(b'"history": [', b'"history": [1.5, ')),
        "an unknown fitted value": _edit_config(lambda c: c["fitted"].update(no_such_value=1)),
        "another file listed": _edit_config(lambda c: c["files"].update({"../x": {"bytes": 1, "sha256": ""}})),
    }
    for name in names:
        out[f"{name} missing"] = lambda d, name=name: (d / name).unlink()  # type: ignore[misc]
        for part in (0.0, 0.5, 0.99):
            out[f"{name} cut at {part}"] = _edit_bytes(name, lambda d, part=part: d[: int(part * len(d))])  # type: ignore[misc]
            if name != CONFIG:
                out[f"{name} flipped at {part}"] = _edit_bytes(name, _flip(part))
        out[f"{name} longer"] = _edit_bytes(name, lambda d: d + b"x")
    return out


@check()
def check_damaged_files(case: Case) -> None:
    with scratch() as place:
        case.fitted().save(place / "model")
        whole = files_of(place / "model")
        for what, damage in damages([name for name in whole if name != CARD]).items():
            for name, data in whole.items():
                (place / "model" / name).write_bytes(data)
            damage(place / "model")
            with refuses(f"a model with {what}"):
                load_model(place / "model")


# --- scikit-learn ---------------------------------------------------------------------------------------


class Watcher:
    """Counts events; a deep copy of it, unlike one of a list's own append, counts for itself."""

    seen = 0

    def see(self, event: TrainingEvent) -> None:
        self.seen += 1


@check()
def check_clone(case: Case) -> None:
    from sklearn.base import clone

    watcher = Watcher()
    model = case.fitted(callbacks=[watcher.see])
    with accepts("clone"):
        copied = clone(model)
    assert copied is not model and type(copied) is type(model), "clone gives another kind of object"
    assert same_params(copied, model), "clone has other parameters"
    assert set(vars(copied)) == set(copied.get_params()), "clone is fitted"
    assert saved_bytes(copied.fit(case.data) or copied) == saved_bytes(model), "a clone fits another model"
    assert watcher.seen == 2 * len(model.history_), "the clone's events reach nobody"


@check("has_transform")
def check_pipeline(case: Case) -> None:
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.utils.validation import check_is_fitted

    first = Pipeline([("same", FunctionTransformer(validate=False)), ("model", case.make())])
    second = Pipeline([("model", case.make()), ("same", FunctionTransformer(validate=False))])
    expected = case.fitted().transform(case.data)
    for pipeline in (first, second):
        with accepts("a Pipeline"):
            pipeline.fit(case.data)
            check_is_fitted(pipeline)
            assert_same_arrays(pipeline.transform(case.data), expected, "a Pipeline transforms differently")
            pipeline.set_params(model__random_state=5)
            assert pipeline.named_steps["model"].random_state == 5
            repr(pipeline), pipeline._repr_html_()
    if case.has_score:
        with accepts("a Pipeline's score"):
            assert math.isfinite(first.score(case.data))
