"""Model directories: written all or nothing, read without trusting a byte of them.

    config.json         kind, format version, parameters, fitted scalars, history, tensor table, file hashes, and a
                        digest over all of these
    model.safetensors   the tensors
    vocabulary.txt      the words, for models that have them
    README.md           the model card, for people and the Hugging Face Hub; it may be edited and is not hashed
    recipe.json         of what a command fitted: its inputs and options (`recipe`); not hashed

Nothing is ever unpickled, and the same model gives the same bytes: there is no date in any file. The loader
works from the outside in: it reads the configuration strictly, finds the class by its `kind`, lets the class
say which tensors such a model has, compares the header of the safetensors file with that, and only then maps
the file. Last it lets the class look at the values, and compares what came back with what was read.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from undertow import __version__
from undertow.atomic import READY, DirectoryKind, check_directory_target, install_directory, temporary_staging
from undertow.errors import FormatError, InputError, UndertowError, short
from undertow.files import (
    DIGEST,
    check_files,
    check_seal,
    describe_files,
    read_json,
    reread_if_replaced,
    write_bytes,
    write_sealed,
)
from undertow.models.base import Estimator, SavedState, TensorSpec
from undertow.recipe import Recipe, write_recipe
from undertow.tensor_file import DTYPES, Tensors, all_finite, read_tensors, why, write_tensors
from undertow.text.vocabulary import Vocabulary

CONFIG, TENSORS, VOCABULARY, CARD = "config.json", "model.safetensors", "vocabulary.txt", "README.md"
MODEL = DirectoryKind(
    "a model",
    CONFIG,
    re.compile("|".join(map(re.escape, (CONFIG, TENSORS, VOCABULARY, CARD)))),
    # other projects keep a config.json beside a model.safetensors too
    lambda config: "undertow_version" in config,
)

# Where each kind lives, "module:class", imported only when a directory asks for it: one line a model.
_MODULES: dict[str, str] = {
    "hmm": "undertow.models.hmm.model:HMM",
    "lds": "undertow.models.lds.model:LDS",
    "fhmm": "undertow.models.factorial.model:FactorialHMM",
    "grammar": "undertow.models.grammar.model:Grammar",
    "clusters": "undertow.results.word_clusters:WordClusters",
    "pmi": "undertow.results.pmi_vectors:PMIVectors",
    "context": "undertow.results.context_vectors:ContextVectors",
    "crf-tagger": "undertow.results.tagging:CRFTagger",
    "local-tagger": "undertow.results.tagging:LocalTagger",
    "tagger": "undertow.results.tagging:Tagger",
    "dynamic": "undertow.models.dynamic.model:DynamicEmbedding",
}
_REGISTERED: dict[str, type[Estimator]] = {}

_CONFIG_TYPES: dict[str, type | tuple[type, ...]] = {
    "kind": str,
    "format_version": int,
    "undertow_version": str,
    "params": dict,
    "fitted": dict,
    "history": list,
    "n_words": (int, type(None)),
    "tensors": dict,
    "files": dict,
    DIGEST: str,
}
_OPTIONAL = {"bits"}  # bits of a number in the tables, if these are codes

Model = TypeVar("Model", bound=Estimator)


def register(model_class: type[Model]) -> type[Model]:
    """Make a model class that is defined outside undertow loadable; use it as a class decorator.

    Parameters
    ----------
    model_class
        A subclass of `Estimator` with a `kind` of its own.

    Returns
    -------
    type
        The same class.

    Raises
    ------
    InputError
        If another model already has this kind.
    """
    kind, name = model_class.kind, model_class.__name__
    known = _REGISTERED.get(kind)
    if kind in _MODULES or (known is not None and known.__qualname__ != model_class.__qualname__):
        raise InputError(f"The kind {kind!r} belongs to another model already: give {name} another.")
    _REGISTERED[kind] = model_class
    return model_class


def save_model(
    model: Estimator,
    path: str | os.PathLike[str],
    overwrite: bool = False,
    made: Recipe | None = None,
    bits: int | None = None,
) -> None:
    """Write a fitted model to a directory that is either whole or what it was before; `made` says how it was made."""
    target = _as_path(path)
    if bits is not None and not _has_bits(type(model), bits):
        known = " or ".join(map(str, model.table_bits))
        cure = f"give {known}, or leave it out" if known else "leave it out"
        raise InputError(f"{type(model).__name__} has no tables of bits={short(bits)}: {cure}.")
    model._check_fitted()
    model._check_params()  # a loader will: they may have been changed since the fit
    vocabulary = vars(model).get("vocabulary_")
    fitted = json_value(model._fitted_scalars(), "a fitted value")
    state = SavedState(saved_params(model), fitted, None if vocabulary is None else len(vocabulary))
    tensors = checked_tensors(model, state)
    if bits is not None:  # checked again: what is written must be what a loader takes
        state = state._replace(bits=bits)
        tensors = checked_tensors(model, state)
    history = json_value(list(model.history_), "history_")
    if not _is_history(history):
        raise InputError("The model cannot be saved: history_ is not a filled list of numbers; fit it again.")
    config: dict[str, Any] = {
        "kind": model.kind,
        "format_version": model.format_version,
        "undertow_version": __version__,
        "params": state.params,
        "fitted": state.fitted,
        "history": history,
        "n_words": state.n_words,
        **({} if bits is None else {"bits": bits}),
        "tensors": {name: {"dtype": t.dtype.name, "shape": list(t.shape)} for name, t in tensors.items()},
    }
    check_directory_target(target, MODEL, overwrite=overwrite)
    with temporary_staging(target) as staging:
        ready = staging / READY
        write_bytes(ready / CARD, _card(type(model).__name__, config).encode("utf-8"))
        write_tensors(ready / TENSORS, tensors)
        if vocabulary is not None:
            vocabulary.write(ready / VOCABULARY)
        if made is not None:
            write_recipe(ready, made)
        files = describe_files(ready, _file_names(state.n_words))
        write_sealed(ready / CONFIG, config | {"files": files})
        install_directory(staging, target, MODEL, overwrite=overwrite)


def check_target(path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Refuse at once, not after hours of fitting, a place where `save_model` could not write."""
    check_directory_target(_as_path(path), MODEL, overwrite=overwrite)


