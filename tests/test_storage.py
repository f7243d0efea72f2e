"""Model directories: what is written comes back, a save is all or nothing, and no bytes crash the loader."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.cases import OTHER_SENTENCES, SENTENCES
from contract.reference import DeletedInterpolation
from sealing import edit_sealed
from undertow import HMM, storage, tensor_file
from undertow.atomic import temporary_staging
from undertow.errors import FormatError, InputError, NotFittedError, UndertowError
from undertow.models.base import Estimator, SavedState, TensorSpec
from undertow.models.constraints import Constraint
from undertow.storage import inspect_model, load_model, register, save_model

FILES = ["README.md", "config.json", "model.safetensors", "vocabulary.txt"]


@register
class Bag(Estimator):
    """Whatever arrays and values a test wants to save, without words."""

    kind: ClassVar[str] = "test-bag"
    constraints: ClassVar[Mapping[str, Constraint]] = {}

    def __init__(self, value: Any = None, *, random_state: Any = None):
        self.value = value
        self.random_state = random_state

    def fit(self, tensors: dict[str, np.ndarray], scalars: dict[str, Any] | None = None) -> Bag:
        self.tensors_, self.scalars_, self.history_ = tensors, scalars or {}, [0.5]
        return self

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        return {name: TensorSpec(t["dtype"], tuple(t["shape"])) for name, t in state.fitted["spec"].items()}

    def _tensors(self) -> dict[str, np.ndarray]:
        return self.tensors_

    def _fitted_scalars(self) -> dict[str, Any]:
        spec = {name: {"dtype": t.dtype.name, "shape": list(t.shape)} for name, t in self.tensors_.items()}
        return {"spec": spec, "scalars": self.scalars_}

    def _restore(self, tensors: Mapping[str, np.ndarray], state: SavedState) -> None:
        self.tensors_, self.scalars_ = dict(tensors), state.fitted["scalars"]


@pytest.fixture(scope="module")
def model() -> DeletedInterpolation:
    return DeletedInterpolation(n_iter=3, random_state=0).fit(SENTENCES)


@pytest.fixture(scope="module")
def whole(model: DeletedInterpolation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("whole") / "model"
    model.save(path)
    return contents(path)


@pytest.fixture
def saved(whole: dict[str, bytes], tmp_path: Path) -> Path:
    return write(tmp_path / "saved", whole)


def contents(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(path.iterdir())}


def write(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir(exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    edit_sealed(path / "config.json", change)
    return path


def forge(path: Path, name: str, data: bytes) -> Path:
    """Put other bytes into a file and their hash into the configuration, as an attacker would."""
    (path / name).write_bytes(data)
    record = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return edit(path, lambda c: c["files"].update({name: record}))


def refused(path: Any, match: str | None = None, error: type[UndertowError] = FormatError) -> None:
    with pytest.raises(error, match=match) as caught:
        load_model(path)
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence and len(sentence) < 1000


# --- there and back -------------------------------------------------------------------------------------


def test_a_model_comes_back_and_is_written_again_byte_by_byte(model: DeletedInterpolation, saved: Path) -> None:
    for verify in (True, False):
        loaded = load_model(saved, verify=verify)
        assert isinstance(loaded, DeletedInterpolation)
        assert loaded.get_params() == model.get_params()
        assert (loaded.history_, loaded.n_tokens_) == (model.history_, model.n_tokens_)
        np.testing.assert_array_equal(loaded.bigram_, model.bigram_, strict=True)
        loaded.save(saved.parent / "again", overwrite=True)
        assert contents(saved.parent / "again") == contents(saved)
    assert sorted(contents(saved)) == FILES
    assert loaded.vocabulary_.counts.tolist() == model.vocabulary_.counts.tolist()


def test_files_have_the_usual_permissions(model: DeletedInterpolation, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    model.save(tmp_path / "model")
    usual = (tmp_path / "plain").stat().st_mode & 0o777
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "model").iterdir()} == {usual}


def test_inspect_reads_the_configuration_alone(saved: Path, model: DeletedInterpolation) -> None:
    (saved / "model.safetensors").unlink()
    config = inspect_model(saved)
    assert config["kind"] == model.kind and config["params"]["smoothing"] == 0.1
    assert config["tensors"]["weights"] == {"dtype": "float64", "shape": [3]}
    assert config["n_words"] == len(model.vocabulary_) and config["history"] == model.history_
    with pytest.raises(FormatError, match="does not exist"):
        inspect_model(saved / "nowhere")


def test_the_card_may_be_edited_or_lost(saved: Path) -> None:
    assert "n_iter" in (saved / "README.md").read_text() and "undertow.load" in (saved / "README.md").read_text()
    (saved / "README.md").write_text("My best model so far.")
    load_model(saved)
    (saved / "README.md").unlink()
    load_model(saved)


def test_a_model_without_words_has_no_vocabulary_file(tmp_path: Path) -> None:
    Bag().fit({"a": np.ones(2)}).save(tmp_path / "bag")
    assert sorted(contents(tmp_path / "bag")) == ["README.md", "config.json", "model.safetensors"]
    loaded = load_model(tmp_path / "bag")
    assert "vocabulary_" not in vars(loaded)


@pytest.mark.parametrize("dtype", sorted(tensor_file.DTYPES))
def test_every_type_and_layout_of_tensor(dtype: str, tmp_path: Path) -> None:
    base = (np.arange(24) % 2 if dtype == "bool" else np.arange(24)).astype(dtype).reshape(4, 6)
    tensors = {
        "plain": base,
        "fortran": np.asfortranarray(base),
        "strided": base[::2, ::3],
        "scalar": base[1, 1].reshape(()),
        "empty": base[:0],
        "big_endian": base.astype(base.dtype.newbyteorder(">")),
    }
    Bag().fit(tensors).save(tmp_path / "bag")
    loaded: Any = load_model(tmp_path / "bag")
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(loaded.tensors_[name], tensor)
        assert loaded.tensors_[name].dtype == np.dtype(dtype) and loaded.tensors_[name].flags.writeable


def test_parameters_become_plain_json(tmp_path: Path) -> None:
    value = [np.float32(0.1), (1, np.int64(2)), "ä\n", {"k": np.bool_(True)}, None, 0.1]
    Bag(value, random_state=np.random.default_rng(0)).fit({}).save(tmp_path / "a")
    loaded: Any = load_model(tmp_path / "a")
    assert loaded.value == [float(np.float32(0.1)), [1, 2], "ä\n", {"k": True}, None, 0.1]
    assert loaded.random_state is None
    loaded.save(tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


UNSAVABLE = [print, np.ones(2), [float("nan")], float("inf"), {1: 2}, "\ud800", 10**400, 10**5000, b"x", {1, 2}]


@pytest.mark.parametrize("value", UNSAVABLE, ids=lambda value: type(value).__name__)
def test_what_json_cannot_hold_is_refused_when_saving(value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(cannot be saved|not a finite number).*\.$"):
        Bag(value).fit({}).save(tmp_path / "bag")
    assert list(tmp_path.iterdir()) == []


def test_what_no_loader_would_take_is_not_saved(model: DeletedInterpolation, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save_model(DeletedInterpolation(), tmp_path / "m")
    spoiled: list[tuple[str, Any, str]] = [
        ("weights_", np.array([1.0, np.nan, 0.0]), "not finite"),
        ("weights_", np.ones(4), "fit again"),
        ("weights_", np.ones(3, dtype=np.float32), "fit again"),
        ("history_", [float("nan")], "history_"),
        ("history_", [], "history_"),
        ("history_", ["good"], "history_"),
        ("smoothing", -1.0, "smoothing"),
        ("n_tokens_", object(), "fitted value"),
    ]
    for name, value, match in spoiled:
        broken = copy.copy(model)
        setattr(broken, name, value)
        with pytest.raises(InputError, match=match):
            save_model(broken, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


# --- places ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", b"bytes", "/"])
def test_what_is_no_path(path: Any, model: DeletedInterpolation) -> None:
    refused(path, error=InputError)
    with pytest.raises(InputError):
        save_model(model, path)


def test_places_that_hold_no_model(saved: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "does not exist")
    refused(saved / "config.json", "is not a directory")
    refused(saved / "config.json" / "below")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", r"config\.json is missing")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop")
    refused(tmp_path / ("x" * 300))


@pytest.mark.parametrize("name", FILES[1:])
def test_pipes_and_directories_for_files(name: str, saved: Path) -> None:
    (saved / name).unlink()
    os.mkfifo(saved / name)
    refused(saved, "is not a file")
    (saved / name).unlink()
    (saved / name).mkdir()
    refused(saved, "is not a file")


@pytest.mark.parametrize("name", FILES[1:])
def test_files_that_may_not_be_read(name: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = open

    def guarded(file: Any, *args: Any, **kwargs: Any) -> Any:  # tests may run as root, whom no mode stops
        if Path(file).name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return real_open(file, *args, **kwargs)

    monkeypatch.setattr("builtins.open", guarded)
    monkeypatch.setattr("io.open", guarded)
    refused(saved, f"{name}.*Permission denied")


def test_a_place_that_may_not_be_written(model: DeletedInterpolation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written.*\.$"):
        model.save(tmp_path / "file" / "model")


def test_nothing_is_overwritten_unasked_and_nothing_foreign_ever(
    model: DeletedInterpolation, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="exists already"):
        model.save(saved)
    foreign = {
        "home": {"thesis.tex": b"years of work"},
        "mixed": contents(saved) | {"notes.txt": b"mine"},
        "hugging-face": {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"weights"},
        "not-json": {"config.json": b"port = 80"},
        "card": {"README.md": b"# My project"},
    }
    for name, files in foreign.items():
        write(tmp_path / name, files)
        with pytest.raises(InputError, match="not overwritten"):
            model.save(tmp_path / name, overwrite=True)
        assert contents(tmp_path / name) == files
    (tmp_path / "a-file").write_text("mine")
    with pytest.raises(InputError, match="not overwritten"):
        model.save(tmp_path / "a-file", overwrite=True)
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty", overwrite=True)
    model.save(saved, overwrite=True)
    left = {p.name for p in tmp_path.iterdir()} - set(foreign)
    assert left == {"saved", "a-file", "empty"}, "something was left behind"


# --- kinds and versions ---------------------------------------------------------------------------------


def test_kinds_are_imported_when_a_directory_asks(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_REGISTERED", {})
    refused(saved, "does not know")
    monkeypatch.setattr(storage, "_MODULES", {DeletedInterpolation.kind: "contract.reference:DeletedInterpolation"})
    assert isinstance(load_model(saved), DeletedInterpolation)


def test_a_kind_belongs_to_one_class() -> None:
    assert register(Bag) is Bag
    with pytest.raises(InputError, match="another model"):
        register(type("Thief", (Bag,), {}))


def test_versions(saved: Path) -> None:
    refused(edit(saved, lambda c: c.update(format_version=2, surprise=1)), "newer undertow.*upgrade undertow")
    refused(edit(saved, lambda c: c.update(format_version=0)), "this undertow reads 1")
    refused(edit(saved, lambda c: c.update(format_version=True)), "format_version")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda c: c["params"].update({"__class__": 1}), "no parameter '__class__'"),
        (lambda c: c["params"].update(callbacks=None), "no parameter 'callbacks'"),
        (lambda c: c["params"].pop("n_iter"), "also has the parameter 'n_iter'"),
        (lambda c: c["params"].update(smoothing=-1), "smoothing=-1 must be"),
        (lambda c: c["params"].update(smoothing="x\ny" * 9), "smoothing="),
        (lambda c: c.update(surprise=1), "never writes the key"),
        (lambda c: c.pop("history"), "no usable 'history'"),
        (lambda c: c.update(history=[True]), "history"),
        (lambda c: c.update(history=[10**400]), "not finite"),
        (lambda c: c.update(n_words=3), "words"),
        (lambda c: c.update(n_words=-1), "words"),
        (lambda c: c.update(n_words=None), "must list the files"),
        (lambda c: c["files"].pop("vocabulary.txt"), "must list the files"),
        (lambda c: c["files"].update({"vocabulary.txt": 3}), "not an object"),
        (lambda c: c["files"]["vocabulary.txt"].update(bytes=1), "bytes"),
        (lambda c: c["files"]["vocabulary.txt"].update(sha256=None), "sha256=None"),
        (lambda c: c["files"]["vocabulary.txt"].update(sha256="0" * 64), "hash"),
        (lambda c: c["files"]["vocabulary.txt"].update(more=1), "never writes"),
        (lambda c: c["fitted"].update(more=1), "fitted value"),
        (lambda c: c["fitted"].update(n_tokens=62.0), "fitted value"),
        (lambda c: c["fitted"].update(n_tokens=True), "fitted value"),
        (lambda c: c["fitted"].clear(), "does not describe"),
        (lambda c: c["tensors"]["weights"].update(shape=[4]), "table of tensors"),
        (lambda c: c["tensors"].pop("weights"), "table of tensors"),
    ],
)
def test_configurations_that_were_changed(saved: Path, change: Any, match: str) -> None:
    refused(edit(saved, change), match)


def test_the_digest_covers_every_value(saved: Path, whole: dict[str, bytes]) -> None:
    """Not only the hashed files: a number that makes sense, changed by hand, is noticed too."""
    config = json.loads(whole["config.json"])
    changes: list[dict[str, Any]] = [
        {"params": {**config["params"], "smoothing": 0.2}},
        {"fitted": {"n_tokens": config["fitted"]["n_tokens"] + 1}},
        {"history": [*config["history"], -1.0]},
        {"undertow_version": "0.0"},
    ]
    for change in changes:
        (saved / "config.json").write_text(json.dumps({**config, **change}))
        refused(saved, "does not match its own digest")
    (saved / "config.json").write_text(json.dumps(config, indent=7, sort_keys=True))  # another layout says the same
    load_model(saved)
    (saved / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "digest"}))
    refused(saved, "older undertow")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocabulary.txt"])
def test_a_link_out_of_the_directory_is_not_followed(saved: Path, tmp_path: Path, name: str) -> None:
    shutil.move(saved / name, tmp_path / "elsewhere")
    (saved / name).symlink_to(tmp_path / "elsewhere")
    refused(saved, f"{name} is a link out of its directory")
    shutil.move(tmp_path / "elsewhere", saved / f"kept-{name}")  # within the directory it may be where it likes
    (saved / name).unlink()
    (saved / name).symlink_to(f"kept-{name}")
    load_model(saved)
    (tmp_path / "alias").symlink_to(saved)  # and the directory itself may be reached by a link
    load_model(tmp_path / "alias")


# --- hostile tensors ------------------------------------------------------------------------------------


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def packed(header: Any, payload: bytes) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + payload


def entry(name: str, **changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda h: h[name].update(changes)


HEADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another name": lambda h: h.update(other=h.pop("weights")),
    "one more": lambda h: h.update(other={"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}),
    "one less": lambda h: h.pop("weights"),
    "metadata": lambda h: h.update(__metadata__={"a": "b"}),
    "another type": entry("weights", dtype="F32"),
    "same size, another type": entry("weights", dtype="I64"),
    "an unknown type": entry("weights", dtype="PICKLE"),
    "no type": entry("weights", dtype=["F64"]),
    "another shape": entry("weights", shape=[1, 3]),
    "a huge shape": entry("weights", shape=[2**62]),
    "a negative shape": entry("weights", shape=[-3]),
    "a float shape": entry("weights", shape=[3.0]),
    "no shape": entry("weights", shape="3"),
    "offsets beyond the end": entry("weights", data_offsets=[2**40, 2**40 + 24]),
    "offsets backwards": entry("weights", data_offsets=[24, 0]),
    "negative offsets": entry("weights", data_offsets=[-24, 0]),
    "float offsets": entry("weights", data_offsets=[0.0, 24.0]),
    "three offsets": entry("weights", data_offsets=[0, 24, 48]),
    "overlapping tensors": lambda h: h["weights"].update(
        data_offsets=[h["unigram"]["data_offsets"][0], h["unigram"]["data_offsets"][0] + 24]
    ),
    "a hole": lambda h: h["unigram"].update(data_offsets=[0, 8 * h["unigram"]["shape"][0]]),
    "a moved border": lambda h: (
        h["unigram"]["data_offsets"].append(h["unigram"]["data_offsets"].pop() + 8),
        h["weights"]["data_offsets"].insert(0, h["weights"]["data_offsets"].pop(0) + 8),
    ),
    "one key more": entry("weights", extra=1),
    "no description": lambda h: h.update(weights=[]),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused_before_mapping(name: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header, payload = header_of((saved / "model.safetensors").read_bytes())
    HEADERS[name](header)
    forge(saved, "model.safetensors", packed(header, payload))
    monkeypatch.setattr(safetensors.numpy, "load_file", lambda path: pytest.fail("it was mapped"))
    refused(saved, r"model\.safetensors is damaged")


RAW: dict[str, Callable[[dict[str, Any], bytes], bytes]] = {
    "empty": lambda h, p: b"",
    "seven bytes": lambda h, p: b"\0" * 7,
    "no header": lambda h, p: struct.pack("<Q", 0) + p,
    "a header longer than the file": lambda h, p: struct.pack("<Q", 2**63) + b"{}" + p,
    "a header of a megabyte": lambda h, p: packed(json.dumps(h).encode() + b" " * (1 << 20), p),
    "not JSON": lambda h, p: packed(b"[" * 900, p),
    "nesting": lambda h, p: packed(b'{"a":' * 90_000, p),
    "not UTF-8": lambda h, p: packed(b"\xff\xfe{}", p),
    "a list": lambda h, p: packed([], p),
    "twice the same name": lambda h, p: packed(json.dumps(h).encode().replace(b"{", b'{"weights": 1, ', 1), p),
    "NaN": lambda h, p: packed(b'{"weights": NaN}', p),
    "a longer payload": lambda h, p: packed(h, p + b"\0"),
    "a shorter payload": lambda h, p: packed(h, p[:-1]),
    "a pickle": lambda h, p: b"\x80\x04\x95" + p,
}


@pytest.mark.parametrize("name", RAW)
def test_hostile_files_are_refused_before_mapping(name: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge(saved, "model.safetensors", RAW[name](*header_of((saved / "model.safetensors").read_bytes())))
    monkeypatch.setattr(safetensors.numpy, "load_file", lambda path: pytest.fail("it was mapped"))
    refused(saved, r"model\.safetensors is damaged")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_must_be_finite(bad: float, saved: Path) -> None:
    header, payload = header_of((saved / "model.safetensors").read_bytes())
    forge(saved, "model.safetensors", packed(header, payload[:-8] + struct.pack("<d", bad)))
    refused(saved, "not finite")


def test_a_reader_that_still_fails_is_translated(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> Any:
        raise safetensors.SafetensorError("two\nlines")

    monkeypatch.setattr(safetensors.numpy, "load_file", fail)
    refused(saved, "two lines")


# --- any bytes at all -----------------------------------------------------------------------------------

edits = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from("rid"), st.binary(min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def mutated(data: bytes, changes: list[tuple[float, str, bytes]]) -> bytes:
    for place, what, new in changes:
        i = int(place * len(data))
        keep = i if what == "i" else i + len(new)
        data = data[:i] + (b"" if what == "d" else new) + data[keep:]
    return data


def loads_or_refuses(path: Path) -> None:
    """No exception but undertow's own, each one sentence."""
    try:
        load_model(path)
    except (FormatError, InputError) as e:
        assert str(e).endswith(".") and "\n" not in str(e), str(e)


