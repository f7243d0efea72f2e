"""Words that mean the same in every fit: engine, validation, callbacks, checkpoint, verbose."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

from contract.cases import CASES, SENTENCES, Case
from contract.checks import saved_bytes
from contract.test_partial_fit import keywords, more
from undertow import HMM, LDS, DynamicEmbedding, FactorialHMM, Grammar
from undertow.engine import Serial
from undertow.errors import InputError
from undertow.models.base import Estimator
from undertow.results import WordClusters
from undertow.results.tagging import CRFTagger, LocalTagger, Tagger

TAGGERS: list[type[Estimator]] = [CRFTagger, LocalTagger, Tagger]
ESTIMATORS: list[type[Estimator]] = [LDS, HMM, FactorialHMM, Grammar, DynamicEmbedding, WordClusters, *TAGGERS]
MODELS = [case for case in CASES if case.name != "deleted-interpolation"]


class Counting(Serial):
    """An engine that knows whether it was used, and whether it was closed."""

    used = 0
    closed = False

    def imap(self, *a: Any, **k: Any) -> Any:
        self.used += 1
        return super().imap(*a, **k)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda c: c.__name__)
def test_every_fit_has_the_same_keywords(estimator: type[Estimator]) -> None:
    for name in ("fit", "partial_fit"):
        if not hasattr(estimator, name):
            continue
        method = inspect.signature(getattr(estimator, name)).parameters
        assert method["engine"].kind is inspect.Parameter.KEYWORD_ONLY and method["engine"].default is None
        has_share = "validation" in estimator.param_defaults()
        assert ("validation" in method) == has_share, "validation text goes with the parameter of its share"
    assert "callbacks" in estimator.param_defaults()
    assert "checkpoint" in inspect.signature(estimator.fit).parameters  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("case", MODELS, ids=lambda c: c.name)
def test_an_engine_is_used_or_refused(case: Case, method: str) -> None:
    if not hasattr(case.make(), method):
        pytest.skip("it has no partial_fit")

    def fitted(**options: Any) -> Any:
        model = case.make() if method == "fit" else case.fitted()
        getattr(model, method)(case.data if method == "fit" else more(case), **options)
        return model

    engine = Counting()
    try:
        model = fitted(engine=engine)
    except InputError as e:
        assert "leave out engine" in str(e)
        return
    assert engine.used, "the engine was ignored"
    assert not engine.closed, "whoever opened it closes it"
    assert saved_bytes(model) == saved_bytes(fitted())


@pytest.mark.parametrize("tagger", TAGGERS)
def test_a_tagger_refuses_an_engine(tagger: Any) -> None:
    with pytest.raises(InputError, match="leave out engine"):
        tagger().fit(SENTENCES, [["X"] * len(s) for s in SENTENCES], engine=Serial())


def test_a_neural_hmm_refuses_an_engine() -> None:
    with pytest.raises(InputError, match="leave out engine"):
        HMM(3, parameterization="neural", n_iter=1).fit(SENTENCES, engine=Serial())


@pytest.mark.parametrize("case", [c for c in MODELS if "verbose" in c.make().get_params()], ids=lambda c: c.name)
def test_verbose_goes_to_the_logger_alone(
    case: Case, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="undertow"):
        model = case.fitted(verbose=True)
        model.partial_fit(more(case), **keywords(model))
    lines = [r.getMessage() for r in caplog.records if r.name == "undertow"]
    assert sum(" of " in line and "objective" in line for line in lines) >= len(case.fitted().history_)
    assert capfd.readouterr() == ("", "")