@reread_if_replaced(CONFIG)
def load_model(path: str | os.PathLike[str], verify: bool = True) -> Estimator:
    """Load a model that was saved with `model.save`; public as `undertow.load`.

    The files are not trusted: their format, types, shapes and values are checked, and nothing is unpickled.

    Parameters
    ----------
    path
        The directory of the model.
    verify
        Compare the hashes of the files with the configuration; all other checks are always made.

    Returns
    -------
    Estimator
        The fitted model, of the class that saved it.

    Raises
    ------
    FormatError
        If the directory is missing, damaged, or of an unknown kind or version.
    """
    directory = _as_path(path)
    with _reading(directory):
        model_class, config = _read_config(directory)
        check_files(directory, config["files"], hashes=verify)
        vocabulary = _read_vocabulary(directory, config)
        with _distrusting(directory, model_class.kind):
            state = model_class._upgrade(_state_of(config))
        model = model_class(**state.params)
        with _distrusting(directory, model.kind):
            model._check_params()
        spec = _expected_tensors(directory, model_class, state)
        if config["tensors"] != {name: {"dtype": t.dtype, "shape": list(t.shape)} for name, t in spec.items()}:
            raise _changed(directory / CONFIG, "the table of tensors does not fit the parameters")
        tensors = read_tensors(directory / TENSORS, spec)
        if vocabulary is not None:
            model.vocabulary_ = vocabulary
        with _distrusting(directory, model.kind):
            restore(model, tensors, state, config["history"])
    return model


def restore(model: Estimator, tensors: Tensors, state: SavedState, history: list[Any]) -> None:
    """Give a model its fitted state, if it is one that a fit could have left."""
    model._check_values(tensors, state)
    model._restore(tensors, state)
    if not _is_history(history):
        raise InputError("the history is not a list of numbers.")
    model.history_ = [float(x) for x in history]
    # what comes back must be what would be written: so no unknown value, no missing one and none of another type,
    # in any object however deep, passes unseen
    again = json_value(model._fitted_scalars(), "a fitted value")
    if json.dumps(again, sort_keys=True) != json.dumps(state.fitted, sort_keys=True):
        names = [k for k in {**again, **state.fitted} if json.dumps(again.get(k)) != json.dumps(state.fitted.get(k))]
        raise InputError(f"a fitted value is not one that undertow writes ({', '.join(map(short, names[:3]))}).")


