"""A hidden Markov model's parameters as named tensors and back.

In 8 bits, every table but the initial distribution is two tensors, `name.codes` and `name.scale` (`byte_codes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InputError
from undertow.kernels import byte_codes
from undertow.kernels.byte_codes import Runs
from undertow.kernels.chain.band import BandLowRank
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks, offsets
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense, LowRank
from undertow.models.base import TensorSpec
from undertow.models.hmm.params import BlockParams, Params, PlainParams
from undertow.models.hmm.tagged import Tags

FORMS = ("dense", "low rank", "band", "pairs", "block low rank")
CODED = ("transition", "R", "E", "ET", "band", "data", "emission")  # with one byte a number in 8 bits


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


def tensor_spec(s: dict[str, Any], V: int, bits: int | None = None) -> dict[str, TensorSpec]:
    spec = _float_spec(s, V)
    if bits is None:
        return spec
    n_rows = _n_rows(s)
    out: dict[str, TensorSpec] = {}
    for name, tensor in spec.items():
        if name in CODED:
            out[f"{name}.codes"] = TensorSpec("uint8", tensor.shape)
            out[f"{name}.scale"] = TensorSpec("float32", (n_rows[name],))
        else:
            out[name] = tensor
    return out


def _n_rows(s: dict[str, Any]) -> dict[str, int]:
    """The number of distributions in each table: states, or features, which choose a state."""
    Z, F = s["n_states"], s.get("rank", 0)
    blocks = s["form"] in ("pairs", "block low rank")  # and one row for the words that all states emit alike
    return dict.fromkeys(("transition", "R", "band", "data"), Z) | {"E": F, "ET": F, "emission": Z + blocks}


def _float_spec(s: dict[str, Any], V: int) -> dict[str, TensorSpec]:
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


def coded_tensors(params: Params) -> dict[str, npt.NDArray[Any]]:
    """The same in 8 bits."""
    T: Any = params.transition
    out: dict[str, npt.NDArray[Any]] = {}
    for name, table in tensors(params).items():
        if name not in CODED:
            out[name] = table
            continue
        if isinstance(params, BlockParams) and name in ("data", "emission"):
            runs = _pair_runs(T) if name == "data" else _emission_runs(params.blocks)
        else:
            runs = _runs(name, table.shape)
        out[f"{name}.codes"], out[f"{name}.scale"] = byte_codes.encode(table, runs)
    return out


def _runs(name: str, shape: tuple[int, ...]) -> Runs:
    """The rows of a table of two dimensions."""
    return (byte_codes.columns if name in ("ET", "band", "emission") else byte_codes.rows)(*shape)


def _emission_runs(blocks: Blocks) -> Runs:
    """A row for each state, and a last one for the words that all states emit alike."""
    block, first, starts = blocks
    return Runs(starts, np.where(block >= 0, first[block], blocks.n_states), 1, blocks.n_states + 1)


def _pair_runs(T: PairSparse) -> Runs:
    """The row of a state goes through all pairs that its block is the first of."""
    sizes = np.diff(T.first)
    before, after = np.nonzero(T.pair >= 0)
    k = sizes[before]
    offset = np.arange(k.sum()) - np.repeat(np.cumsum(k) - k, k)
    return Runs(offsets(np.repeat(sizes[after], k)), np.repeat(T.first[before], k) + offset, 0, T.n_states)


def _table(t: Mapping[str, npt.NDArray[Any]], name: str, runs: Runs | None = None) -> npt.NDArray[np.float32]:
    """A table as it is, or from its codes; without `runs`, one of two dimensions."""
    if name in t:
        return t[name]
    codes, scale = t[f"{name}.codes"], t[f"{name}.scale"]
    runs = _runs(name, codes.shape) if runs is None else runs
    largest = byte_codes.largest_codes(codes, runs)
    if scale.min(initial=0.0) < 0:
        raise InputError(f"the tensor {name}.scale holds a negative number: save the model again.")
    if not (largest == np.where(scale > 0, byte_codes.LARGEST, 0)).all():
        raise InputError(f"the tensors {name}.codes and {name}.scale do not fit each other: save the model again.")
    return byte_codes.decode(codes, scale, runs)


def restored(t: Mapping[str, npt.NDArray[Any]], s: dict[str, Any]) -> Params:
    """Parameters from tensors of the right shapes, whose indices are checked; `params.check` looks at the rest."""
    form = s["form"]
    t = {name: np.array(x) for name, x in t.items()}  # numba compiles once more for arrays that cannot be written
    params: Params
    if form in ("dense", "low rank", "band"):
        T: Any = Dense(_table(t, "transition")) if form == "dense" else None
        if form == "low rank":
            T = LowRank(_table(t, "R"), _table(t, "E"))
        elif form == "band":
            T = BandLowRank(_table(t, "R"), _table(t, "E"), _table(t, "band"))
        params = PlainParams(ChainParams(t["initial"], T, _table(t, "emission")))
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
            transition = BlockLowRank(blocks.first, _table(t, "R"), _table(t, "ET"))
        else:
            transition = _pair_sparse(t, blocks, s)
        params = BlockParams(blocks, t["initial"], transition, _table(t, "emission", _emission_runs(blocks)))
    return params


def _pair_sparse(t: Mapping[str, npt.NDArray[Any]], blocks: Blocks, s: dict[str, Any]) -> PairSparse:
    before, after = t["before"].astype(np.int64), t["after"].astype(np.int64)
    G = blocks.n_blocks
    inside = (before >= 0) & (before < G) & (after >= 0) & (after < G)
    if not inside.all() or (np.diff(before * G + after) <= 0).any():
        raise InputError("the pairs of blocks are not in order: save the model again.")
    starts = offsets(blocks.sizes[before] * blocks.sizes[after])
    if starts[-1] != s["n_data"]:
        raise InputError("the transitions do not fit the blocks: save the model again.")
    pair = np.full((G, G), -1, dtype=np.int32)
    pair[before, after] = np.arange(len(before))
    T = PairSparse(blocks.first, pair, starts, np.empty(0, dtype=np.float32), t["leave"], t["arrive"])
    return T._replace(data=_table(t, "data", _pair_runs(T)))
