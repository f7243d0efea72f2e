"""The saved tensors of a linear dynamical system: names and shapes, and what makes their values valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.gaussian.linalg import check_covariance
from undertow.models.base import TensorSpec
from undertow.models.lds.params import LDSParams, check_params

SMOOTHED_TOLERANCE = 0.05  # the statistics are approximate, so a small moment may come out below zero


def tensor_spec(n_components: int, n_words: int) -> dict[str, TensorSpec]:
    """Every saved tensor of a model with so many components and words."""
    square = TensorSpec("float64", (n_components, n_components))
    return {
        "A": square,
        "C": TensorSpec("float64", (n_words, n_components)),
        "M": square,
        "Q": square,
        "dropped": TensorSpec("float64", (n_words,)),
        "mu": TensorSpec("float64", (n_words,)),
        "state_moment": square,
    }


def saved_params(tensors: Mapping[str, NDArray[Any]]) -> LDSParams:
    """The parameters among the tensors."""
    return LDSParams(**{name: tensors[name] for name in LDSParams._fields})


def check_tensors(tensors: Mapping[str, NDArray[Any]]) -> None:
    """Raise InputError for tensors of the right shapes that no fit gives."""
    check_params(saved_params(tensors))
    check_covariance(tensors["state_moment"], "second moment of the smoothed state", SMOOTHED_TOLERANCE)
    if not (tensors["dropped"].min() >= 0 and tensors["dropped"].max() <= 1):
        raise InputError("the shares of dropped tokens do not lie between 0 and 1.")
