"""A trained CRF as tensors: which there are, what they may hold, and how names of features become bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import FormatError, InputError
from undertow.kernels.chain.token_network import TokenNetwork
from undertow.models.base import TensorSpec
from undertow.results.tagging.crf_training import CRFWeights
from undertow.results.tagging.spans import split_tag

NETWORK = "network."  # before the names of its tensors
LARGEST_WEIGHT = 1e9
_IOB2 = {"B": "B", "S": "B", "I": "I", "E": "I", "O": "O"}  # letters of BIOES

Tensors = Mapping[str, NDArray[Any]]


def labels_of(states: list[str], labels: list[str]) -> list[str]:
    """The tag that each state stands for: itself, or for a state of BIOES the tag of IOB2."""
    if states == labels:
        return labels
    return [_IOB2[letter] + state[1:] for state in states for letter in [split_tag(state)[0] or "O"]]


def sizes(weights: CRFWeights, network: TokenNetwork | None, attributes: Mapping[str, int]) -> dict[str, Any]:
    """The numbers that say which tensors there are."""
    return {
        "network": None if network is None else [len(network.input), len(network.input_bias)],
        "n_attributes": len(attributes),
        "n_pairs": len(weights.label),
        "n_numbers": len(weights.dense),
        "name_bytes": len(_as_bytes(attributes)),
    }


def tensor_spec(fitted: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The tensors of a CRF with these sizes and states."""
    K, d, P = len(fitted["states"]), fitted["n_numbers"], fitted["n_pairs"]
    return _network_spec(fitted["network"], K) | {
        "attributes": TensorSpec("uint8", (fitted["name_bytes"],)),
        "start": TensorSpec("int64", (fitted["n_attributes"] + 1,)),
        "label": TensorSpec("int32", (P,)),
        "sparse": TensorSpec("float32", (P,)),
        "dense": TensorSpec("float32", (d, K)),
        "transition": TensorSpec("float32", (K, K)),
    }


def _network_spec(size: Any, n_labels: int) -> dict[str, TensorSpec]:
    """The tensors of a network with these sizes (numbers, units); none for None."""
    if size is None:
        return {}
    d, k = size
    shapes = TokenNetwork((d, k), (k,), (3 * k, k), (k,), (2 * k, n_labels))  # type: ignore[arg-type]
    return {f"{NETWORK}{name}": TensorSpec("float32", shape) for name, shape in shapes._asdict().items()}


def tensors(
    weights: CRFWeights, network: TokenNetwork | None, attributes: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """All that is learned, by the names of `tensor_spec`."""
    names = np.frombuffer(_as_bytes(attributes), dtype=np.uint8)
    more = {} if network is None else {f"{NETWORK}{name}": x for name, x in network._asdict().items()}
    return {"attributes": names, **weights._asdict(), **more}


def check_tensors(found: Tensors, fitted: Mapping[str, Any]) -> None:
    """Refuse tensors that no training leaves."""
    states, labels = fitted["states"], fitted["labels"]
    if states != sorted(set(states)) or not set(labels_of(states, labels)) <= set(labels):
        raise InputError("the states are not those of its tags.")
    start, label = found["start"], found["label"]
    if start[0] != 0 or start[-1] != len(label) or np.any(np.diff(start) <= 0):
        raise InputError("the pairs of attributes and tags do not lie one after the other.")
    if np.any(label < 0) or np.any(label >= len(states)):
        raise InputError("a pair is of a tag that does not exist.")
    inner = np.ones(len(label), dtype=np.bool_)
    inner[start[:-1]] = False
    if np.any(np.diff(label)[inner[1:]] <= 0):
        raise InputError("the tags of an attribute do not rise.")
    numbers = ["sparse", "dense", "transition", *_network_spec(fitted["network"], len(states))]
    if not all(np.abs(found[name]).max(initial=0.0) <= LARGEST_WEIGHT for name in numbers):
        raise InputError("a weight is larger than any that training leaves.")
    _from_bytes(found["attributes"].tobytes(), len(start) - 1)


def restored(found: Tensors, fitted: Mapping[str, Any]) -> tuple[CRFWeights, TokenNetwork | None, dict[str, int]]:
    """Weights, network and names of features from tensors that were checked."""
    # copies: Numba compiles once more for arrays that cannot be written
    weights = CRFWeights(**{name: np.array(found[name]) for name in CRFWeights._fields})
    network = None
    if fitted["network"] is not None:
        network = TokenNetwork(*(np.array(found[f"{NETWORK}{name}"]) for name in TokenNetwork._fields))
    return weights, network, _from_bytes(found["attributes"].tobytes(), fitted["n_attributes"])


def _as_bytes(names: Mapping[str, int]) -> bytes:
    return "\n".join(names).encode("utf-8")


def _from_bytes(data: bytes, n: int) -> dict[str, int]:
    text = data.decode("utf-8")
    names = {name: i for i, name in enumerate(text.split("\n"))} if text else {}
    if len(names) != n or text.count("\n") != max(n - 1, 0):
        raise FormatError(f"its names are not {n} different ones.")
    return names