@fuzz
@given(changes=edits)
def test_any_bytes_for_a_configuration(changes: Any, saved: Path, whole: dict[str, bytes]) -> None:
    (saved / "config.json").write_bytes(mutated(whole["config.json"], changes))
    loads_or_refuses(saved)


@fuzz
@given(key=st.sampled_from(sorted(storage._CONFIG_TYPES)), inner=st.integers(0, 5), value=json_values)
def test_any_values_in_a_configuration(key: str, inner: int, value: Any, saved: Path, whole: dict[str, bytes]) -> None:
    write(saved, whole)

    def change(config: dict[str, Any]) -> None:
        if isinstance(config[key], dict) and inner and config[key]:
            config[key][sorted(config[key])[inner % len(config[key])]] = value
        else:
            config[key] = value

    loads_or_refuses(edit(saved, change))


@fuzz
@given(changes=edits)
def test_any_bytes_for_a_header(changes: Any, saved: Path, whole: dict[str, bytes]) -> None:
    header, payload = header_of(whole["model.safetensors"])
    raw = mutated(json.dumps(header).encode(), changes)
    write(saved, whole)
    loads_or_refuses(forge(saved, "model.safetensors", packed(raw, payload)))


@fuzz
@given(
    name=st.sampled_from(["weights", "unigram", "bigram", "__metadata__"]),
    field=st.sampled_from(["dtype", "shape", "data_offsets", None]),
    value=json_values | st.lists(st.integers(-2, 700), max_size=3),
)
def test_any_values_in_a_header(name: str, field: Any, value: Any, saved: Path, whole: dict[str, bytes]) -> None:
    header, payload = header_of(whole["model.safetensors"])
    if field is None or name not in header:
        header[name] = value
    else:
        header[name][field] = value
    write(saved, whole)
    loads_or_refuses(forge(saved, "model.safetensors", packed(header, payload)))


