"""The rooms and who may know whom, as drawn in docs/design.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "undertow"

# room -> rooms it may import; a room may always import itself
ARROWS = {
    "__main__": {"cli"},
    "errors": set(),
    "progress": set(),
    "tables": {"errors"},
    "files": {"errors"},
    "atomic": {"errors", "files"},
    "recipe": {"errors", "files", "atomic"},
    "engine": {"errors", "progress"},
    "kernels": {"errors"},
    "constraints": {"errors"},
    "tensor_file": {"errors", "files"},
    "text": {"errors", "tables", "progress", "files", "atomic", "recipe", "tensor_file", "engine", "kernels"},
    "models": {"errors", "tables", "progress", "files", "atomic", "constraints", "engine", "kernels", "text"},
    "storage": {"errors", "files", "atomic", "recipe", "models", "text", "tensor_file", "undertow"},
    "questions": {"errors", "tables", "progress", "constraints", "engine", "kernels", "models", "text"},
    "index": {"errors", "tables", "engine", "kernels", "models", "text"},
    "results": {
        *("errors", "tables", "progress", "files", "atomic", "engine", "kernels", "models", "text", "storage"),
        "questions",
    },
    "view": {"errors", "files", "atomic", "kernels", "models", "text", "questions", "results"},
    "adapters": {
        *("errors", "files", "atomic", "constraints", "engine", "kernels", "models", "questions", "text", "storage"),
        "results",
    },
    "neural": {"errors", "progress", "engine", "kernels", "models", "text"},
    "cli": {
        *("errors", "progress", "files", "atomic", "recipe", "engine", "models", "text", "storage", "results", "view"),
        *("adapters", "constraints", "questions", "undertow"),
    },
    "undertow": {"text", "models", "questions", "results", "storage", "adapters"},
}
# Third-party packages a room may use, where that is a promise
OUTSIDE = {
    "kernels": {"numpy", "scipy", "numba", "llvmlite"},
    "text": {"numpy", "scipy", "numba", "pyarrow", "compression"},
}
# Imported lazily, as these methods are part of the public interface: `model.save` (storage), `save_html` of a moving
# map (view), `fill`, `generate` and their like (questions), and `HMM(parameterization="neural")` (neural, which imports
# models); a checkpoint names the version.
EXCEPTIONS = {
    ("models/base.py", "storage"),
    ("models/checkpoint.py", "undertow"),
    ("models/dynamic/model.py", "view"),
    ("models/hmm/model.py", "neural"),
    ("models/hmm/model.py", "questions"),
    ("models/lds/model.py", "questions"),
    ("models/factorial/model.py", "questions"),
    ("models/grammar/model.py", "questions"),
}
# A family of models imports no other family; what two of them need is a kernel or a shared module of the room.
FAMILIES = {"lds", "hmm", "factorial", "dynamic", "grammar"}
STDLIB = __import__("sys").stdlib_module_names


def room_of(path: Path) -> str:
    parts = path.relative_to(SRC).parts
    return "undertow" if parts == ("__init__.py",) else parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Full names of everything a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrows"
            if node.module == "undertow":
                found |= {f"undertow.{alias.name}" for alias in node.names}
            else:
                found.add(str(node.module))
    return found


FILES = sorted(SRC.rglob("*.py"))


def violations(path: Path) -> list[str]:
    room, name = room_of(path), path.relative_to(SRC).as_posix()
    bad = []
    for imported in imports(path):
        top, _, rest = imported.partition(".")
        if top == "undertow":
            if room == "models" and (family := name.split("/")[1]) in FAMILIES:
                parts = rest.split(".")
                if parts[0] == "models" and len(parts) > 1 and parts[1] in FAMILIES - {family}:
                    bad.append(f"{name} imports {imported}, another family")
            other = rest.split(".")[0] if rest else "undertow"
            if not (SRC / other).is_dir() and not (SRC / f"{other}.py").exists():
                other = "undertow"  # a name of the package itself, such as __version__
            if other != room and other not in ARROWS[room] and (name, other) not in EXCEPTIONS:
                bad.append(f"{name} imports {imported}")
        elif room in OUTSIDE and top not in STDLIB and top != "__future__" and top not in OUTSIDE[room]:
            bad.append(f"{name} imports {imported}")
    return bad


def test_every_room_is_drawn() -> None:
    assert {room_of(p) for p in FILES} <= ARROWS.keys() | {"data"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SRC).as_posix())
def test_the_arrows_hold(path: Path) -> None:
    assert violations(path) == []


def test_a_wrong_arrow_is_seen(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(f"{__name__}.SRC", tmp_path)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "cli").mkdir()
    bad = tmp_path / "kernels" / "bad.py"
    for line in ("from undertow.text import corpus", "def f():\n    import undertow.cli.main", "import pandas"):
        bad.write_text(line)
        assert violations(bad), line
    bad.write_text("import numpy\nimport os\nfrom undertow.errors import InputError")
    (tmp_path / "errors.py").touch()
    assert violations(bad) == []


def test_a_family_that_imports_another_is_seen(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(f"{__name__}.SRC", tmp_path)
    (tmp_path / "models" / "hmm").mkdir(parents=True)
    bad = tmp_path / "models" / "hmm" / "init.py"
    bad.write_text("from undertow.models.lds.init import identify")
    assert violations(bad)
    bad.write_text("from undertow.models.base import Estimator\nfrom undertow.models.hmm.params import Params")
    assert violations(bad) == []


def test_the_picture_in_the_docs_names_every_room() -> None:
    text = (SRC.parents[1] / "docs" / "design.md").read_text()
    assert [room for room in ARROWS if room not in text] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SRC).as_posix())
def test_nothing_unpickles_files(path: Path) -> None:
    """Processes talk to each other in pickles (engine/wire.py); files never do."""
    text = path.read_text()
    if path.relative_to(SRC).as_posix() != "engine/wire.py":
        assert not imports(path) & {"pickle", "cloudpickle", "joblib", "shelve", "marshal", "dill"}
    assert "allow_pickle=True" not in text and "splitlines" not in text.replace("str.splitlines", "").replace(
        "bytes.splitlines", ""
    )
