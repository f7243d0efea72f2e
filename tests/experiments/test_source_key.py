"""What is kept of an experiment is found again by the source that made it, and by no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def source_key(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("source_key")


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    """A library of one kernel, and scripts of which one imports the second, which imports the third."""
    texts = {
        "library/kernels/k.py": "a = 1\n",
        "library/view/v.py": "a = 1\n",
        "one.py": "from two import x\n",
        "two.py": "import three\nx = 1\n",
        "three.py": "import one\n",
        "four.py": "import one\n",
    }
    paths = {name: tmp_path / name for name in texts}
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name])
    return paths


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ("one.py", False),
        ("two.py", False),
        ("three.py", False),
        ("library/kernels/k.py", False),
        ("library/view/v.py", True),  # shows what was made, and makes nothing that is kept
        ("four.py", True),
    ],
)
def test_a_changed_source_changes_the_key(
    source_key: Any, sources: dict[str, Path], tmp_path: Path, changed: str, same: bool
) -> None:
    before = source_key.source_key(sources["one.py"], tmp_path / "library")
    assert source_key.source_key(sources["one.py"], tmp_path / "library") == before
    sources[changed].write_text(sources[changed].read_text() + "# more\n")
    assert (source_key.source_key(sources["one.py"], tmp_path / "library") == before) is same


def test_a_part_of_the_library_can_be_left_out_of_the_key(
    source_key: Any, sources: dict[str, Path], tmp_path: Path
) -> None:
    """Models are kept when only the taggers that read them change."""

    def keys() -> list[str]:
        left_out: list[tuple[str, ...]] = [("kernels",), ("view", "kernels/k.py"), ("view",), ()]
        return [source_key.source_key(sources["one.py"], tmp_path / "library", names) for names in left_out]

    before = keys()
    sources["library/kernels/k.py"].write_text("a = 2\n")
    assert [a == b for a, b in zip(before, keys(), strict=True)] == [True, True, False, False]
    (tmp_path / "library" / "kernels" / "new.py").write_text("")
    assert [a == b for a, b in zip(before, keys(), strict=True)] == [True, False, False, False]


def test_no_model_is_learned_by_what_its_key_leaves_out(source_key: Any) -> None:
    """The kernels that the key of a model leaves out are imported by taggers alone."""
    library = source_key.LIBRARY
    folder, *files = (library / name for name in source_key.TAGGERS)
    names = "|".join(path.stem for path in files)
    imports = re.compile(
        rf"^\s*(from undertow\.kernels\.chain\.({names}) |from undertow\.kernels\.chain import .*\b({names})\b)", re.M
    )
    found = {path for path in library.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))}
    assert found
    assert all(folder in path.parents or path in files for path in found)


def test_a_new_file_of_the_library_changes_the_key(source_key: Any, sources: dict[str, Path], tmp_path: Path) -> None:
    before = source_key.source_key(sources["one.py"], tmp_path / "library")
    (tmp_path / "library" / "kernels" / "new.py").write_text("")
    assert source_key.source_key(sources["one.py"], tmp_path / "library") != before


def test_a_model_is_learned_anew_when_the_source_has_changed(
    source_key: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`kept` gives back what it has only as long as the key is the same."""
    representations = importlib.import_module("representations")
    from undertow import LDS

    fitted: list[int] = []

    def fit() -> LDS:
        fitted.append(1)
        text = [list("abcabcabcabcabc"), list("bcabcabcabcabca")] * 3
        return LDS(1, lags=3, ssid_lags=2, n_iter=1, random_state=0).fit(text)

    for _ in range(2):
        representations.kept(tmp_path, "lds", fit)
    assert len(fitted) == 1
    monkeypatch.setattr(source_key, "source_key", lambda script, without: "0000000000")
    representations.kept(tmp_path, "lds", fit)
    assert len(fitted) == 2
