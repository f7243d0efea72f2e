"""The parameters of a hidden Markov model as the output of a network, so that similar states share parameters.

A state has three embeddings: for leaving it, for arriving at it, and for the words it emits. The generalized softmax
turns the first two into a transition through F features,

    T = diag(d) φ(U) φ(V)',   φ(u) = exp(W u − ‖u‖²/2),

which is a product of two distributions: with s_f = Σ_z φ(v_z)_f, R_zf ∝ φ(u_z)_f s_f and E_fz' = φ(v_z')_f / s_f. In
logarithms both are softmaxes, so that no exponential can overflow. Without a rank T is the softmax of U V'.

W is learned, or random and fixed for comparison: "orthogonal" has rows in orthogonal groups with the lengths of
Gaussian vectors, for which φ(u)·φ(v) has the mean e^{u·v}. "fourier": cosines and sines of random frequencies may be
negative and cannot be probabilities, so they are used as logarithms, φ(u) = exp(κ cos or sin(Wu)) with κ learned.

A network is a dictionary of tensors and some functions of it, not a subclass of PyTorch's Module.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.types import I64

Tensor = torch.Tensor
__all__ = ["FEATURES", "LogTables", "Network", "Shape", "Tensor", "orthogonal_rows", "torch"]
FEATURES = ("learned", "orthogonal", "fourier")


class Shape(NamedTuple):
    """Sizes and settings of a network, which training does not change."""

    first: I64  # (G + 1,) states of each block
    word_block: I64  # (V,); −1 for a word the text does not have
    rank: int | None
    width: int  # of the embeddings
    features: str

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    @property
    def n_blocks(self) -> int:
        return len(self.first) - 1


class LogTables(NamedTuple):
    """Logarithms of all probabilities of the states `kept`; the loss multiplies them by expected counts."""

    initial: Tensor  # (Z,)
    T: Tensor | None  # (Z, Z)
    R: Tensor | None  # (Z, F)
    E: Tensor | None  # (F, Z)
    emission: list[Tensor]  # (k, V_b) for each block
    kept: I64  # (Z,) which states of the whole these are
    first: I64  # (G + 1,) blocks among the kept


class Network:
    """Weights by name, and the tables they give."""

    def __init__(self, shape: Shape, words: NDArray[Any], generator: Any, dtype: Any = None, n_layers: int = 1) -> None:
        if shape.features not in FEATURES:
            raise InputError(f"features={shape.features!r} must be one of {', '.join(FEATURES)}.")
        self.shape = shape
        self.n_layers = n_layers
        self.words = [torch.from_numpy(np.flatnonzero(shape.word_block == b)) for b in range(shape.n_blocks)]
        Z, V, d = shape.n_states, len(shape.word_block), shape.width
        kind = torch.float32 if dtype is None else dtype

        def normal(*size: int, scale: float = 1.0) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float64).to(kind) * scale

        root = 1 / math.sqrt(d)
        self.weights: dict[str, Tensor] = {
            "leave": normal(Z, d, scale=1.5 * root),
            "arrive": normal(Z, d, scale=1.5 * root),
            "emit": normal(Z, d),
            "initial": normal(Z, scale=0.01),
            "arrive_bias": torch.zeros(Z, dtype=kind),
            "word": normal(V, d, scale=root),
            "word_bias": torch.from_numpy(np.log(np.asarray(words, dtype=np.float64) + 0.1)).to(kind),
        }
        for layer in range(n_layers):
            for role in ("leave", "emit"):
                for side in ("in", "out"):
                    self.weights[f"{role}_{layer}_{side}"] = normal(d, d, scale=root)
                    self.weights[f"{role}_{layer}_{side}_bias"] = torch.zeros(d, dtype=kind)
        self.frozen: dict[str, Tensor] = {}
        if shape.rank is not None:
            self._make_features(shape.rank, normal, kind)
        for weight in self.weights.values():
            weight.requires_grad_(True)

    def _make_features(self, rank: int, normal: Any, kind: Any) -> None:
        d, features = self.shape.width, self.shape.features
        if features == "learned":
            self.weights["features"] = normal(rank, d)
        elif features == "orthogonal":
            self.frozen["features"] = orthogonal_rows(rank, normal, d)
        else:
            self.frozen["features"] = normal(-(-rank // 2), d)
            self.weights["kappa"] = torch.full((), 3.0, dtype=kind)

    def parameters(self) -> list[Tensor]:
        return list(self.weights.values())

    def _residual(self, x: Tensor, role: str) -> Tensor:
        """x + relu(out(relu(in(x)))), for each layer."""
        w = self.weights
        for layer in range(self.n_layers):
            inner = torch.relu(x @ w[f"{role}_{layer}_in"].T + w[f"{role}_{layer}_in_bias"])
            x = x + torch.relu(inner @ w[f"{role}_{layer}_out"].T + w[f"{role}_{layer}_out_bias"])
        return x

    def log_features(self, x: Tensor) -> Tensor:
        """log φ of each row."""
        if self.shape.features == "fourier":
            angle = x @ self.frozen["features"].T
            both = torch.cat([torch.cos(angle), torch.sin(angle)], dim=1)[:, : self.shape.rank]
            return self.weights["kappa"] * both
        W = self.weights["features"] if "features" in self.weights else self.frozen["features"]
        return x @ W.T - 0.5 * (x * x).sum(dim=1, keepdim=True)

    def log_tables(self, kept: I64 | None = None) -> LogTables:
        """The tables of all states, or of those kept when the others are dropped."""
        states = np.arange(self.shape.n_states) if kept is None else np.asarray(kept)
        first = np.searchsorted(states, self.shape.first)
        at = torch.from_numpy(states)
        w = self.weights
        leave = self._residual(w["leave"][at], "leave")
        arrive, bias = w["arrive"][at], w["arrive_bias"][at]
        T = R = E = None
        if self.shape.rank is None:
            T = torch.log_softmax(leave @ arrive.T * math.sqrt(self.shape.width) / 4 + bias, dim=1)
        else:
            into = self.log_features(arrive) + bias[:, None]  # (Z, F)
            R = torch.log_softmax(self.log_features(leave) + torch.logsumexp(into, dim=0), dim=1)
            E = torch.log_softmax(into, dim=0).T
        initial = torch.log_softmax(w["initial"][at], dim=0)
        return LogTables(initial, T, R, E, self._emission(at, first), states, first)

    def _emission(self, at: Tensor, first: I64) -> list[Tensor]:
        w = self.weights
        hidden = self._residual(w["emit"][at], "emit")
        hidden = torch.nn.functional.layer_norm(hidden, (self.shape.width,))
        out = []
        for b, words in enumerate(self.words):
            logits = hidden[int(first[b]) : int(first[b + 1])] @ w["word"][words].T + w["word_bias"][words]
            out.append(torch.log_softmax(logits, dim=1))
        return out


def orthogonal_rows(rank: int, normal: Any, width: int) -> Tensor:
    """(rank, width) rows in orthogonal groups of at most `width`, each as long as a Gaussian vector."""
    groups = []
    for start in range(0, rank, width):
        q, _ = torch.linalg.qr(normal(width, width).double())
        lengths = torch.linalg.norm(normal(width, width).double(), dim=1)
        groups.append((lengths[:, None] * q.T)[: min(width, rank - start)])
    kind = normal(1).dtype
    return torch.cat(groups).to(kind)
