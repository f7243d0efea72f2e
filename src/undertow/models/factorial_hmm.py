"""The factorial hidden Markov model of text: every token gets M states at once, one from each of M chains.

The chains move independently; together they choose each word (`kernels.factorial.FactorialParams`). While the K^M joint
states are few, inference over them is exact and never looks at the rest of the vocabulary; beyond, it is variational.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine, count_workers, map_reduce, open_engine
from undertow.errors import InputError
from undertow.kernels.discrete_chain_logs import viterbi_logs
from undertow.kernels.factorial import FactorialParams, FactorialStats
from undertow.kernels.factorial_variational import BOUNDS
from undertow.kernels.factorial_viterbi import codes_to_states, joint_viterbi, states_to_codes
from undertow.models.base import (
    Estimator,
    InterruptedFitWarning,
    SavedState,
    TensorSpec,
    TrainingEvent,
    as_corpus,
    check_callbacks,
    check_random_state,
    encode_sentences,
)
from undertow.models.factorial_em import Inference, Machine, Shard, m_step
from undertow.models.factorial_init import cluster_start, random_start
from undertow.models.factorial_queries import draw_words, filtered_joint, state_shares
from undertow.text.corpus import Corpus
from undertow.text.tokenizer import checked_sentences

VIEWS = ("posterior", "viterbi")
EXACT_FIT = 10_000  # joint states up to which `inference="auto"` is exact: there it costs less than variational sweeps
EXACT_SCORE = 100_000  # joint states up to which text is scored exactly, however the model was fitted
MOST_JOINT = 4_000_000  # joint states of which a table can be held
SHARD_TOKENS = 8192
BATCH_TOKENS = 1 << 16  # of a query: what is held at once

Text = Corpus | Iterable[Sequence[str]]


class WordWeight(NamedTuple):
    """A word of a state, by how much more often it comes in that state than elsewhere."""

    word: str
    lift: float  # log p(state | word) / p(state), over the training text
    tokens: float  # expected tokens of the word in the state


class FactorialHMM(Estimator):
    """M chains of K states each, fitted by EM.

    n_layers, n_states: M and K. inference: "exact" over the K^M joint states, "variational", or "auto": exact up to
    10,000 of them. bound: what variational inference climbs, "tilted", "jensen" (the paper's) or "mean_field", the
    tightest and cheapest, which needs a table of K^M numbers. n_iter: passes over the text. batch_size: tokens
    between two M-steps; a text that is longer is learnt online, each batch counting (t + 2)^−½ when it comes.
    max_sweeps, tol: variational sweeps end when a sentence's bound rises by less than tol a token. smoothing:
    pseudo-counts a word. m_passes: of the M-step over the layers; update: "closed", or "lbfgs" for comparison. init:
    "clusters" (another one for each layer) or "random".
    """

    kind = "fhmm"

    def __init__(
        self,
        n_layers: int = 5,
        *,
        n_states: int = 10,
        bound: str = "tilted",
        inference: str = "auto",
        n_iter: int = 10,
        batch_size: int = 100_000,
        max_sweeps: int = 10,
        tol: float = 1e-3,
        smoothing: float = 0.1,
        m_passes: int = 2,
        update: str = "closed",
        init: str = "clusters",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.n_layers = n_layers
        self.n_states = n_states
        self.bound = bound
        self.inference = inference
        self.n_iter = n_iter
        self.batch_size = batch_size
        self.max_sweeps = max_sweeps
        self.tol = tol
        self.smoothing = smoothing
        self.m_passes = m_passes
        self.update = update
        self.init = init
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _check_params(self) -> None:
        super()._check_params()
        least = {
            "n_layers": 1,
            "n_states": 1,
            "n_iter": 1,
            "batch_size": 1,
            "max_sweeps": 1,
            "m_passes": 1,
            "verbose": 0,
        }
        for name, low in least.items():
            value = getattr(self, name)
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < low:
                raise InputError(f"FactorialHMM: {name}={value!r} must be a whole number, at least {low}.")
        choices = {
            "bound": BOUNDS,
            "inference": ("auto", "exact", "variational"),
            "update": ("closed", "lbfgs"),
            "init": ("clusters", "random"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"FactorialHMM: {name}={getattr(self, name)!r} must be one of {', '.join(allowed)}.")
        for name in ("tol", "smoothing"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value >= 0:
                raise InputError(f"FactorialHMM: {name}={value!r} must be a number, at least 0.")
        count_workers(self.n_jobs)
        how = self._inference()
        n_joint = self.n_states**self.n_layers
        if how.tabulates and n_joint > MOST_JOINT:
            what = "inference='exact'" if how.exact else "bound='mean_field'"
            raise InputError(
                f"FactorialHMM: {what} needs a table of {self.n_states}^{self.n_layers} joint states, more than "
                f"{MOST_JOINT:,}: take fewer layers or states, or inference='variational' with bound='tilted'."
            )
        if self.update == "lbfgs" and not how.tabulates:
            raise InputError(
                f"FactorialHMM: update='lbfgs' needs the visits of joint states, which bound={self.bound!r} does not "
                "count: take update='closed', bound='mean_field' or inference='exact'."
            )

    def _inference(self) -> Inference:
        exact = self.inference == "exact" or (self.inference == "auto" and self.n_states**self.n_layers <= EXACT_FIT)
        return Inference(bool(exact), self.bound, int(self.max_sweeps), float(self.tol))

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(self, X: Text, y: Any = None, *, engine: Engine | None = None) -> Self:
        """Fit to a Corpus or an iterable of token lists; `engine` takes the E-steps elsewhere, with the same bits."""
        self._check_params()
        corpus = as_corpus(X)
        rng = check_random_state(self.random_state)
        M, K = int(self.n_layers), int(self.n_states)
        if self.init == "clusters":
            start = cluster_start(corpus, M, K, rng, self.n_jobs)
        else:
            start = random_start(corpus, M, K, rng)
        params, history = self._em(corpus, start, rng, engine)
        self._finish(params, history, corpus)
        return self

    def partial_fit(self, X: Text, y: Any = None, *, engine: Engine | None = None) -> Self:
        """`n_iter` more passes, over this text, from the parameters at hand; words that are not known stay unknown."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, engine=engine)
        self._check_params()
        if self.params_.theta.shape[1:] != (self.n_layers, self.n_states):
            raise InputError(
                f"This model was fitted with {self.params_.n_layers} layers of {self.params_.n_states} states: set "
                "n_layers and n_states back, or call fit."
            )
        corpus = X if isinstance(X, Corpus) else Corpus.from_sentences(X, vocabulary=self.vocabulary_)
        if corpus.vocabulary.words != self.vocabulary_.words:
            raise InputError("The corpus has another vocabulary than the model: build it with the model's vocabulary_.")
        corpus = as_corpus(corpus)
        params, history = self._em(corpus, self.params_, check_random_state(self.random_state), engine)
        self._finish(params, self.history_ + history, corpus)
        return self

    def _em(
        self, corpus: Corpus, params: FactorialParams, rng: np.random.Generator, engine: Engine | None
    ) -> tuple[FactorialParams, list[float]]:
        callbacks = check_callbacks(self.callbacks)
        began = time.perf_counter()
        history: list[float] = []
        latest = params
        shards = corpus.shards(SHARD_TOKENS)
        if corpus.n_tokens > self.batch_size:
            rng.shuffle(shards)  # neighbours in a text are alike; a batch should not be
        batches = _batches(shards, corpus, int(self.batch_size))
        kept: FactorialStats | None = None
        n_steps = 0
        own = open_engine("threads", self.n_jobs) if engine is None else None
        try:
            for iteration in range(1, self.n_iter + 1):
                total = 0.0
                for batch in batches:
                    machine = Machine(params, self._inference())
                    stats = map_reduce(machine, _cut(corpus, batch), FactorialStats.plus, engine=engine or own)
                    total += stats.log_likelihood
                    kept = stats if len(batches) == 1 else _averaged(kept, stats, corpus.n_tokens, n_steps)
                    n_steps += 1
                    params = m_step(
                        kept, params, smoothing=float(self.smoothing), n_passes=int(self.m_passes), update=self.update
                    )
                latest = params
                history.append(total / corpus.n_tokens)
                event = TrainingEvent(iteration, int(self.n_iter), history[-1], time.perf_counter() - began)
                if self.verbose:
                    print(
                        f"iteration {iteration}: {event.objective:.5f} a token, {event.seconds:.1f} s", file=sys.stderr
                    )
                for callback in callbacks:
                    callback(event)
        except KeyboardInterrupt:
            if not history:
                raise
            warnings.warn(
                f"Interrupted after {len(history)} iterations; the last finished one is kept.",
                InterruptedFitWarning,
                stacklevel=3,
            )
        finally:
            if own is not None:
                own.close()
        return latest, history

    def _finish(self, params: FactorialParams, history: list[float], corpus: Corpus) -> None:
        """Set the fitted attributes, all at once."""
        self.params_ = params
        self.vocabulary_ = corpus.vocabulary
        self.tokenizer_ = corpus.manifest.get("tokenizer")
        self.history_ = history
        self._prepare()

    def _prepare(self) -> None:
        p = self.params_
        how = Inference(p.n_joint <= EXACT_SCORE, self.bound, int(self.max_sweeps), float(self.tol))
        self._scorer = Machine(p, how)
        self._machine = Machine(p, self._inference(), self._scorer.log_norm)

    # --- what it gives ----------------------------------------------------------------------------------

    @property
    def scores_exactly(self) -> bool:
        """Whether `score` is the log-likelihood itself; otherwise it is the bound on it."""
        self._check_fitted()
        return self._scorer.inference.exact

    @property
    def theta_(self) -> npt.NDArray[np.float64]:
        return self.params_.theta

    def transform(self, X: Text, view: str = "posterior") -> list[npt.NDArray[np.float32]]:
        """One float32 array a sentence: "posterior" is (n_tokens, M·K), the probabilities of all layers' states side by
        side; "viterbi" is (n_tokens, M·K) of 0 and 1, the states of the likeliest path (`decode`).

        A word outside the vocabulary is a missing observation and gets its states from the context; where the
        vocabulary has classes of unknown words it is observed as its class.
        """
        self._check_fitted()
        if view not in VIEWS:
            raise InputError(f"view={view!r} must be one of {', '.join(VIEWS)}.")
        M, K = self.params_.n_layers, self.params_.n_states
        if view == "viterbi":
            return [np.eye(K, dtype=np.float32)[s].reshape(len(s), M * K) for s in self.decode(X)]
        out: list[npt.NDArray[np.float32]] = []
        for ids, offsets in self._pieces(X):
            gamma = self._posterior(ids, offsets).reshape(len(ids), M * K)
            out.extend(gamma[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        return out

    def posterior(self, X: Text) -> list[npt.NDArray[np.float32]]:
        """(n_tokens, M, K) probabilities of the layers' states, one array a sentence."""
        M, K = self.params_.n_layers, self.params_.n_states
        return [v.reshape(len(v), M, K) for v in self.transform(X)]

    def _posterior(self, ids: Any, offsets: Any) -> npt.NDArray[np.float32]:
        missing = ids == self.vocabulary_.unknown_id
        if self._machine.inference.exact:
            return np.asarray(self._machine.exact(ids, offsets, missing).gamma, dtype=np.float32)
        chains = self._machine.chains(ids, offsets, missing)
        return np.ascontiguousarray(chains.gamma.transpose(1, 0, 2), dtype=np.float32)

    def decode(self, X: Text, method: str = "viterbi") -> list[npt.NDArray[np.int32]]:
        """(n_tokens, M) states, one array a sentence. Unknown words are missing observations.

        method: "viterbi" is, with exact inference, the likeliest joint path, and with variational inference the
        likeliest path of each layer's own chain; "posterior" takes each token's likeliest state in each layer.
        """
        self._check_fitted()
        if method not in ("viterbi", "posterior"):
            raise InputError(f"method={method!r} must be 'viterbi' or 'posterior'.")
        if method == "posterior":
            return [v.argmax(axis=2).astype(np.int32) for v in self.posterior(X)]
        out: list[npt.NDArray[np.int32]] = []
        for ids, offsets in self._pieces(X):
            states = self._paths(ids, offsets)
            out.extend(states[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        return out

    def _paths(self, ids: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        p, machine = self.params_, self._machine
        missing = ids == self.vocabulary_.unknown_id
        if machine.inference.exact:
            assert machine.log_norm is not None
            codes, _ = joint_viterbi(ids, offsets, missing, p, machine.emission, machine.log_norm)
            return codes_to_states(codes, p.n_layers, p.n_states)
        scores = machine.chains(ids, offsets, missing).scores
        paths = [viterbi_logs(scores[m], offsets, p.initial[m], p.transition[m])[0] for m in range(p.n_layers)]
        return np.stack(paths, axis=1).astype(np.int32)

    def joint_codes(self, X: Text) -> list[npt.NDArray[np.int64]]:
        """(n_tokens,) one number for all layers' decoded states, the last layer's running fastest."""
        return [states_to_codes(s, self.params_.n_states) for s in self.decode(X)]

    def log_likelihoods(self, X: Text) -> npt.NDArray[np.float64]:
        """(n_sentences,) log-probability of each sentence, exact up to 100,000 joint states, beyond that the bound.

        Unknown words are all one word here, not missing.
        """
        self._check_fitted()
        if not self._scorer.inference.exact:
            return self.bounds(X)
        parts = [self._scorer.exact(ids, at, backward=False).log_likelihood for ids, at in self._pieces(X)]
        return np.concatenate(parts) if parts else np.empty(0)

    def bounds(self, X: Text) -> npt.NDArray[np.float64]:
        """(n_sentences,) variational lower bound on each sentence's log-probability, by the `bound` of the model."""
        self._check_fitted()
        machine = self._machine
        if machine.inference.exact:
            machine = Machine(self.params_, machine.inference._replace(exact=False), machine.log_norm)
        parts = [machine.chains(ids, offsets).bound for ids, offsets in self._pieces(X)]
        return np.concatenate(parts) if parts else np.empty(0)

    def score(self, X: Text, y: Any = None) -> float:
        """Mean log-probability of a token (or the bound on it: see `scores_exactly`)."""
        return self._mean(X, self.log_likelihoods)

    def bound_per_token(self, X: Text) -> float:
        """Mean of the variational lower bound over the tokens, whatever inference the model uses."""
        return self._mean(X, self.bounds)

    def _mean(self, X: Text, values: Callable[[Text], npt.NDArray[np.float64]]) -> float:
        self._check_fitted()
        sentences = X if isinstance(X, Corpus) else list(checked_sentences(X))
        n_tokens = sentences.n_tokens if isinstance(sentences, Corpus) else sum(map(len, sentences))
        if n_tokens == 0:
            raise InputError("There is no token to score: give at least one.")
        return float(np.sum(values(sentences)) / n_tokens)

    def perplexity(self, X: Text) -> float:
        return float(np.exp(-self.score(X)))

    def _pieces(self, X: Text) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
        """Flat ids and offsets of runs of sentences; long texts in several."""
        sentences = encode_sentences(self.vocabulary_, X)
        lengths = np.array([len(s) for s in sentences], dtype=np.int64)
        ends = np.cumsum(lengths)
        first = 0
        while first < len(sentences):
            begun = ends[first] - lengths[first]
            stop = max(first + 1, int(np.searchsorted(ends, begun + BATCH_TOKENS, side="right")))
            offsets = np.concatenate(([0], np.cumsum(lengths[first:stop]))).astype(np.int64)
            yield np.concatenate(sentences[first:stop]), offsets
            first = stop

    def top_words(self, layer: int, state: int, n: int = 10, *, min_count: int = 5) -> list[WordWeight]:
        """The words most tied to a state of a layer, among those seen at least min_count times, by their lift."""
        self._check_fitted()
        p, words = self.params_, self.vocabulary_
        for name, value, size in (("layer", layer, p.n_layers), ("state", state, p.n_states)):
            if not 0 <= value < size:
                raise InputError(f"There is no {name} {value}: give 0 to {size - 1}.")
        share = state_shares(p.theta[:, layer], words.counts)
        tokens = words.counts * share[:, state]
        usual = tokens.sum() / words.counts.sum()
        lift = np.log(np.maximum(share[:, state], 1e-300)) - np.log(max(usual, 1e-300))
        allowed = words.counts >= min(min_count, int(words.counts.max()))
        allowed[: words.n_special] = False
        order = np.argsort(np.where(allowed, -lift, np.inf), kind="stable")[: min(n, int(allowed.sum()))]
        return [WordWeight(words.words[i], float(lift[i]), float(tokens[i])) for i in order]

    def sample(self, n_tokens: int = 50, *, random_state: Any = 0, prefix: Sequence[str] = ()) -> list[str]:
        """Tokens drawn from the model, going on from `prefix`; after the boundary word a sentence begins anew."""
        self._check_fitted()
        if isinstance(n_tokens, bool) or not isinstance(n_tokens, int | np.integer) or n_tokens < 0:
            raise InputError(f"n_tokens={n_tokens!r} must be a whole number, at least 0.")
        rng = check_random_state(random_state)
        [before] = encode_sentences(self.vocabulary_, [prefix])
        states = None
        if len(before) and before[-1] != self.vocabulary_.boundary_id:
            states = self._draw_states(before, rng)
        drawn = draw_words(self.params_, int(n_tokens), states, self.vocabulary_.boundary_id, rng)
        return [self.vocabulary_.words[i] for i in drawn]

    def _draw_states(self, ids: npt.NDArray[np.uint32], rng: np.random.Generator) -> list[int]:
        """States of the last token given all: jointly where joint states are tabulated, else layer by layer."""
        p, scorer = self.params_, self._scorer
        missing = ids == self.vocabulary_.unknown_id
        if scorer.inference.exact:
            assert scorer.log_norm is not None
            joint = filtered_joint(ids, missing, p, scorer.emission, scorer.log_norm)
            code = np.array([rng.choice(len(joint), p=joint)])
            return [int(s) for s in codes_to_states(code, p.n_layers, p.n_states)[0]]
        gamma = self._posterior(ids, np.array([0, len(ids)]))[-1].astype(np.float64)
        return [int(rng.choice(p.n_states, p=g / g.sum())) for g in gamma]

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        M, K, V = state.fitted["n_layers"], state.fitted["n_states"], state.n_words
        assert V is not None
        return {
            "initial": TensorSpec("float64", (M, K)),
            "theta": TensorSpec("float64", (V, M, K)),
            "transition": TensorSpec("float64", (M, K, K)),
        }

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return self.params_._asdict()

    def _fitted_scalars(self) -> dict[str, Any]:
        p = self.params_
        return {"n_layers": p.n_layers, "n_states": p.n_states, "tokenizer": self.tokenizer_}

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self.params_ = FactorialParams(**{name: tensors[name] for name in FactorialParams._fields})
        self.tokenizer_ = state.fitted["tokenizer"]
        self._prepare()


def _batches(shards: list[tuple[int, int]], corpus: Corpus, batch_size: int) -> list[list[tuple[int, int]]]:
    """Shards put together until a batch has batch_size tokens; the rest of the text joins the last one."""
    batches: list[list[tuple[int, int]]] = [[]]
    n = 0
    for first, stop in shards:
        if n >= batch_size:
            batches.append([])
            n = 0
        batches[-1].append((first, stop))
        n += int(corpus.offsets[stop] - corpus.offsets[first])
    if len(batches) > 1 and n < batch_size / 2:
        last = batches.pop()
        batches[-1] += last
    return batches


def _cut(corpus: Corpus, batch: list[tuple[int, int]]) -> Iterator[Shard]:
    for first, stop in batch:
        offsets = np.asarray(corpus.offsets[first : stop + 1], dtype=np.int64)
        yield np.asarray(corpus.ids[offsets[0] : offsets[-1]]), offsets - offsets[0]


def _averaged(kept: FactorialStats | None, stats: FactorialStats, n_tokens: int, step: int) -> FactorialStats:
    """The counts of the whole text as the batches so far tell them, the newest one counting (t + 2)^−½."""
    new = stats.scaled(n_tokens / stats.n_tokens)
    if kept is None:
        return new
    rate = (step + 2) ** -0.5
    return kept.scaled(1 - rate).plus(new.scaled(rate))


__all__ = ["FactorialHMM", "WordWeight"]
