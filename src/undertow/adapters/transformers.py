"""Steer a causal language model of Hugging Face's transformers by an HMM over its tokens; the extra `transformers`.

hmm = HMM(4096).distill(sampler, vocab_size=lm.config.vocab_size)
processor = ConstraintLogitsProcessor(hmm, Contains("4412") & Without("17"), length=32)
lm.generate(prompt, max_new_tokens=32, do_sample=True, logits_processor=[processor])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from undertow.constraints.kinds import Constraint
from undertow.errors import InputError, missing_extra, short
from undertow.questions.steering import Hypotheses, Steering, Writing

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
        self._vocabulary, self._pad = vocabulary, pad_token_id
        self._named = words is not None
        end_word = None
        if eos_token_id is not None:
            spelled = str(eos_token_id) if words is None else words[eos_token_id]
            if spelled not in vocabulary:
                raise InputError(
                    f"The token that ends a text, {short(spelled)}, is not in the HMM's vocabulary: let the texts it "
                    "was distilled from end with it, or leave out eos_token_id."
                )
            end_word = vocabulary.id(spelled)
        self.steering = Steering(model.params_, vocabulary, constraint, int(length), end_word)
        self._name_tokens(map(str, range(len(vocabulary) - 1)) if words is None else words)
        self._read: NDArray[Any] | None = None  # (n, tokens) the texts so far, and what is known of each:
        self._hypotheses: Hypotheses | None = None
        self._writing: Writing | None = None  # or all of that in one place, as long as no rows are reordered
        vars(self)["__call__"] = _ReadyCall(self)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this copy alone, as the addresses of its arrays."""
        self._put_down()
        return {name: value for name, value in vars(self).items() if name != "__call__"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        vars(self)["__call__"] = _ReadyCall(self)

    def reset(self) -> None:
        """Forget all hypotheses; needed only before a prompt that continues the last text by one token."""
        self._read = self._hypotheses = self._writing = None

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
            If more tokens are asked for than `length`, or no token is possible.
        """
        writing = self._writing
        if writing is not None and writing.left and _as_they_are(input_ids, scores, writing):
            out = torch.empty_like(scores, requires_grad=False)
            dead = writing.follow(input_ids.data_ptr(), scores.data_ptr(), out.data_ptr())
            if dead > -2:
                return out if dead < 0 else _nothing_possible(dead)
        self._put_down()
        return self._read_anew(input_ids, scores)

    def _read_anew(self, input_ids: Any, scores: Any) -> Any:
        """The same, for any texts: prompts, and hypotheses that were reordered."""
        n_tokens = scores.shape[1]
        if len(self._words) != n_tokens:
            if self._named:
                raise InputError(
                    f"The language model has {n_tokens:,} tokens and `words` names {len(self._words):,}: name each."
                )
            self._name_tokens(map(str, range(n_tokens)))
        ids, given = input_ids.cpu().numpy(), scores.detach().to("cpu", torch.float32).contiguous()
        if ids.size and not 0 <= ids.min() <= ids.max() < n_tokens:
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            raise InputError(
                f"A text has the token {wrong}, and the language model scores the tokens 0 to {n_tokens - 1:,}: give "
                "the prompts of its own tokenizer."
            )
        out = torch.empty_like(given)
        dead = self._follow(ids, given.numpy(), out.numpy())
        return out.to(scores.device, scores.dtype) if dead < 0 else _nothing_possible(dead)

    def _put_down(self) -> None:
        """Keep what is known of the texts as hypotheses, which may be reordered."""
        if self._writing is not None:
            self._hypotheses, self._read = self._writing.hypotheses(), self._writing.read()
            self._writing = None

    def _name_tokens(self, words: Iterable[str]) -> None:
        """Say which word of the HMM each token is."""
        self._words = self._vocabulary.encode(words).astype(np.int64)
        self._slots = self.steering.tiles.slots[self._words]

    def _follow(self, ids: NDArray[Any], scores: NDArray[Any], out: NDArray[Any]) -> int:
        """Reweigh scores by what is known of each text without its last token, or of its prompt; see `reweigh`."""
        steering, before = self.steering, self._parents(ids[:, :-1])
        if before is None:
            return self._start(ids, scores, out)
        if before.n_written + 1 >= steering.length:
            raise InputError(
                f"More than length={steering.length} tokens are asked for: call generate with "
                "max_new_tokens=length, or reset() the processor before a prompt that continues the last text."
            )
        now, dead = steering.step(before, self._words[ids[:, -1]], scores, self._slots, out)
        self._hypotheses, self._read = now, ids.copy()
        return dead

    def _start(self, ids: NDArray[Any], scores: NDArray[Any], out: NDArray[Any]) -> int:
        """Reweigh scores after prompts."""
        writing = self.steering.writing(self._words, self._slots, *ids.shape)
        if writing is not None:
            ids = np.ascontiguousarray(ids, dtype=np.int64)
            pad = -1 if self._pad is None else self._pad
            dead = writing.begin(pad, ids.ctypes.data, scores.ctypes.data, out.ctypes.data)
            if dead > -2:
                self._writing = writing
                return dead
        now = self._started(ids)
        self._hypotheses, self._read = now, ids.copy()
        return self.steering.reweigh(now, scores, self._slots, out)

    def _parents(self, texts: NDArray[Any]) -> Hypotheses | None:
        """What is known of these texts; None unless all of them have been read."""
        read, known = self._read, self._hypotheses
        if read is None or known is None or read.shape[1] != texts.shape[1]:
            return None
        if read.shape == texts.shape and (read == texts).all():  # all but beams, which are reordered
            return known
        row_of = {row.tobytes(): i for i, row in enumerate(read)}
        rows = [row_of.get(row.tobytes(), -1) for row in texts]
        return None if -1 in rows else known.take(rows)

    def _started(self, ids: NDArray[Any]) -> Hypotheses:
        """What is known of prompts; equal ones are read once."""
        rows = {row.tobytes(): i for i, row in enumerate(ids)}
        place = {text: k for k, text in enumerate(rows)}
        started = self.steering.start([self._prompt(ids[i]) for i in rows.values()])
        return started if len(rows) == len(ids) else started.take([place[row.tobytes()] for row in ids])

    def _prompt(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        if self._pad is not None:
            others = np.flatnonzero(ids != self._pad)
            ids = ids[others[0] :] if len(others) else ids[:0]
        return np.asarray(self._words[ids])


class _ReadyCall:
    """`processor.__call__` as Hugging Face looks at it before each token: with a signature that is ready."""

    __slots__ = ("__signature__", "_processor")

    def __init__(self, processor: ConstraintLogitsProcessor) -> None:
        self.__signature__ = SIGNATURE
        self._processor = ref(processor)  # a processor holds large tables, and should go when its name goes

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        processor = self._processor()
        assert processor is not None
        return processor(input_ids, scores)


SIGNATURE = signature(_ReadyCall.__call__).replace(
    parameters=list(signature(_ReadyCall.__call__).parameters.values())[1:]
)


def _as_they_are(input_ids: Any, scores: Any, writing: Writing) -> bool:
    """Whether these may be the texts with one more token each, and compiled code can read them where they are."""
    return (
        input_ids.shape == (writing.n, writing.n_ids + 1)
        and scores.shape == (writing.n, writing.n_tokens)
        and scores.dtype is torch.float32
        and scores.is_cpu
        and scores.is_contiguous()
        and input_ids.dtype is torch.int64
        and input_ids.is_cpu
        and input_ids.is_contiguous()
    )


def _nothing_possible(text: int) -> NoReturn:
    raise InputError(
        f"Text {text + 1}: the language model gives probability zero to every token that the "
        "constraint allows: remove what forbids tokens before this processor, such as bad_words_ids."
    )


__all__ = ["ConstraintLogitsProcessor"]
