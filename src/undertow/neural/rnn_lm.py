"""A recurrent language model that can start from a linear dynamical system (lds.md §8, the paper's §6 and 7.4).

    h_t = σ(W h_{t−1} + E[x_t] + b)        p(x_{t+1} | x_≤t) = softmax(U h_t + c)

The Kalman filter is this network without the nonlinearity. σ is close to linear near its middle, so that the filter's
states, scaled to a small deviation, pass through it almost unchanged: training starts from a working filter.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from undertow.errors import InputError
from undertow.models.base import Sentences, encode_sentences
from undertow.models.lds.model import LDS

NONLINEARITIES = ("sigmoid", "tanh")
TEMPERATURES = np.geomspace(
    0.02, 1.0, 12
)  # tried for the output layer; at 1 the perplexity of real text is far too high


class _Recurrence(torch.autograd.Function):
    """h_t = σ(W h_{t−1} + x_t + b) for all steps, with back-propagation through time written out.

    Equal to the loop that autograd would record; the steps are small, and recording them would take most of the time.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor, W: Tensor, b: Tensor, sigmoid: bool) -> Tensor:
        out = x.transpose(0, 1) + b  # (T, B, h), in order of time
        before = state
        for now in out:
            now.addmm_(before, W.t())
            before = now.sigmoid_() if sigmoid else now.tanh_()
        ctx.save_for_backward(out, state, W)
        ctx.sigmoid = sigmoid
        return out.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        out, state, W = ctx.saved_tensors
        inner = grads[0].transpose(0, 1).clone(memory_format=torch.contiguous_format)
        slope = out * (1 - out) if ctx.sigmoid else 1 - out * out
        for t in range(len(out) - 1, -1, -1):  # inner[t] becomes the gradient of the sum inside σ
            inner[t] *= slope[t]
            if t:
                inner[t - 1].addmm_(inner[t], W)
        before = torch.cat([state[None], out[:-1]])
        flat = inner.flatten(0, 1)
        return inner.transpose(0, 1), inner[0] @ W, flat.t() @ before.flatten(0, 1), flat.sum(dim=0), None


