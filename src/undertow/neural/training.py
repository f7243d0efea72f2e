"""Training of a language model by Mikolov's schedule (2012): a constant rate until validation stalls, then halving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from undertow.errors import InputError
from undertow.neural.rnn_lm import RNNLM

CHUNK_NUMBERS = 1 << 19  # tokens × words whose scores are held at once: 2 MB of float32


class _Chunk(NamedTuple):
    """Unnormalized probabilities of the next word for some tokens."""

    at: slice
    exps: Tensor  # (n, V) exp(score − the token's largest); overwritten by the next chunk
    weight: Tensor  # (n, 1) their sums
    loss: Tensor  # summed over the tokens


def _chunks(h: Tensor, U: Tensor, c: Tensor, y: Tensor) -> Iterator[_Chunk]:
    """Cross-entropy of softmax(U h + c) with the words y, a few tokens at a time so that their scores stay in cache."""
    step = max(1, CHUNK_NUMBERS // len(U))
    space = h.new_empty((step, len(U)))
    for a in range(0, len(y), step):
        at = slice(a, min(a + step, len(y)))
        scores = torch.addmm(c, h[at], U.t(), out=space[: at.stop - a])
        scores -= scores.amax(dim=1, keepdim=True)
        right = scores.gather(1, y[at, None])
        weight = scores.exp_().sum(dim=1, keepdim=True)
        yield _Chunk(at, scores, weight, (weight.log() - right).sum())


class _NextWordLoss(torch.autograd.Function):
    """Mean cross-entropy of softmax(U h + c), with its gradients computed in the forward pass.

    Equal to `cross_entropy(linear(h, U, c), y)`, but each score is turned into its gradient in place, where the general
    form passes over all scores several times, in new memory.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, U: Tensor, c: Tensor, y: Tensor) -> Tensor:
        n = len(y)
        grad_h, grad_U, grad_c = torch.empty_like(h), torch.zeros_like(U), torch.zeros_like(c)
        total = h.new_zeros(())
        for at, exps, weight, loss in _chunks(h, U, c, y):
            total += loss
            grad = exps.mul_(1 / (n * weight))  # p / n, and less 1 / n at the right word
            grad.scatter_add_(1, y[at, None], grad.new_full((len(grad), 1), -1 / n))
            torch.mm(grad, U, out=grad_h[at])
            grad_U.addmm_(grad.t(), h[at])
            grad_c += grad.sum(dim=0)
        ctx.save_for_backward(grad_h, grad_U, grad_c)
        return total / n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        grad_h, grad_U, grad_c = ctx.saved_tensors
        return grad_h * grads[0], grad_U * grads[0], grad_c * grads[0], None


def next_word_loss(model: RNNLM, states: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-probability of the words (B, T) after states (B, T, h)."""
    out = model.output
    given = (states.flatten(0, 1), out.weight, out.bias, targets.flatten())
    loss: Tensor = _NextWordLoss.apply(*given)  # type: ignore[no-untyped-call]
    return loss


class Epoch(NamedTuple):
    """The result of one pass over the training text."""

    number: int  # from 1; 0 is the start
    rate: float
    train_perplexity: float
    valid_perplexity: float
    seconds: float


def lanes(ids: NDArray[Any], n_lanes: int) -> Tensor:
    """A stream of ids as (n_lanes, length): consecutive parts of equal length; what is left over is dropped."""
    length = len(ids) // n_lanes
    if length < 2:
        raise InputError(f"{len(ids)} words are too few for {n_lanes} lanes: give more text or fewer lanes.")
    return torch.from_numpy(np.asarray(ids[: n_lanes * length], dtype=np.int64).reshape(n_lanes, length))


@torch.no_grad()
def perplexity(model: RNNLM, ids: NDArray[Any], *, n_lanes: int = 1, steps: int = 128) -> float:
    """Perplexity of all words of the stream except the first of each lane; the state is carried along."""
    text, state, total = lanes(ids, n_lanes), None, 0.0
    for a in range(0, text.shape[1] - 1, steps):
        x, y = text[:, a : min(a + steps, text.shape[1] - 1)], text[:, a + 1 : a + 1 + steps]
        states = model.states(x, state)
        state = states[:, -1]
        parts = _chunks(states.flatten(0, 1), model.output.weight, model.output.bias, y.flatten())
        total += float(sum(part.loss for part in parts))
    return math.exp(total / (text.shape[0] * (text.shape[1] - 1)))


def train(
    model: RNNLM,
    train_ids: NDArray[Any],
    valid_ids: NDArray[Any],
    *,
    rate: float,
    max_epochs: int = 40,
    n_lanes: int = 20,
    steps: int = 20,
    clip: float = 5.0,
    enough: float = 1.003,
    valid_lanes: int = 1,
    callback: Callable[[Epoch], object] | None = None,
) -> list[Epoch]:
    """Train by gradient descent with truncated back-propagation; the model keeps its best parameters.

    Validation has stalled when its perplexity falls by less than the factor `enough`. The rate is constant until that
    happens, then halved before every epoch until it happens again. Validation text is read in `valid_lanes` parts side
    by side, which is faster than one stream.
    """
    began = time.perf_counter()
    text = lanes(train_ids, n_lanes)
    history = [Epoch(0, rate, math.nan, perplexity(model, valid_ids, n_lanes=valid_lanes), 0.0)]
    best, kept = history[0].valid_perplexity, _copy(model)
    halving = False
    for number in range(1, max_epochs + 1):
        trained = _one_epoch(model, text, rate, steps, clip)
        valid = perplexity(model, valid_ids, n_lanes=valid_lanes)
        now = Epoch(number, rate, trained, valid, time.perf_counter() - began)
        history.append(now)
        if callback:
            callback(now)
        stalled = not now.valid_perplexity * enough < best
        if now.valid_perplexity < best:
            best, kept = now.valid_perplexity, _copy(model)
        if stalled and halving:
            break
        halving |= stalled
        if halving:
            rate /= 2
    model.load_state_dict(kept)
    return history


def _copy(model: RNNLM) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _one_epoch(model: RNNLM, text: Tensor, rate: float, steps: int, clip: float) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    state: Tensor | None = None
    total, n = 0.0, 0
    for a in range(0, text.shape[1] - 1, steps):
        x, y = text[:, a : min(a + steps, text.shape[1] - 1)], text[:, a + 1 : a + 1 + steps]
        optimizer.zero_grad(set_to_none=True)
        states = model.states(x, state)
        loss = next_word_loss(model, states, y)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        state = states[:, -1].detach()
        total, n = total + float(loss.detach()) * y.numel(), n + y.numel()
    return math.exp(min(total / n, 700.0))
