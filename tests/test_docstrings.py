"""Public names have numpydoc docstrings that agree with their signatures, and the examples in them run."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import undertow

docscrape = pytest.importorskip("numpydoc.docscrape", reason="numpydoc is not installed")

ROOMS = (
    *("undertow", "undertow.constraints", "undertow.index", "undertow.results", "undertow.results.tagging"),
    "undertow.neural",
)


class Public(NamedTuple):
    """A documented thing: a class, a function, or a method, property or constructor of a class."""

    name: str
    value: Any
    is_method: bool


def public_names() -> Iterator[tuple[str, Any]]:
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            if not name.startswith("__"):
                yield name, getattr(module, name)


def ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("undertow")


def members(cls: type) -> Iterator[Public]:
    """Public methods and properties as our classes define them; those of Module, dict or tuple are not ours."""
    for base in cls.__mro__:
        if ours(base):
            for name, value in vars(base).items():
                plain = getattr(value, "__func__", value)  # of a class method or static method
                if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(value, property)):
                    yield Public(f"{base.__name__}.{name}", value, is_method=not isinstance(value, staticmethod))


@functools.cache
def public() -> dict[str, Public]:
    pytest.importorskip("torch", reason="undertow.neural needs PyTorch")
    found = {}
    for name, value in public_names():
        found[name] = Public(name, value, is_method=False)
        if inspect.isclass(value):
            found |= {member.name: member for member in members(value)}
    return found


def documented(sections: list[Any]) -> list[str]:
    """Names of a section; `low, high` names two."""
    return [name.strip().lstrip("*") for row in sections for name in row.name.split(",")]


def parameters_of(function: Callable[..., Any], is_method: bool) -> list[str]:
    names = list(inspect.signature(function).parameters)
    return names[1:] if is_method else names


def fitted_attributes(cls: type) -> set[str]:
    """What `self.name_ = …` and annotations of the class say a fit leaves."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    stored = {n.attr for n in ast.walk(body) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    declared = {n.target.id for n in ast.walk(body) if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    return {name for name in stored | declared if name.endswith("_") and not name.startswith("_")}


def faults_of_class(cls: type, doc: Any) -> list[str]:
    parameters, attributes = documented(doc["Parameters"]), documented(doc["Attributes"])
    fields = getattr(cls, "_fields", None)
    if fields is not None:  # a NamedTuple has its fields once, under either heading
        shown = parameters or attributes
        return [] if shown == list(fields) else [f"fields are {list(fields)}, documented are {shown}"]
    found = []
    constructor: Any = cls.__init__
    if ours(constructor):
        expected = parameters_of(constructor, is_method=True)
        if parameters != expected:
            found.append(f"parameters are {expected}, documented are {parameters}")
    missing = fitted_attributes(cls) - set(attributes)
    if missing:
        found.append(f"Attributes lacks {sorted(missing)}")
    return found


def faults_of_function(function: Callable[..., Any], doc: Any, is_method: bool) -> list[str]:
    found = []
    expected, shown = parameters_of(function, is_method), documented(doc["Parameters"])
    if shown != expected:
        found.append(f"parameters are {expected}, documented are {shown}")
    returns = inspect.signature(function).return_annotation
    if returns not in (None, "None", "NoReturn", inspect.Signature.empty) and not (doc["Returns"] or doc["Yields"]):
        found.append("Returns is not documented")
    return found


def faults(thing: Public) -> list[str]:
    """What is wrong with a docstring; nothing if it is in form."""
    text = inspect.getdoc(thing.value)
    if not text:
        return ["there is no docstring"]
    doc = docscrape.NumpyDocString(text)
    found = [] if "".join(doc["Summary"]).strip() else ["there is no summary"]
    if inspect.isclass(thing.value):
        return found + faults_of_class(thing.value, doc)
    if isinstance(thing.value, property):
        return found  # an attribute: its summary says all
    return found + faults_of_function(getattr(thing.value, "__func__", thing.value), doc, thing.is_method)


def test_public_docstrings_are_in_form() -> None:
    found = {name: faults(thing) for name, thing in public().items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def example_modules() -> list[str]:
    folder = Path(undertow.__file__).parent
    names = [m.name for m in pkgutil.walk_packages([str(folder)], "undertow.") if not m.ispkg]
    return [n for n in names if ">>>" in (folder.parent / (n.replace(".", "/") + ".py")).read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", example_modules())
def test_examples_in_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples may save
    if name.startswith("undertow.neural"):
        pytest.importorskip("torch")
    done = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert done.attempted > 0 and done.failed == 0


# --- the check itself can fail --------------------------------------------------------------------------


def well_documented(first: int, *, second: int = 0) -> int:
    """Add.

    Parameters
    ----------
    first, second
        Numbers.

    Returns
    -------
    int
        Their sum.
    """
    return first + second


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("first, second", "second, first", "parameters are"),
        ("first, second", "first", "parameters are"),
        ("Returns\n-------\nint\n    Their sum.", "", "Returns is not"),
        ("Add.", "", "no summary"),
    ],
)
def test_a_docstring_out_of_form_is_found(old: str, new: str, fault: str) -> None:
    assert faults(Public("f", well_documented, is_method=False)) == []

    @functools.wraps(well_documented)
    def wrong(first: int, *, second: int = 0) -> int:
        return 0

    wrong.__doc__ = inspect.cleandoc(well_documented.__doc__ or "").replace(old, new)
    assert any(fault in text for text in faults(Public("f", wrong, is_method=False)))


def test_a_fitted_attribute_without_a_word_is_found() -> None:
    class Model:
        """A model.

        Attributes
        ----------
        one_
            The first.
        """

        def fit(self) -> None:
            self.one_, self.two_ = 1, 2

    assert faults(Public("Model", Model, is_method=False)) == ["Attributes lacks ['two_']"]


if __name__ == "__main__":
    for public_name, thing in public().items():
        for fault in faults(thing):
            print(f"{public_name}: {fault}")