def inspect_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The configuration of a model directory as the loader checks it, without reading the other files."""
    directory = _as_path(path)
    with _reading(directory):
        return _read_config(directory)[1]


# --- the configuration ----------------------------------------------------------------------------------


def _read_config(directory: Path) -> tuple[type[Estimator], dict[str, Any]]:
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise FormatError(f"{directory} {what}: give the directory of a model that undertow saved.")
    path = directory / CONFIG
    if not path.exists() and (directory / "manifest.json").exists():
        raise FormatError(f"{directory} is a corpus or counts, not a model: give a model that was fitted to it.")
    config = read_json(path)
    # the version comes first: what a newer undertow wrote may differ in anything else
    _check_types(path, config, ["kind", "format_version", "undertow_version"])
    model_class = find_class(path, config["kind"], config["format_version"])
    check_seal(path, config)
    _check_types(path, config, list(_CONFIG_TYPES))
    for key in config:
        if key not in _CONFIG_TYPES and key not in _OPTIONAL:
            raise _changed(path, f"undertow never writes the key {short(key)}")
    if "bits" in config and not _has_bits(model_class, config["bits"]):
        raise _changed(path, f"{model_class.__name__} has no tables of bits={short(config['bits'])}")
    if not _is_finite_json(config):
        raise _changed(path, "a number in it is not finite")
    if not _is_history(config["history"]):
        raise _changed(path, "the history is not a list of numbers")
    files = _file_names(config["n_words"])
    if set(config["files"]) != set(files):
        raise _changed(path, f"it must list the files {', '.join(files)} and no others")
    _check_param_names(path, model_class, config["params"])
    return model_class, config


def _state_of(config: dict[str, Any]) -> SavedState:
    return SavedState(config["params"], config["fitted"], config["n_words"], config.get("bits"))


def _has_bits(model_class: type[Estimator], bits: object) -> bool:
    return type(bits) is int and bits in model_class.table_bits  # for 8.0 == 8


def _check_types(path: Path, config: dict[str, Any], keys: list[str]) -> None:
    for key in keys:
        value = config.get(key, ...)
        if not isinstance(value, _CONFIG_TYPES[key]) or isinstance(value, bool):
            raise _changed(path, f"it has no usable {key!r}")


def _file_names(n_words: int | None) -> list[str]:
    return [TENSORS] if n_words is None else [TENSORS, VOCABULARY]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_history(value: list[Any]) -> bool:
    return len(value) > 0 and all(_is_number(x) for x in value)


def _is_finite_json(value: Any) -> bool:
    """JSON has no NaN, but 1e999 reads as infinity and an integer may be too long for a float."""
    stack = [value]  # not recursion: how deep it is nested is the file's choice
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
        elif _is_number(value) and not -sys.float_info.max <= value <= sys.float_info.max:
            return False
    return True


def classes() -> dict[str, type[Estimator]]:
    """Every kind that can be loaded here, with its class."""
    return {kind: _class_of(kind) for kind in _MODULES} | _REGISTERED


def _class_of(kind: str) -> type[Estimator]:
    module, _, name = _MODULES[kind].partition(":")
    model_class: type[Estimator] = getattr(importlib.import_module(module), name)
    return model_class


def find_class(path: Path, kind: str, version: int) -> type[Estimator]:
    model_class = _REGISTERED.get(kind)
    if model_class is None and kind in _MODULES:
        model_class = _class_of(kind)
    if model_class is None:
        raise FormatError(
            f"{path} is of a model of the kind {short(kind)}, which this undertow does not know: "
            "upgrade undertow, or import the package that registers it."
        )
    known = model_class.format_version
    if version > known:
        raise FormatError(
            f"{path} was written by a newer undertow (format {short(version)}, this one reads {known}): "
            "upgrade undertow."
        )
    if version < known:
        raise FormatError(
            f"{path} has format {short(version)}, and this undertow reads {known}: "
            "fit the model again, or use the undertow that wrote it."
        )
    return model_class


def _check_param_names(path: Path, model_class: type[Estimator], params: dict[str, Any]) -> None:
    expected = set(model_class.param_defaults()) - model_class.unsaved_params
    for name in sorted(set(model_class._current_params(params)) ^ expected):
        verb = "has no parameter" if name in params else "also has the parameter"
        raise _changed(path, f"{model_class.__name__} {verb} {short(name)}")


def saved_params(model: Estimator) -> dict[str, Any]:
    """Parameters as JSON, without those that are no JSON by nature; a Generator becomes None."""
    params = {name: value for name, value in model.get_params().items() if name not in model.unsaved_params}
    if isinstance(params.get("random_state"), np.random.Generator):
        params["random_state"] = None
    return {name: json_value(value, f"the parameter {name}") for name, value in params.items()}


def json_value(value: Any, what: str) -> Any:
    """The value in JSON's own types, so that what is saved and what is loaded write the same file."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if _is_number(value) and _is_finite_json(value):
        return value
    if isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value):  # half pairs: not UTF-8
        return value
    if isinstance(value, list | tuple):
        return [json_value(item, what) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {json_value(key, what): json_value(item, what) for key, item in value.items()}
    raise InputError(
        f"The model cannot be saved: {what} is {short(value)}, where only finite numbers, text, lists and "
        "None can be; change it and fit again."
    )


# --- tensors --------------------------------------------------------------------------------------------


def checked_tensors(model: Estimator, state: SavedState) -> Tensors:
    """The model's tensors in the order of its specification, refused here if no loader would take them."""
    spec = model._tensor_spec(state)
    tensors = model._tensors() if state.bits is None else model._coded_tensors(state.bits)
    name = type(model).__name__
    if set(spec) != set(tensors):
        raise InputError(f"This {name} cannot be saved: its tensors are not those it names; report this bug.")
    out: Tensors = {}
    for key, (dtype, shape) in spec.items():
        tensor = np.asarray(tensors[key])
        if tensor.dtype.name != dtype or tensor.shape != tuple(shape):
            raise InputError(
                f"This {name} cannot be saved: its tensor {key} is {tensor.dtype.name}{tensor.shape}, its "
                f"parameters say {dtype}{tuple(shape)}; if they were changed after the fit, fit again."
            )
        if not all_finite(tensor):
            raise InputError(f"This {name} cannot be saved: its tensor {key} is not finite; fit it again.")
        # safetensors writes the buffer as it lies in memory
        out[key] = np.array(tensor, order="C", dtype=tensor.dtype.newbyteorder("<"), copy=None)
    try:
        model._check_values(out, state)
    except Exception as e:  # a check meets arrays that should not be; whatever it trips over, the model is at fault
        raise InputError(f"This {name} cannot be saved ({why(e).rstrip('.')}): fit it again.") from e
    return out


def _expected_tensors(directory: Path, model: type[Estimator], state: SavedState) -> dict[str, TensorSpec]:
    with _distrusting(directory, model.kind):
        spec = {name: TensorSpec(t[0], tuple(t[1])) for name, t in model._tensor_spec(state).items()}
        for dtype, shape in spec.values():
            if dtype not in DTYPES or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
                raise ValueError("no such tensor can be")
    return spec


# --- words ----------------------------------------------------------------------------------------------


def _read_vocabulary(directory: Path, config: dict[str, Any]) -> Vocabulary | None:
    n_words = config["n_words"]
    if n_words is None:
        return None
    vocabulary = Vocabulary.read(directory / VOCABULARY)
    if len(vocabulary) != n_words:
        raise _changed(directory / VOCABULARY, f"it has {len(vocabulary)} words, not {short(n_words)}")
    return vocabulary


def _card(class_name: str, config: dict[str, Any]) -> str:
    """The model card: from the configuration alone, without a date, so that equal models have equal cards."""
    params, history = config["params"], config["history"]
    lines = [
        # what the Hugging Face Hub reads: `adapters/huggingface.py` adds to it
        *("---", "library_name: undertow", "tags:", "- undertow", f"- {config['kind']}", "---"),
        "",
        f"# {class_name}",
        "",
        f"A model of the kind `{config['kind']}`, saved by undertow {config['undertow_version']}.",
        "",
        "```python",
        "import undertow",
        "",
        'model = undertow.load("path/to/this/directory")',
        "```",
        "",
        "| parameter | value |",
        "|---|---|",
        *(f"| `{name}` | `{json.dumps(value, ensure_ascii=False)}` |" for name, value in params.items()),
        "",
        f"Iterations: {len(history)}. Objective after the last: {history[-1]:.6g}.",
        *([] if config["n_words"] is None else [f"Words: {config['n_words']}."]),
        "",
        "| tensor | type | shape |",
        "|---|---|---|",
        *(f"| `{name}` | {t['dtype']} | {t['shape']} |" for name, t in config["tensors"].items()),
        "",
    ]
    return "\n".join(lines)


# --- paths and failures ---------------------------------------------------------------------------------


def _as_path(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{short(path)} is not the name of a directory: give a path.")
    absolute = Path(os.path.abspath(text))
    if not absolute.name:
        raise InputError(f"{absolute} cannot be a model's directory: give a directory below it.")
    return absolute


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        place = e.filename if isinstance(e.filename, str) else directory
        raise FormatError(f"{place} cannot be read ({why(e)}): check its name and permissions.") from e
    except MemoryError as e:
        raise FormatError(f"{directory} does not fit into memory: load it on a larger machine.") from e


@contextlib.contextmanager
def _distrusting(directory: Path, kind: str) -> Iterator[None]:
    """Around a model's own code that meets values from a file: whatever it raises, the file is at fault."""
    try:
        yield
    except UndertowError as e:
        raise FormatError(f"{directory / CONFIG}: {e}") from e
    except Exception as e:
        raise _changed(directory / CONFIG, f"it does not describe a model of the kind {kind!r}") from e


def _changed(path: Path, why: str) -> FormatError:
    return FormatError(f"{path} was changed or not written by undertow ({why}): save the model again.")
