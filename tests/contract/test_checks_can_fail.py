"""Models that break one promise each, and the proof that the list notices.

Each broken model goes through the whole list, and exactly the named checks must fail: a check that cannot
fail proves nothing, and one that fails for another promise's sake names the wrong culprit.
"""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from contract import checks
from contract.cases import OTHER_SENTENCES, SENTENCES, Case, small
from contract.reference import DeletedInterpolation
from undertow.errors import InputError
from undertow.models.constraints import Checked, Constraint, check_callbacks, check_random_state
from undertow.models.fitting import InterruptedFitWarning
from undertow.storage import load_model, register
from undertow.text.corpus import Corpus


class Broken(NamedTuple):
    model: type[DeletedInterpolation]
    fails: frozenset[str]
    spreads: bool  # other checks cannot help failing too


BROKEN: list[Broken] = []


def breaks(*fails: str, spreads: bool = False) -> Callable[[type], type]:
    def add(model: type[DeletedInterpolation]) -> type[DeletedInterpolation]:
        model.kind = f"broken-{model.__name__}"
        BROKEN.append(Broken(register(model), frozenset(fails), spreads))
        return model

    return add


@contextmanager
def instead(model: Any, **values: Any) -> Iterator[None]:
    """Attributes with other values for the time of a block."""
    before = {name: getattr(model, name) for name in values}
    vars(model).update(values)
    try:
        yield
    finally:
        vars(model).update(before)


# --- parameters -----------------------------------------------------------------------------------------


@breaks("constructor_only_stores", "nonsense_parameters", "parameters_are_constrained")
class ValidatesInConstructor(DeletedInterpolation):
    def __init__(self, n_iter: Any = 10, *, smoothing: Any = 0.1, random_state: Any = None, callbacks: Any = None):
        if not isinstance(smoothing, float | int | np.floating):
            raise TypeError("smoothing must be a number")
        super().__init__(n_iter, smoothing=smoothing, random_state=random_state, callbacks=callbacks)


@breaks("constructor_only_stores", "params_by_name")
class ReplacesDefault(DeletedInterpolation):
    def __init__(self, n_iter: Any = 10, *, smoothing: Any = 0.1, random_state: Any = None, callbacks: Any = None):
        callbacks = [] if callbacks is None else callbacks
        super().__init__(n_iter, smoothing=smoothing, random_state=random_state, callbacks=callbacks)


@breaks("constructor_only_stores", "fitted_attributes", "failed_fit_changes_nothing", "clone")
class ComputesInConstructor(DeletedInterpolation):
    def __init__(self, n_iter: Any = 10, *, smoothing: Any = 0.1, random_state: Any = None, callbacks: Any = None):
        super().__init__(n_iter, smoothing=smoothing, random_state=random_state, callbacks=callbacks)
        self.table = np.zeros(3)


@breaks("keyword_only_after_first")
class Positional(DeletedInterpolation):
    def __init__(self, n_iter: Any = 10, smoothing: Any = 0.1, random_state: Any = None, callbacks: Any = None):
        super().__init__(n_iter, smoothing=smoothing, random_state=random_state, callbacks=callbacks)


@breaks("params_by_name")
class SetsBlindly(DeletedInterpolation):
    def set_params(self, **params: Any) -> Any:
        for name, value in params.items():
            setattr(self, name, value)
        return self


@breaks("parameters_are_constrained")
class ForgetsAParameter(DeletedInterpolation):
    constraints: ClassVar[Mapping[str, Constraint]] = {
        name: c for name, c in DeletedInterpolation.constraints.items() if name != "random_state"
    }


@breaks("parameters_are_constrained", spreads=True)
class TakesAnything(DeletedInterpolation):
    """Declares something for each parameter, but what it declares for one accepts anything."""

    constraints: ClassVar[Mapping[str, Constraint]] = {
        **DeletedInterpolation.constraints,
        "callbacks": Checked(lambda value: None),
    }

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(X) if isinstance(self.callbacks, list | None) else self


@breaks("parameters_must_be_finite")
class AcceptsNaN(DeletedInterpolation):
    def _check_params(self) -> None:
        if self.smoothing == self.smoothing:
            super()._check_params()


# --- fit ------------------------------------------------------------------------------------------------