class RNNLM(nn.Module):
    """A recurrent language model as a PyTorch module; see the formulas of this file.

    Parameters
    ----------
    n_words
        Size of the vocabulary.
    n_hidden
        Number of hidden units.
    nonlinearity
        "sigmoid" or "tanh".
    words
        The word of each row, or None; it is not part of the state_dict.

    Raises
    ------
    InputError
        If an argument is not allowed.

    Examples
    --------
    >>> import torch
    >>> from undertow.neural import RNNLM
    >>> scores, state = RNNLM(n_words=10, n_hidden=4)(torch.tensor([[1, 2, 3]]))
    >>> tuple(scores.shape), tuple(state.shape)
    ((1, 3, 10), (1, 4))
    """

    def __init__(self, n_words: int, n_hidden: int, nonlinearity: str = "sigmoid", words: list[str] | None = None):
        super().__init__()
        if nonlinearity not in NONLINEARITIES:
            raise InputError(f"nonlinearity={nonlinearity!r} must be one of {', '.join(NONLINEARITIES)}.")
        if min(n_words, n_hidden) < 1:
            raise InputError(f"RNNLM: {n_words} words and {n_hidden} hidden units must both be at least 1.")
        self.nonlinearity = nonlinearity
        self.words = words
        self.inputs = nn.Embedding(n_words, n_hidden)
        self.recurrence = nn.Linear(n_hidden, n_hidden)
        self.output = nn.Linear(n_hidden, n_words)
        nn.init.normal_(self.inputs.weight, std=0.1)
        nn.init.normal_(self.recurrence.weight, std=1 / math.sqrt(n_hidden))
        nn.init.zeros_(self.recurrence.bias)
        nn.init.normal_(self.output.weight, std=0.1)
        nn.init.zeros_(self.output.bias)

    def start(self, n_sequences: int) -> Tensor:
        """The state before the first word: the middle of the nonlinearity, which is the mean of the filter.

        Parameters
        ----------
        n_sequences
            Batch size, B.

        Returns
        -------
        Tensor
            (B, h).
        """
        middle = 0.5 if self.nonlinearity == "sigmoid" else 0.0
        return self.recurrence.weight.new_full((n_sequences, self.recurrence.in_features), middle)

    def states(self, ids: Tensor, state: Tensor | None = None) -> Tensor:
        """The state after each word.

        Parameters
        ----------
        ids
            (B, T) ids of words.
        state
            (B, h) state to continue from; None for `start`.

        Returns
        -------
        Tensor
            (B, T, h).
        """
        state = self.start(len(ids)) if state is None else state
        r = self.recurrence
        given = (self.inputs(ids), state, r.weight, r.bias, self.nonlinearity == "sigmoid")
        states: Tensor = _Recurrence.apply(*given)  # type: ignore[no-untyped-call]
        return states

    def forward(self, ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores of the next word after each word.

        Parameters
        ----------
        ids
            (B, T) ids of words.
        state
            (B, h) state to continue from; None for `start`.

        Returns
        -------
        tuple of Tensor
            (B, T, V) scores, whose softmax is the distribution of the next word, and the last state (B, h).
        """
        states = self.states(ids, state)
        return self.output(states), states[:, -1]

    @classmethod
    def from_lds(
        cls,
        lds: LDS,
        nonlinearity: str = "sigmoid",
        *,
        text: Sentences | None = None,
        deviation: float = 0.2,
        temperature: float = 0.1,
    ) -> Self:
        """The network that computes what the Kalman filter of an LDS computes, as nearly as its nonlinearity allows.

        Parameters
        ----------
        lds
            A fitted LDS.
        nonlinearity
            "sigmoid" or "tanh".
        text
            Sentences on which the temperature is chosen; a part of the training text will do.
        deviation
            Standard deviation of the states inside the network, between 0 and 1.
        temperature
            Factor on the output layer, which is the log-probability of the linear model to first order, where there is
            no text to choose it on.

        Returns
        -------
        RNNLM
            A new network.

        Raises
        ------
        InputError
            If `deviation` is not between 0 and 1, or the text has fewer than two words.
        """
        if not 0 < deviation < 1:
            raise InputError(f"deviation={deviation} must lie between 0 and 1, small enough for the linear range.")
        r = lds.recurrence()
        model = cls(len(r.inputs), len(r.transition), nonlinearity, list(lds.vocabulary_.words))
        gain = 4.0 if nonlinearity == "sigmoid" else 1.0  # σ(z) ≈ ½ + z/4, tanh z ≈ z
        to = deviation / r.spread  # each coordinate of the filter's state → its unit
        W = r.transition * to[:, None] / to
        middle = 0.5 if nonlinearity == "sigmoid" else 0.0
        with torch.no_grad():
            model.recurrence.weight.copy_(torch.as_tensor(gain * W))
            model.recurrence.bias.copy_(torch.as_tensor(-gain * middle * W.sum(axis=1)))
            model.inputs.weight.copy_(torch.as_tensor(gain * to * r.inputs))
            outputs, bias = torch.as_tensor(r.outputs / to).float(), torch.as_tensor(np.log(r.frequency)).float()
            if text is not None:
                temperature = _best_temperature(model, lds, outputs, bias, text, middle)
            model.output.weight.copy_(temperature * outputs)
            model.output.bias.copy_(bias - middle * temperature * outputs.sum(dim=1))
        return model


def _best_temperature(model: RNNLM, lds: LDS, outputs: Tensor, bias: Tensor, text: Sentences, middle: float) -> float:
    """The temperature under which the first words of the text (20,000 or all) are most probable."""
    ids = np.concatenate([*encode_sentences(lds.vocabulary_, text), np.empty(0, dtype=np.uint32)])[:20_000].astype(
        np.int64
    )
    if len(ids) < 2:
        raise InputError("The text for the temperature has fewer than two words: give more, or leave text out.")
    states = model.states(torch.from_numpy(ids[None, :-1]))[0] - middle
    target = torch.from_numpy(ids[1:])
    losses = np.zeros(len(TEMPERATURES))
    for part in range(0, len(target), 1024):
        scores = states[part : part + 1024] @ outputs.T
        for k, t in enumerate(TEMPERATURES):
            losses[k] += float(
                nn.functional.cross_entropy(bias + float(t) * scores, target[part : part + 1024], reduction="sum")
            )
    return float(TEMPERATURES[losses.argmin()])
