"""Without an optional package, whatever needs it names the extra that brings it."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow
from map_samples import sample_map
from sentences import is_one_sentence
from undertow import HMM, Tokenizer
from undertow.adapters.token_vectors import open_writer
from undertow.engine import DaskCluster
from undertow.errors import MissingExtraError
from undertow.index import VectorIndex
from undertow.models.answers import Neighbor
from undertow.tables import Table
from undertow.text.reading import read_chunks
from undertow.view.map_pictures import save_film, save_picture

ROOT = Path(undertow.__file__).parent
ZSTD = bytes.fromhex("28b52ffd2000010000")  # an empty frame
NEEDED = {
    "numpy",
    "scipy",
    "numba",
    "safetensors",
    "click",
    "tqdm",
    "threadpoolctl",
    "llvmlite",
}  # what the core installs


def read_zstd(place: Path) -> Any:
    (place / "a.zst").write_bytes(ZSTD)
    return list(read_chunks([place / "a.zst"]))


# packages that are missing, the extra that brings them, and something that needs it
CASES: list[tuple[tuple[str, ...], str, Callable[[Path], Any]]] = [
    (("torch",), "torch", lambda _: importlib.import_module("undertow.neural").RNNLM),
    (("torch",), "torch", lambda _: importlib.import_module("undertow.neural.training")),
    (("torch",), "torch", lambda _: HMM(2, parameterization="neural").fit([["a", "b"]])),
    (("transformers",), "transformers", lambda _: importlib.import_module("undertow.adapters.transformers")),
    (("sklearn",), "sklearn", lambda _: HMM().__sklearn_tags__()),
    (("sklearn",), "sklearn", lambda _: importlib.import_module("undertow.adapters.document_encoder")),
    (("spacy", "thinc", "srsly"), "spacy", lambda _: importlib.import_module("undertow.adapters.spacy_pipe")),
    (("usearch",), "usearch", lambda _: VectorIndex([[1.0, 0.0]], approximate=True)),
    (("pyarrow",), "arrow", lambda place: open_writer(place / "v.parquet", "parquet", 2)),
    (("pyarrow", "zstandard", "compression"), "arrow", read_zstd),
    (("pyarrow",), "arrow", lambda _: Table(Neighbor).to_arrow()),
    (("pandas",), "tables", lambda _: Table(Neighbor).to_frame()),
    (("polars",), "tables", lambda _: Table(Neighbor).to_frame("polars")),
    (("matplotlib",), "viz", lambda place: save_picture(sample_map(), place / "m.png")),
    (("imageio",), "video,viz", lambda place: save_film(sample_map(), place / "m.gif")),
    (("imageio_ffmpeg",), "video,viz", lambda place: save_film(sample_map(), place / "m.mp4")),
    (("jieba",), "jieba", lambda _: Tokenizer(rule="jieba").describe()),
    (("pythainlp",), "pythainlp", lambda _: Tokenizer(rule="pythainlp").describe()),
    (("icu",), "icu", lambda _: Tokenizer(rule="icu").describe()),
    (("dask", "distributed"), "dask", lambda _: list(DaskCluster().imap(str, [1]))),
]


@pytest.mark.parametrize(("missing", "extra", "use"), CASES, ids=[f"{c[0][0]}-{i}" for i, c in enumerate(CASES)])
def test_a_missing_extra_is_named(
    missing: tuple[str, ...], extra: str, use: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        n for n in sys.modules if n.split(".")[0] in missing or n.startswith(("undertow.neural", "undertow.adapters"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError) as e:
        use(tmp_path)
    message = str(e.value)
    assert f"pip install 'undertow[{extra}]'" in message and f"pip install '.[{extra}]'" in message
    assert is_one_sentence(message)


def test_every_optional_package_has_a_case() -> None:
    found: set[str] = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    optional = found - set(sys.stdlib_module_names) - NEEDED - {"undertow"}
    assert optional <= {name for missing, _, _ in CASES for name in missing}