@breaks("fit_returns_self", "pipeline")
class ReturnsNone(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        super().fit(X)


@breaks("fitted_attributes")
class ChangesParameter(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        super().fit(X)
        self.smoothing = float(repr(self.smoothing))
        return self


@breaks("fitted_attributes")
class NoUnderscore(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        super().fit(X)
        self.weights = self.weights_
        return self


@breaks("history_and_vocabulary")
class NumpyHistory(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        super().fit(X)
        self.history_ = [np.float64(x) for x in self.history_]
        return self


@breaks("history_and_vocabulary", spreads=True)
class CutsVocabulary(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(Corpus.from_sentences(checks_tokens(X), vocab_size=5))


def checks_tokens(X: Any) -> Any:
    return X.token_lists() if isinstance(X, Corpus) else X


@breaks("not_fitted")
class TransformsUnfitted(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        return super().transform(X) if "history_" in vars(self) else [np.zeros((len(s), 3)) for s in X]


@breaks("refit_starts_afresh")
class RemembersEarlierFit(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        seen = vars(self).get("n_tokens_", 0)
        super().fit(X)
        self.n_tokens_ += seen
        return self


@breaks("kinds_of_text")
class PeeksIntoGenerator(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        if hasattr(X, "__next__"):
            next(X, None)
        return super().fit(X)


@breaks("kinds_of_text", spreads=True)
class ChangesInput(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        if isinstance(X, list):
            X.append([])
        return super().fit(X)


# --- randomness -----------------------------------------------------------------------------------------


@breaks("deterministic", spreads=True)
class NonDeterministic(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        super().fit(X)
        self.weights_ = self.weights_ + 1e-9 * np.random.default_rng().random(3)
        return self


@breaks("random_state")
class UsesGlobalState(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        np.random.random()
        return super().fit(X)


@breaks("random_state")
class IgnoresSeed(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        check_random_state(self.random_state)
        with instead(self, random_state=0):
            return super().fit(X)


# --- use ------------------------------------------------------------------------------------------------


@breaks("transform")
class DoublePrecision(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        return [v.astype(np.float64) for v in super().transform(X)]


@breaks("transform")
class InfiniteForUnknown(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        vectors = super().transform(X)
        for v in vectors:
            v[v[:, 1] == np.float32(np.log(self.unigram_[0]))] = -np.inf
        return vectors


@breaks("transform")
class DropsEmpty(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        return [v for v in super().transform(X) if len(v)]


@breaks("transform")
class OneMatrix(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        return np.concatenate(super().transform(X) or [np.zeros((0, 3))])


@breaks("transform_of_corpus")
class TrustsForeignIds(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        self._check_fitted()
        if isinstance(X, Corpus):
            X = [self.vocabulary_.decode(ids) for ids in X.sentences()]
        return super().transform(X)


@breaks("score")
class WrongBase(DeletedInterpolation):
    def perplexity(self, X: Any) -> float:
        return float(2 ** -self.score(X))


@breaks("score")
class MeanOfSentences(DeletedInterpolation):
    def score(self, X: Any, y: Any = None) -> float:
        super().score(X)
        X = list(checks_tokens(X)) if not isinstance(X, list) else X
        return float(np.mean([super(MeanOfSentences, self).score([s]) for s in X if len(s)]))


@breaks("use_changes_nothing")
class RemembersUse(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        self.last_ = super().transform(X)
        return self.last_


# --- events ---------------------------------------------------------------------------------------------


@breaks("callbacks", "failed_fit_changes_nothing", "interrupt_keeps_last_iteration", "clone")
class NeverCalls(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        self._check_params()
        with instead(self, callbacks=None):
            return super().fit(X)


@breaks("callbacks")
class WrongObjective(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        self._check_params()
        wrapped = [lambda e, fn=fn: fn(e._replace(objective=-e.objective)) for fn in check_callbacks(self.callbacks)]
        with instead(self, callbacks=wrapped):
            return super().fit(X)


@breaks("failed_fit_changes_nothing")
class HalfFitted(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        self._check_params()
        self.n_tokens_ = 0
        return super().fit(X)


@breaks("interrupt_keeps_last_iteration")
class LosesWork(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedFitWarning)
            try:
                return super().fit(X)
            except InterruptedFitWarning:
                raise KeyboardInterrupt from None


@breaks("interrupt_keeps_last_iteration")
class InterruptedSilently(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InterruptedFitWarning)
            return super().fit(X)


# --- bad input, saving, scikit-learn --------------------------------------------------------------------


@breaks("bad_text")
class ReadsCharacters(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        if isinstance(X, list) and X and all(isinstance(s, str) for s in X):
            X = [list(s.replace(" ", "")) for s in X]
        return super().fit(X)


@breaks("bad_text")
class OtherErrorType(DeletedInterpolation):
    def transform(self, X: Any) -> Any:
        if X is None:
            raise TypeError("NoneType is not iterable")
        return super().transform(X)


@breaks("save_and_load", spreads=True)
class NotFinite(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        super().fit(X)
        self.bigram_[0, 0] = np.nan
        return self


@breaks("save_and_load", "never_unpickles")  # it cannot be loaded at all
class ForgetsScalar(DeletedInterpolation):
    def _restore(self, tensors: Mapping[str, Any], state: Any) -> None:
        super()._restore(tensors, state)
        self.n_tokens_ = 0


@breaks("save_and_load")
class ForgetsAttribute(DeletedInterpolation):
    def fit(self, X: Any, y: Any = None) -> Any:
        super().fit(X)
        self.entropy_ = -self.history_[-1]
        return self


@breaks("save_and_load")
class LosesPrecision(DeletedInterpolation):
    def _restore(self, tensors: Mapping[str, Any], state: Any) -> None:
        super()._restore(tensors, state)
        self.weights_ = self.weights_.astype(np.float32).astype(np.float64)


@breaks("tables_of_fewer_bits")
class IgnoresBits(DeletedInterpolation):
    def save(self, path: Any, overwrite: bool = False, *, bits: Any = None) -> None:
        super().save(path, overwrite)


@breaks("never_unpickles")
class Unpickles(DeletedInterpolation):
    def _restore(self, tensors: Mapping[str, Any], state: Any) -> None:
        super()._restore(pickle.loads(pickle.dumps(dict(tensors))), state)  # noqa: S301


@breaks("clone")
class ClonesFitted(DeletedInterpolation):
    def __sklearn_clone__(self) -> Any:
        return copy.deepcopy(self)


@breaks("pipeline")
class NoTarget(DeletedInterpolation):
    def fit(self, X: Any) -> Any:  # type: ignore[override]
        return super().fit(X)


@breaks("pipeline")
class NoTags(DeletedInterpolation):
    @property
    def __sklearn_tags__(self) -> Any:  # type: ignore[override]
        raise AttributeError("__sklearn_tags__")


@breaks("nonsense_parameters")
class TrustsItsCaller(DeletedInterpolation):
    """A foreign exception from a parameter that nobody looked at."""

    def _check_params(self) -> None:
        if isinstance(self.smoothing, str):
            raise TypeError("can only concatenate str")
        super()._check_params()


@breaks("nonsense_parameters")
class EchoesEverything(DeletedInterpolation):
    def _check_params(self) -> None:
        if isinstance(self.n_iter, str):
            error = InputError()
            error.args = (f"n_iter={self.n_iter} must be a number.",)  # around what keeps messages short
            raise error
        super()._check_params()


def failing_checks(case: Case) -> set[str]:
    out = set()
    for check, _ in checks.CHECKS:
        try:
            check(case)
        except AssertionError:
            out.add(check.__name__.removeprefix("check_"))
        except Exception as e:
            # what a broken model raises elsewhere is its own affair, and no pass
            out.add(f"{check.__name__.removeprefix('check_')} ({type(e).__name__})")
    return out


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.model.__name__)
def test_the_right_check_fails(broken: Broken) -> None:
    # copies: one of the models spoils its input
    case = Case(
        broken.model.__name__,
        small(broken.model, n_iter=4, random_state=0),
        copy.deepcopy(SENTENCES),
        copy.deepcopy(OTHER_SENTENCES),
    )
    failed = failing_checks(case)
    if broken.spreads:
        assert broken.fails <= failed
    else:
        assert failed == broken.fails


def test_every_check_was_seen_failing() -> None:
    names = {check.__name__.removeprefix("check_") for check, _ in checks.CHECKS}
    seen = frozenset().union(*(b.fails for b in BROKEN)) | {"damaged_files"}  # shown below: the loader's promise
    assert names == seen


REFERENCE = Case("reference", small(DeletedInterpolation, n_iter=4, random_state=0))


@pytest.mark.parametrize("problem", ["no hashes", "another error", "two sentences"])
def test_damage_check_fails_on_a_careless_loader(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    def careless(path: Path) -> Any:
        if problem == "no hashes":
            return load_model(path, verify=False)
        try:
            return load_model(path)
        except ValueError as e:
            if problem == "another error":
                raise json.JSONDecodeError("bad", "", 0) from None
            raise type(e)(f"{e}\nReally.") from None

    monkeypatch.setattr(checks, "load_model", careless)
    with pytest.raises(AssertionError, match=r"was accepted|raised JSONDecodeError|not one sentence"):
        checks.check_damaged_files(REFERENCE)
