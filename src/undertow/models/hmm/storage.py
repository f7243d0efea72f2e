"""A hidden Markov model's parameters as named tensors and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InputError
from undertow.kernels.chain.band import BandLowRank
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks, offsets
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense, LowRank
from undertow.models.base import TensorSpec
from undertow.models.hmm.params import BlockParams, Params, PlainParams
from undertow.models.hmm.tagged import Tags

FORMS = ("dense", "low rank", "band", "pairs", "block low rank")


def sizes(params: Params) -> dict[str, Any]:
    """All that the shapes of the tensors follow from."""
    T: Any = params.transition
    out: dict[str, Any] = {"n_states": params.n_states}
    if isinstance(params, PlainParams):
        if isinstance(T, Dense):
            return out | {"form": "dense"}
        if isinstance(T, BandLowRank):
            return out | {"form": "band", "rank": T.R.shape[1], "diagonals": len(T.band)}
        return out | {"form": "low rank", "rank": T.R.shape[1]}
    out |= {"n_blocks": params.blocks.n_blocks, "n_emission": len(params.emission)}
    if isinstance(T, PairSparse):
        return out | {"form": "pairs", "n_pairs": len(T.starts) - 1, "n_data": len(T.data)}
    return out | {"form": "block low rank", "rank": T.R.shape[1]}


def tag_sizes(tags: Tags) -> dict[str, Any]:
    """Tags and their numbers of states, as JSON knows them."""
    return {"names": tags.names, "sizes": np.diff(tags.first).tolist()}


def restored_tags(saved: Any, n_states: int) -> Tags | None:
    """The tags of a saved model, checked; None if it has none."""
    if saved is None:
        return None
    names, own = saved["names"], saved["sizes"]
    if not (
        len(names) == len(own) == len(set(names))
        and all(type(name) is str for name in names)
        and all(type(n) is int and n > 0 for n in own)
        and sum(own) == n_states
    ):
        raise InputError("the tags do not fit the states: save the model again.")
    return Tags(list(names), offsets(own))


def tensor_spec(s: dict[str, Any], V: int) -> dict[str, TensorSpec]:
    Z, form = s["n_states"], s["form"]
    if form not in FORMS:
        raise InputError(f"A transition of the form {form!r} is unknown: save the model again.")

    def floats(*shape: int) -> TensorSpec:
        return TensorSpec("float32", shape)

    spec = {"initial": floats(Z)}
    if form == "dense":
        return spec | {"transition": floats(Z, Z), "emission": floats(V, Z)}
    if form in ("low rank", "band"):
        spec |= {"R": floats(Z, s["rank"]), "E": floats(s["rank"], Z), "emission": floats(V, Z)}
        return spec | ({"band": floats(s["diagonals"], Z)} if form == "band" else {})
    spec |= {
        "emission": floats(s["n_emission"]),
        "word_block": TensorSpec("int32", (V,)),
        "block_states": TensorSpec("int64", (s["n_blocks"],)),
    }
    if form == "block low rank":
        return spec | {"R": floats(Z, s["rank"]), "ET": floats(Z, s["rank"])}
    pairs = TensorSpec("int32", (s["n_pairs"],))
    spec |= {"before": pairs, "after": pairs, "data": floats(s["n_data"])}
    return spec | {"leave": floats(Z), "arrive": floats(Z)}


def tensors(params: Params) -> dict[str, npt.NDArray[Any]]:
    T: Any = params.transition
    out: dict[str, npt.NDArray[Any]] = {"initial": params.initial}
    if isinstance(params, PlainParams):
        out["emission"] = params.chain.emission
        if isinstance(T, Dense):
            return out | {"transition": T.T}
        out |= {"R": T.R, "E": T.E}
        return out | ({"band": T.band} if isinstance(T, BandLowRank) else {})
    out |= {
        "emission": params.emission,
        "word_block": params.blocks.word_block,
        "block_states": params.blocks.sizes,
    }
    if isinstance(T, BlockLowRank):
        return out | {"R": T.R, "ET": T.ET}
    order = np.nonzero(T.pair >= 0)  # row by row, which is how pairs are numbered
    before, after = (x.astype(np.int32) for x in order)
    return out | {"before": before, "after": after, "data": T.data, "leave": T.leave, "arrive": T.arrive}


def restored(t: Mapping[str, npt.NDArray[Any]], s: dict[str, Any]) -> Params:
    """Parameters from tensors of the right shapes, whose indices are checked; `params.check` looks at the rest."""
    form = s["form"]
    t = {name: np.array(x) for name, x in t.items()}  # numba compiles once more for arrays that cannot be written
    params: Params
    if form in ("dense", "low rank", "band"):
        T: Any = Dense(t["transition"]) if form == "dense" else None
        if form == "low rank":
            T = LowRank(t["R"], t["E"])
        elif form == "band":
            T = BandLowRank(t["R"], t["E"], t["band"])
        params = PlainParams(ChainParams(t["initial"], T, t["emission"]))
    else:
        states, block = t["block_states"], t["word_block"]
        G = len(states)
        if states.min(initial=1) < 1 or states.sum() != s["n_states"] or block.min() < -1 or block.max() >= G:
            raise InputError("the blocks do not fit the states: save the model again.")
        blocks = Blocks.of(block, states)
        if blocks.starts[-1] != s["n_emission"]:
            raise InputError("the emissions do not fit the blocks: save the model again.")
        transition: PairSparse | BlockLowRank
        if form == "block low rank":
            transition = BlockLowRank(blocks.first, t["R"], t["ET"])
        else:
            transition = _pair_sparse(t, blocks)
        params = BlockParams(blocks, t["initial"], transition, t["emission"])
    return params


def _pair_sparse(t: Mapping[str, npt.NDArray[Any]], blocks: Blocks) -> PairSparse:
    before, after = t["before"].astype(np.int64), t["after"].astype(np.int64)
    G = blocks.n_blocks
    inside = (before >= 0) & (before < G) & (after >= 0) & (after < G)
    if not inside.all() or (np.diff(before * G + after) <= 0).any():
        raise InputError("the pairs of blocks are not in order: save the model again.")
    starts = offsets(blocks.sizes[before] * blocks.sizes[after])
    if starts[-1] != len(t["data"]):
        raise InputError("the transitions do not fit the blocks: save the model again.")
    pair = np.full((G, G), -1, dtype=np.int32)
    pair[before, after] = np.arange(len(before))
    return PairSparse(blocks.first, pair, starts, t["data"], t["leave"], t["arrive"])