@fuzz
@given(name=st.sampled_from(FILES[2:]), changes=edits)
def test_any_bytes_for_the_other_files(name: str, changes: Any, saved: Path, whole: dict[str, bytes]) -> None:
    write(saved, whole)
    loads_or_refuses(forge(saved, name, mutated(whole[name], changes)))


# --- all or nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["replace", "rename", "fsync"])
def test_a_save_that_fails_anywhere_leaves_the_old_model(
    function: str, saved: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = DeletedInterpolation(n_iter=2, random_state=1).fit(OTHER_SENTENCES)
    real = getattr(os, function)
    failures = 0
    for nth in range(1, 20):
        calls = 0

        def fail(*args: Any, nth: int = nth) -> Any:
            nonlocal calls
            calls += 1
            if calls == nth:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args)

        with monkeypatch.context() as patch:
            if function == "rename":  # where two names cannot be exchanged
                patch.setattr("undertow.atomic._exchange", lambda a, b: False)
            patch.setattr(os, function, fail)
            try:
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    new.save(saved, overwrite=True)
            except InputError as e:
                assert "No space left" in str(e)
                failures += 1
        if calls < nth:
            break  # there is no nth call: everything was tried
        present = contents(saved)
        if present != whole:  # what fails after the last rename, with the new model in its place, is a warning
            (warning,) = said
            assert function == "fsync" and load_model(saved).history_ == new.history_ and "flushed" in str(warning)
            write(saved, whole)
    assert failures >= 2 and calls < nth
    assert load_model(saved).history_ == new.history_


