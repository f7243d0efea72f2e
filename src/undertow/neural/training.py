"""Training of a language model by Mikolov's schedule (2012): a constant rate until validation stalls, then halved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undertow.errors import InputError
from undertow.neural.rnn_lm import RNNLM


class Epoch(NamedTuple):
    """What one pass over the training text came to."""

    number: int  # from 1; 0 is the start
    rate: float
    train_perplexity: float
    valid_perplexity: float
    seconds: float


def lanes(ids: NDArray[Any], n_lanes: int) -> Tensor:
    """A stream of ids as (n_lanes, length): each lane reads its own part from the left, the rest is left out."""
    length = len(ids) // n_lanes
    if length < 2:
        raise InputError(f"{len(ids)} words are too few for {n_lanes} lanes: give more text or fewer lanes.")
    return torch.from_numpy(np.asarray(ids[: n_lanes * length], dtype=np.int64).reshape(n_lanes, length))


@torch.no_grad()
def perplexity(model: RNNLM, ids: NDArray[Any], *, n_lanes: int = 1, steps: int = 128) -> float:
    """Of every word of the stream but the first of each lane; the state is carried along."""
    text, state, total = lanes(ids, n_lanes), None, 0.0
    for a in range(0, text.shape[1] - 1, steps):
        x, y = text[:, a : min(a + steps, text.shape[1] - 1)], text[:, a + 1 : a + 1 + steps]
        scores, state = model(x, state)
        total += float(nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="sum"))
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
    callback: Callable[[Epoch], object] | None = None,
) -> list[Epoch]:
    """Plain gradient descent with truncated back-propagation; the model ends with its best parameters.

    Validation has stalled when its perplexity fell by less than the factor `enough`. The rate is constant until that
    happens, then halved before every epoch, until it happens again.
    """
    began = time.perf_counter()
    text = lanes(train_ids, n_lanes)
    history = [Epoch(0, rate, math.nan, perplexity(model, valid_ids), 0.0)]
    best, kept = history[0].valid_perplexity, _copy(model)
    halving = False
    for number in range(1, max_epochs + 1):
        trained = _one_epoch(model, text, rate, steps, clip)
        now = Epoch(number, rate, trained, perplexity(model, valid_ids), time.perf_counter() - began)
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
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    state: Tensor | None = None
    total, n = 0.0, 0
    for a in range(0, text.shape[1] - 1, steps):
        x, y = text[:, a : min(a + steps, text.shape[1] - 1)], text[:, a + 1 : a + 1 + steps]
        optimiser.zero_grad(set_to_none=True)
        scores, last = model(x, state)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        state = last.detach()
        total, n = total + float(loss.detach()) * y.numel(), n + y.numel()
    return math.exp(min(total / n, 700.0))
