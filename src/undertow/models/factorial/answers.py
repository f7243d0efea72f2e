"""What a fitted factorial HMM gives: states, codes, scores, words, text; and how it is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.errors import InputError, short
from undertow.kernels.chain.small import viterbi_logs
from undertow.kernels.factorial.viterbi import codes_to_states, joint_viterbi, states_to_codes
from undertow.kernels.factorial.words import FactorialParams, check_params
from undertow.models.base import Estimator, SavedState, TensorSpec, check_random_state, encode_sentences
from undertow.models.factorial.em import Inference, Machine
from undertow.models.factorial.queries import draw_words, filtered_joint, state_shares
from undertow.text.corpus import Corpus
from undertow.text.tokenizer import checked_sentences

VIEWS = ("posterior", "viterbi")
EXACT_FIT = 10_000  # joint states up to which `inference="auto"` is exact: there it costs less than variational sweeps
EXACT_SCORE = 100_000  # joint states up to which text is scored exactly, however the model was fitted
BATCH_TOKENS = 1 << 16  # of a query: what is held at once

Text = Corpus | Iterable[Sequence[str]]


class WordWeight(NamedTuple):
    """A word of a state, by how much more often it comes in that state than elsewhere."""

    word: str
    lift: float  # log p(state | word) / p(state), over the training text
    tokens: float  # expected tokens of the word in the state


class FactorialAnswers(Estimator):
    """The half of `FactorialHMM` that asks nothing but the parameters; fitting is the other."""

    n_layers: int
    n_states: int
    inference: str
    bound: str
    max_sweeps: int
    tol: float
    params_: FactorialParams

    def _inference(self) -> Inference:
        exact = self.inference == "exact" or (self.inference == "auto" and self.n_states**self.n_layers <= EXACT_FIT)
        return Inference(bool(exact), self.bound, int(self.max_sweeps), float(self.tol))

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
        return {
            "n_layers": p.n_layers,
            "n_states": p.n_states,
            "tokenizer": self.tokenizer_,
            "validation_history": self.validation_history_,
        }

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        for name in ("n_layers", "n_states"):
            if state.fitted[name] != state.params[name]:
                raise InputError(f"it was fitted with {name}={short(state.fitted[name])}, not {state.params[name]}.")
        check_params(FactorialParams(**{name: tensors[name] for name in FactorialParams._fields}))

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self.params_ = FactorialParams(**{name: tensors[name] for name in FactorialParams._fields})
        self.tokenizer_ = state.fitted["tokenizer"]
        self.validation_history_ = [float(x) for x in state.fitted["validation_history"]]
        self._prepare()