KILLED_SAVE = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from contract.cases import OTHER_SENTENCES
from contract.reference import DeletedInterpolation
function, nth, after = {function!r}, {nth}, {after}
model = DeletedInterpolation(n_iter=2, random_state=1).fit(OTHER_SENTENCES)
import undertow.atomic as atomic
if function == "rename":  # where two names cannot be exchanged
    atomic._exchange = lambda a, b: False
module = atomic if function == "_exchange" else os
real, calls = getattr(module, function), 0
def deadly(*args):
    global calls
    calls += 1
    if calls == nth and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args)
    if calls == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(module, function, deadly)
model.save({path!r}, overwrite=True)
"""


@pytest.mark.parametrize(
    ("function", "nth", "after", "expected"),
    [
        ("replace", 1, False, "old"),
        ("replace", 3, True, "old"),
        ("rename", 1, False, "old"),
        ("rename", 1, True, "aside"),
        ("rename", 2, True, "new"),
        ("_exchange", 1, False, "old"),
        ("_exchange", 1, True, "new"),
    ],
)
def test_a_killed_save_leaves_a_whole_model(
    function: str, nth: int, after: bool, expected: str, saved: Path, whole: dict[str, bytes]
) -> None:
    tests = str(Path(__file__).parent)
    script = KILLED_SAVE.format(tests=tests, function=function, nth=nth, after=after, path=str(saved))
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    if expected == "aside":
        # between the two renames the name is free for a moment; the old model waits beside it, whole
        (old,) = saved.parent.glob(".saved.tmp-*/old")
        assert not saved.exists() and contents(old) == whole
        with temporary_staging(saved):  # the next writer gives it back
            pass
        assert list(saved.parent.iterdir()) == [saved]
    if expected == "new":
        assert len(load_model(saved).history_) == 2
    else:
        assert contents(saved) == whole


def test_an_hmm_saved_before_it_had_embeddings_loads(tmp_path: Path) -> None:
    model = HMM(2, n_iter=1, random_state=0).fit([["a", "b"], ["b", "a"]])
    model.save(tmp_path / "m")
    edit(tmp_path / "m", lambda c: [c["params"].pop(name) for name in HMM.added_params])
    assert load_model(tmp_path / "m").get_params() == model.get_params()
    refused(edit(tmp_path / "m", lambda c: c["params"].pop("n_states")), "also has the parameter 'n_states'")
