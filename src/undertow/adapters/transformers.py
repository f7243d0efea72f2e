"""Steer a causal language model of Hugging Face's transformers by an HMM over its tokens; the extra `transformers`.

hmm = HMM(4096).distill(sampler, vocab_size=lm.config.vocab_size)
processor = ConstraintLogitsProcessor(hmm, Contains("4412") & Without("17"), length=32)
lm.generate(prompt, max_new_tokens=32, do_sample=True, logits_processor=[processor])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from undertow.constraints.kinds import Constraint
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, missing_extra, short
from undertow.questions.steering import Hypotheses, Steering, Worth

try:
    import torch
    from transformers import LogitsProcessor
except ImportError as e:
    raise missing_extra("Steering a language model needs PyTorch and transformers", "transformers") from e

if TYPE_CHECKING:
    from undertow.models.hmm.model import HMM


class ConstraintLogitsProcessor(LogitsProcessor):  # type: ignore[misc,unused-ignore]
    """Reweigh the next token by the exact probability, under an HMM, that a constraint will hold.

    With logits of the language model p, it gives log p(v | text) + log p_HMM(constraint | text, v), normalized, so that
    sums along a beam are log-probabilities. Tokens after which the constraint cannot hold get −inf. The state of a
    hypothesis is looked up by its tokens, not by its row: beams may be reordered, and key–value caches do not matter.

    Parameters
    ----------
    model
        A fitted HMM over the tokens of the language model, as `HMM.distill` gives it.
    constraint
        On the generated tokens, written with the HMM's words: for token ids their decimal strings.
    length
        Number of tokens to generate: `max_new_tokens` of `generate`.
    eos_token_id
        The token that ends a text early: the constraint must hold for what stands before it. If the language model has
        one, give it here, or `generate` may stop too soon.
    pad_token_id
        Prompts may be padded with it on the left.
    words
        The HMM's word of each token id; None for the ids as strings.

    Raises
    ------
    InputError
        If the constraint names unknown words, or no text of that length satisfies it.
    """

    def __init__(
        self,
        model: HMM,
        constraint: Constraint,
        *,
        length: int,
        eos_token_id: int | None = None,
        pad_token_id: int | None = None,
        words: Sequence[str] | None = None,
    ) -> None:
        model._check_fitted()
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
            raise InputError(f"length={short(length)} must be a whole number of tokens, at least 1.")
        vocabulary = model.vocabulary_
        self.words = None if words is None else vocabulary.encode(words).astype(np.int64)
        self._columns: slice | NDArray[np.int64] | None = None  # of the HMM's words that are those of the tokens
        self._vocabulary, self._pad = vocabulary, pad_token_id
        end_word = None
        if eos_token_id is not None:
            spelled = str(eos_token_id) if words is None else words[eos_token_id]
            if spelled not in vocabulary:
                raise InputError(
                    f"The token that ends a text, {short(spelled)}, is not in the HMM's vocabulary: let the texts it "
                    "was distilled from end with it, or leave out eos_token_id."
                )
            end_word = vocabulary.id(spelled)
        with one_blas_thread():
            self.steering = Steering(model.params_, vocabulary, constraint, int(length), end_word)
        self._known: dict[bytes, int] = {}  # the texts so far, and their rows in
        self._hypotheses: Hypotheses | None = None

    def reset(self) -> None:
        """Forget all hypotheses; needed only before a prompt that continues the last text by one token."""
        self._known, self._hypotheses = {}, None

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Normalized scores of the next token.

        Parameters
        ----------
        input_ids
            (n, tokens) prompts and what was generated.
        scores
            (n, V) logits, or log-probabilities of beams.

        Returns
        -------
        tensor (n, V)
            Log-probabilities under the language model and the constraint.

        Raises
        ------
        InputError
            If more tokens are asked for than `length`.
        """
        ids = np.ascontiguousarray(input_ids.detach().cpu().numpy())
        if self.words is None:
            self.words = self._vocabulary.encode(map(str, range(scores.shape[1]))).astype(np.int64)
        if self._columns is None:
            self._columns = _as_slice(self.words)
        if len(self.words) != scores.shape[1]:
            raise InputError(
                f"The language model has {scores.shape[1]:,} tokens and `words` names {len(self.words):,}: name each."
            )
        keys = [row.tobytes() for row in ids]
        with one_blas_thread():
            texts, values = self._worth(ids, keys)
        if len(texts):
            logs = torch.from_numpy(values[:, self._columns]).to(scores.device).log_().to(scores.dtype)
            if len(texts) == len(keys):  # no two rows are equal, and no constraint holds for good yet
                scores = logs.add_(scores)
            else:
                place = dict(zip(texts.tolist(), range(len(texts)), strict=True))
                rows = [(i, place[n]) for i, key in enumerate(keys) if (n := self._known[key]) in place]
                to, of = torch.tensor(rows, device=scores.device).T
                scores = scores.index_add(0, to, logs[of])
        return torch.log_softmax(scores, dim=-1)

    def _worth(self, ids: NDArray[Any], keys: list[bytes]) -> Worth:
        """What the next token is worth to each hypothesis; equal ones are computed once."""
        assert self.words is not None
        rows = {key: i for i, key in enumerate(keys)}
        distinct = list(rows.values())
        parents = [row[:-1].tobytes() for row in ids[distinct]]
        if self._hypotheses is not None and all(parent in self._known for parent in parents):
            before = self._hypotheses.take([self._known[parent] for parent in parents])
            if before.n_written + 1 >= self.steering.length:
                raise InputError(
                    f"More than length={self.steering.length} tokens are asked for: call generate with "
                    "max_new_tokens=length, or reset() the processor before a prompt that continues the last text."
                )
            now = self.steering.advance(before, self.words[ids[distinct, -1]])
        else:
            now = self.steering.start([self._prompt(ids[i]) for i in distinct])
        self._hypotheses, self._known = now, {key: n for n, key in enumerate(rows)}
        return self.steering.worth(now)

    def _prompt(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        assert self.words is not None
        if self._pad is not None:
            others = np.flatnonzero(ids != self._pad)
            ids = ids[others[0] :] if len(others) else ids[:0]
        return np.asarray(self.words[ids])


def _as_slice(words: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Consecutive words as a slice, which copies nothing."""
    first = int(words[0]) if len(words) else 0
    run = np.array_equal(words, np.arange(first, first + len(words)))
    return slice(first, first + len(words)) if run else words


__all__ = ["ConstraintLogitsProcessor"]
