"""The verbs of the linear dynamical system, on a corpus of a few words."""

from __future__ import annotations

import functools
import io
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import failed, run, run_process
from contract.cases import SENTENCES
from contract.reference import DeletedInterpolation
from undertow import LDS, Corpus, LagCounts, load
from undertow.adapters.word2vec import read_word2vec
from undertow.cli.common import plain_warnings, progress_bar
from undertow.progress import Progress
from undertow.text import sentences as sentences_module
from waiting import HANGS

SMALL = "--components 3 --iterations 2 --lags 3 --ssid-lags 2 --kappa 1 --seed 0 -j 1".split()
LINES = (
    "The cat sat on the mat.",
    "They sat on the bank of the river. The river flows to the sea.",
    "A bank lends money to the people.",
    "It’s a naïve line, with 3 numbers.",
)
NEW = "They sat on the bank of the Thames.\n\nA naïve cat flows to the bank, the bank of 7 rivers! Yes.\n"
TOKENS = [
    "They sat on the bank of the Thames .".split(),
    "A naïve cat flows to the bank , the bank of NUM rivers !".split(),
    ["Yes", "."],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with news.txt, the model news.lds that was fitted to it, and new.txt."""
    path = tmp_path_factory.mktemp("lds")
    draw = random.Random(0)
    (path / "news.txt").write_text("".join(draw.choice(LINES) + "\n" for _ in range(200)))
    (path / "new.txt").write_text(NEW)
    done = run("fit", "lds", path / "news.txt", "-o", path / "news.lds", *SMALL, "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (path / "facts.json").write_text(done.stdout)
    return path


@pytest.fixture(scope="module")
def model(place: Path) -> Any:
    return load(place / "news.lds")


# --- fit ------------------------------------------------------------------------------------------------


def test_from_text_to_model(place: Path, model: Any) -> None:
    facts = json.loads((place / "facts.json").read_text())
    assert facts["corpus"] == str(place / "news.corpus") and facts["counts"] == str(place / "news.counts")
    assert facts["tokens"] == Corpus.open(place / "news.corpus").n_tokens and facts["words"] == len(model.vocabulary_)
    assert facts["iterations"] == facts["planned_iterations"] == 4
    assert facts["objective"] == pytest.approx(model.history_[-1], rel=1e-6)
    direct = LDS(3, n_iter=2, lags=3, ssid_lags=2, kappa=1.0, random_state=0).fit(LagCounts.open(place / "news.counts"))
    np.testing.assert_array_equal(direct.word_vectors(), model.word_vectors())


def test_options_that_are_not_given_are_those_of_the_class(place: Path, model: Any) -> None:
    given = {"n_components", "n_iter", "lags", "ssid_lags", "kappa", "random_state", "n_jobs", "callbacks"}
    defaults = {k: v for k, v in LDS.param_defaults().items() if k not in given}
    assert defaults.items() <= model.get_params().items()
    shown = " ".join(run("fit", "lds", "--help").stdout.split())
    for option, parameter in {"--noise": "noise", "--ssid-lags": "ssid_lags", "--components": "n_components"}.items():
        default = LDS.param_defaults()[parameter]
        assert f"[default: {default}" in shown[shown.index(f" {option} ") :][:160]


def test_corpus_and_counts_give_the_same_model(place: Path, tmp_path: Path) -> None:
    for name, extra in (("news.corpus", ()), ("news.counts", ("--full-iterations", "2"))):
        out = tmp_path / f"{name}.lds"
        assert run("fit", "lds", place / name, "-o", out, *SMALL, *extra).returncode == 0
        assert (out / "model.safetensors").read_bytes() == (place / "news.lds" / "model.safetensors").read_bytes()
    assert LagCounts.open(tmp_path / "news.corpus.counts").lags == 3
    assert not (tmp_path / "news.counts.counts").exists()


def test_what_fit_refuses(place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").touch()
    (tmp_path / "m.counts").mkdir()
    counts, out = place / "news.counts", tmp_path / "out.lds"
    for reason, *arguments in [
        (
            "exists already and was made differently (from news.txt, now news.counts",
            counts,
            "-o",
            place / "news.lds",
            *SMALL,
        ),
        ("not overwritten", counts, "-o", tmp_path / "mine", *SMALL, "--overwrite"),
        ("not a writable directory", counts, "-o", tmp_path / "file" / "m.lds", *SMALL),
        ("add them first", counts, counts, "-o", out, *SMALL),
        ("do not mix them", counts, place / "news.txt", "-o", out, *SMALL),
        ("without manifest.json", place / "news.lds", "-o", out, *SMALL),
        ("needs lags=7", place / "news.txt", "-o", out, "--lags", "3"),
        ("ssid_lags=2", place / "news.txt", "-o", out, *SMALL, "--ssid-lags", "1"),
        ("these have 3", counts, "-o", out),
        ("no file matches", tmp_path / "*.nothing", "-o", out, *SMALL),
        ("kappa", counts, "-o", out, *SMALL, "--kappa", "nan"),
    ]:
        assert reason in failed(run("fit", "lds", *arguments))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "m.counts", "mine"]  # and no corpus, no counts
    failed(run("fit", "lds", counts, "-o", out, "--components", "0"), 2)
    failed(run("fit", "nonsense", counts, "-o", out), 2)


def test_progress_and_ctrl_c_on_a_terminal(place: Path, tmp_path: Path) -> None:
    """The bar shows iterations and objective; Ctrl-C saves the last finished iteration."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    out = tmp_path / "m.lds"
    long = ["--components", "1", "--iterations", "1000000"]  # wider states end early on so little text
    arguments = ["fit", "lds", str(place / "news.counts"), "-o", str(out), *SMALL, *long, "--json"]
    command = [sys.executable, "-m", "undertow", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        deadline = time.monotonic() + HANGS
        sent = False
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    seen += os.read(ours, 1 << 16)
                except OSError:  # the terminal is closed: the process has ended
                    break
            if b"objective" in seen and not sent:
                process.send_signal(signal.SIGINT)
                sent = True
        if time.monotonic() >= deadline:
            process.kill()
        assert process.stdout
        facts = json.loads(process.stdout.read())
        assert process.wait(HANGS) == 0
    os.close(ours)
    screen = seen.decode()
    assert "/1000002" in screen and "objective -" in screen
    assert screen.count("undertow: Interrupted after ") == 1 and "Warning" not in screen and "Traceback" not in screen
    assert 0 < facts["iterations"] < facts["planned_iterations"] == 1_000_002
    assert len(load(out).history_) == facts["iterations"]


def test_ctrl_c_never_cuts_the_bar_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """tqdm leaves half an object behind when an interrupt falls into its constructor: it comes afterwards instead."""
    import tqdm

    whole = []

    class Interrupted(tqdm.tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **keywords: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            super().__init__(*args, **keywords)
            whole.append(self)

    monkeypatch.setattr(tqdm, "tqdm", Interrupted)
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), progress_bar() as progress:
        progress(Progress("fit", 1, 2, "iteration", "objective -1"))
    assert whole and whole[0].n == 1 and "objective -1" in terminal.getvalue()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_warning_is_one_sentence(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "filters", [])
    for with_bars in (True, False):
        if not with_bars:
            monkeypatch.delitem(sys.modules, "tqdm", raising=False)
        with plain_warnings():
            warnings.warn("EM stopped\nearly.", UserWarning, stacklevel=1)
        assert capsys.readouterr().err == "undertow: EM stopped early.\n"


def test_inspect_and_verify_know_the_model(place: Path) -> None:
    facts = json.loads(run("inspect", place / "news.lds", "--json").stdout)
    assert facts["kind"] == "lds" and facts["params"]["n_components"] == 3
    assert run("verify", place / "news.lds").stdout == f"{place / 'news.lds'}: whole (lds model)\n"
    text = run("inspect", place / "news.lds").stdout
    assert "objective" in text and "→" in text and max(map(len, text.split("\n"))) < 400


# --- embed ----------------------------------------------------------------------------------------------


def read_vectors(path: Path, format_: str) -> tuple[list[list[str]], list[np.ndarray]]:
    """Tokens and vectors, sentence by sentence, as a reader of each format would."""
    if format_ == "npz":
        with np.load(path, allow_pickle=False) as z:
            assert sorted(z) == ["offsets", "token_offsets", "tokens", "vectors"]
            assert [z[k].dtype for k in sorted(z)] == [np.int64, np.int64, np.uint8, np.float32]
            raw, cuts = z["tokens"].tobytes(), z["token_offsets"]
            words = [raw[a:b].decode() for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
            assert cuts[-1] == len(raw) and len(words) == len(z["vectors"])
            spans = list(zip(z["offsets"][:-1], z["offsets"][1:], strict=True))
            return [words[a:b] for a, b in spans], [z["vectors"][a:b] for a, b in spans]
    if format_ == "parquet":
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(path).to_pylist()
        n = rows[-1]["sentence"] + 1
        sentences = [[r for r in rows if r["sentence"] == i] for i in range(n)]
        assert all([r["position"] for r in s] == list(range(len(s))) for s in sentences)
        vectors = [np.array([r["vector"] for r in s], dtype=np.float32) for s in sentences]
        return [[r["token"] for r in s] for s in sentences], vectors
    if format_ == "jsonl":
        rows = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
        return [r["tokens"] for r in rows], [np.array(r["vectors"], dtype=np.float32) for r in rows]
    blocks = path.read_text().split("\n\n")
    assert blocks.pop() == ""
    pairs = [[line.split("\t") for line in block.split("\n")] for block in blocks]
    return [[t for t, _ in b] for b in pairs], [np.array([v.split(" ") for _, v in b], dtype=np.float32) for b in pairs]


FORMATS = {"npz": ".npz", "parquet": ".parquet", "jsonl": ".jsonl", "text": ".txt"}


@pytest.mark.parametrize("format_", FORMATS)
def test_embed_writes_what_transform_gives(place: Path, model: Any, tmp_path: Path, format_: str) -> None:
    out = tmp_path / f"v{FORMATS[format_]}"
    done = run("embed", place / "news.lds", place / "new.txt", "-o", out, "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    facts = json.loads(done.stdout)
    assert (facts["format"], facts["sentences"], facts["tokens"], facts["dimensions"]) == (format_, 3, 25, 6)
    tokens, vectors = read_vectors(out, format_)
    assert tokens == TOKENS
    for written, expected in zip(vectors, model.transform(TOKENS), strict=True):
        assert written.tobytes() == expected.tobytes()
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("view", ["type", "filter", "smooth"])
def test_views(place: Path, model: Any, tmp_path: Path, view: str) -> None:
    out = tmp_path / "v.npz"
    assert run("embed", place / "news.lds", place / "new.txt", "-o", out, "--view", view).returncode == 0
    for written, expected in zip(read_vectors(out, "npz")[1], model.transform(TOKENS, view), strict=True):
        assert written.shape[1] == 3 and written.tobytes() == expected.tobytes()


def test_embed_from_standard_input_to_standard_output(place: Path, model: Any, tmp_path: Path) -> None:
    text = b"the bank\nMONEY\n"
    done = run("embed", place / "news.lds", "-", "--tokenizer", "spaces", "--lower", stdin=text)
    (tmp_path / "v.jsonl").write_text(done.stdout)
    tokens, vectors = read_vectors(tmp_path / "v.jsonl", "jsonl")
    assert tokens == [["the", "bank"], ["money"]] and done.stderr == ""
    np.testing.assert_array_equal(vectors[1], model.transform(tokens)[1])


def test_the_model_remembers_how_its_text_was_cut(place: Path, tmp_path: Path) -> None:
    lowered, out = tmp_path / "low.lds", tmp_path / "v.jsonl"
    assert run("fit", "lds", place / "news.txt", "-o", lowered, *SMALL, "--lower").returncode == 0
    (tmp_path / "t.txt").write_text("The CAT sat.\n")

    def tokens(*options: str) -> list[str]:
        done = run("embed", lowered, tmp_path / "t.txt", "-o", out, "--overwrite", *options)
        assert done.returncode == 0, done.stderr
        found: list[str] = json.loads(out.read_text())["tokens"]
        return found

    assert tokens() == ["the", "cat", "sat", "."]
    assert tokens("--tokenizer", "spaces") == [
        "the",
        "cat",
        "sat.",
    ]  # what is given goes first, the rest is the model's
    same = run("neighbors", lowered, "--sentence", "THE BANK", "--word", "bank", "--json")
    assert same.returncode == 0, same.stderr


def test_a_reader_that_leaves_is_no_error(place: Path) -> None:
    verb = f"{sys.executable} -m undertow embed {place / 'news.lds'} {place / 'news.txt'} --output-format text"
    done = subprocess.run(
        ["bash", "-c", f"{verb} | head -1; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1


@pytest.mark.parametrize("format_", FORMATS)
def test_embed_works_batch_by_batch(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    """However small the batches, the file is the same: nothing needs the whole text at once.

    To the byte for "type"; the sums of the other views are in another order, as the test below allows for.
    """
    name = f"v{FORMATS[format_]}"
    arguments = ("embed", place / "news.lds", place / "news.txt", "--view", "type", "-o")
    assert run(*arguments, tmp_path / name).returncode == 0
    sizes: list[int] = []
    transform = LDS.transform

    @functools.wraps(transform)
    def watched(self: LDS, X: Any, *args: Any, **kwargs: Any) -> Any:
        sizes.append(sum(map(len, X)))
        return transform(self, X, *args, **kwargs)

    monkeypatch.setattr(LDS, "transform", watched)
    monkeypatch.setattr(sentences_module, "BATCH_TOKENS", 10)
    assert run(*arguments, tmp_path / f"small-{name}").returncode == 0
    assert len(sizes) > 50 and max(sizes) < 30
    if format_ == "parquet":  # a row group a batch: the bytes differ, the table does not
        import pyarrow.parquet

        tables = [pyarrow.parquet.read_table(tmp_path / n) for n in (name, f"small-{name}")]
        assert tables[0].equals(tables[1])
    else:
        assert (tmp_path / name).read_bytes() == (tmp_path / f"small-{name}").read_bytes()


def test_batches_change_no_context(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("embed", place / "news.lds", place / "new.txt", "--view", "smooth", "-o")
    run(*arguments, tmp_path / "a.npz")
    monkeypatch.setattr(sentences_module, "BATCH_TOKENS", 1)
    run(*arguments, tmp_path / "b.npz")
    a, b = (np.concatenate(read_vectors(tmp_path / name, "npz")[1]) for name in ("a.npz", "b.npz"))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_embed_without_arrow(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("embed", place / "news.lds", place / "new.txt", "-o", tmp_path / "v.parquet")
    assert "undertow[arrow]" in failed(done) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_", FORMATS)
def test_a_failure_on_the_way_leaves_no_file(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"The cat sat.\n" * 100 + b"\xff")
    monkeypatch.setattr(sentences_module, "BATCH_TOKENS", 10)
    out = tmp_path / f"v{FORMATS[format_]}"
    done = run("embed", place / "news.lds", place / "new.txt", tmp_path / "bad.txt", "-o", out)
    assert "UTF-8" in failed(done)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.txt"]


# --- the other verbs ------------------------------------------------------------------------------------


def test_perplexity(place: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads(run("perplexity", place / "news.lds", place / "new.txt", "--json").stdout)
    assert (facts["sentences"], facts["tokens"]) == (3, 25)
    assert facts["unknown"] == pytest.approx(4 / 25, rel=1e-12)  # Thames, rivers, !, Yes
    assert facts["perplexity"] == pytest.approx(model.perplexity(TOKENS), rel=1e-6)
    monkeypatch.setattr(sentences_module, "BATCH_TOKENS", 1)
    small = json.loads(run("perplexity", place / "news.lds", place / "new.txt", "--json").stdout)
    assert small["perplexity"] == pytest.approx(facts["perplexity"], rel=1e-6)
    shown = run("perplexity", place / "news.lds", place / "new.txt").stdout
    assert "16.00%" in shown and f"{facts['perplexity']:.2f}" in shown


def test_perplexity_predicts_the_boundary(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.lds"
    assert run("fit", "lds", place / "news.txt", "-o", out, *SMALL, "--boundary", "</s>").returncode == 0
    facts = json.loads(run("perplexity", out, place / "new.txt", "--json").stdout)
    expected: Any = load(out)
    assert facts["tokens"] == 28
    assert facts["perplexity"] == pytest.approx(expected.perplexity([[*s, "</s>"] for s in TOKENS]), rel=1e-6)


def test_transitions(place: Path, model: Any) -> None:
    rows = run("transitions", place / "news.lds", "-n", "2").stdout.split("\n")[:-1]
    expected = model.transitions(2)
    assert len(rows) == 2
    for row, t in zip(rows, expected, strict=True):
        before, after = row.split("→")
        assert before.split() == [f"{t.strength:.3f}", *t.before] and after.split() == t.after
    found = json.loads(run("transitions", place / "news.lds", "--words", "3", "--json").stdout)["transitions"]
    assert [t["after"] for t in found] == [t.after for t in model.transitions(10, n_words=3)]


def test_neighbors(place: Path, model: Any) -> None:
    rows = [line.split() for line in run("neighbors", place / "news.lds", "bank", "-n", "3").stdout.split("\n")[:-1]]
    assert rows == [[n.word, f"{n.cosine:.3f}"] for n in model.neighbors("bank", 3)]
    sentence = "They sat on the bank of the river."
    tokens = "They sat on the bank of the river .".split()
    in_context = [n._asdict() for n in model.neighbors(tokens, 4, position=4)]
    for which in (("--word", "bank"), ("--position", 5), ("--word", "bank", "--position", "5")):
        done = run("neighbors", place / "news.lds", "--sentence", sentence, *which, "-n", "4", "--json")
        assert json.loads(done.stdout)["neighbors"] == in_context
    lowered = ("--sentence", "THE BANK. OF 1984", "--lower")
    done = run("neighbors", place / "news.lds", *lowered, "--word", "Bank", "--json")
    expected = model.neighbors(["the", "bank", ".", "of", "NUM"], position=1)
    assert json.loads(done.stdout)["neighbors"] == [n._asdict() for n in expected]


def test_export(place: Path, model: Any, tmp_path: Path) -> None:
    assert run("export", place / "news.lds", "-o", tmp_path / "v.txt").returncode == 0
    facts = run("export", place / "news.lds", "-o", tmp_path / "v.bin", "--json").stdout
    assert json.loads(facts)["format"] == "word2vec-binary" and json.loads(facts)["words"] == len(model.vocabulary_)
    for name in ("v.txt", "v.bin"):
        read = read_word2vec(tmp_path / name)
        assert tuple(read.words) == model.vocabulary_.words
        assert read.vectors.tobytes() == model.word_vectors().tobytes()
    done = run("export", place / "news.lds", "-o", "-", "--format", "word2vec-text")
    assert done.stdout == (tmp_path / "v.txt").read_text()
    assert "exists already" in failed(run("export", place / "news.lds", "-o", tmp_path / "v.txt"))
    assert run("export", place / "news.lds", "-o", tmp_path / "v.txt", "--overwrite").returncode == 0


def test_failures_are_one_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "taken.npz").touch()
    (tmp_path / "dir.npz").mkdir()
    good, text = place / "news.lds", place / "new.txt"
    sentence = ("--sentence", "The bank of the river")
    for reason, *arguments in [
        ("no words found", "embed", good, tmp_path / "empty.txt", "-o", tmp_path / "v.npz"),
        ("no words found", "perplexity", good, tmp_path / "empty.txt"),
        ("nowhere.txt", "embed", good, tmp_path / "nowhere.txt"),
        ("nowhere.lds does not exist", "embed", tmp_path / "nowhere.lds", text),
        ("not a model: give a model", "embed", place / "news.corpus", text),
        ("exists already", "embed", good, text, "-o", tmp_path / "taken.npz"),
        ("is a directory", "embed", good, text, "-o", tmp_path / "dir.npz", "--overwrite"),
        ("is a directory", "embed", good, place / "news.corpus"),
        ("'nonsense' is not in the vocabulary", "neighbors", good, "nonsense"),
        ("'sea' is not in the sentence", "neighbors", good, *sentence, "--word", "sea"),
        ("has 5 tokens", "neighbors", good, *sentence, "--position", "6"),
        ("has 5 tokens", "neighbors", good, *sentence, "--position", "0"),
        ("has 0 tokens", "neighbors", good, "--sentence", "", "--position", "1"),
        ("Token 1 of the sentence is 'The'", "neighbors", good, *sentence, "--word", "bank", "--position", "1"),
        ("is token 2, 4 of", "neighbors", good, "--sentence", "a bank a bank", "--word", "bank"),
    ]:
        assert reason in failed(run(*arguments)), reason
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dir.npz", "empty.txt", "taken.npz"]


def test_bad_usage_is_2(place: Path, tmp_path: Path) -> None:
    good, text = place / "news.lds", place / "new.txt"
    for arguments in [
        ("embed", good),
        ("embed", good, text, "-o", tmp_path / "v.pickle"),
        ("embed", good, text, "--output-format", "npz"),
        ("embed", good, text, "--json"),
        ("embed", good, text, "--view", "sideways"),
        ("embed", good, text, "--vocab-size", "9"),
        ("neighbors", good),
        ("neighbors", good, "bank", "--sentence", "The bank", "--word", "bank"),
        ("neighbors", good, "--sentence", "The bank"),
        ("neighbors", good, "bank", "--word", "bank"),
        ("transitions", good, "-n", "0"),
        ("export", good, "-o", tmp_path / "v.vectors"),
        ("export", good, "-o", "-"),
        ("export", good, "-o", "-", "--format", "word2vec-text", "--json"),
    ]:
        failed(run(*arguments), 2)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_model(place: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.lds"
    shutil.copytree(place / "news.lds", bad)
    raw = bytearray((bad / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (bad / "model.safetensors").write_bytes(raw)
    for verb, *rest in (
        ("embed", place / "new.txt"),
        ("perplexity", place / "new.txt"),
        ("transitions",),
        ("neighbors", "bank"),
        ("export", "-o", tmp_path / "v.txt"),
    ):
        assert "model.safetensors does not match the hash" in failed(run(verb, bad, *rest))
    done = run("verify", bad)
    assert done.returncode == 1 and "model.safetensors" in done.stderr


def test_a_model_of_another_kind(place: Path, tmp_path: Path) -> None:
    DeletedInterpolation(n_iter=1, random_state=0).fit(SENTENCES).save(tmp_path / "m")
    text = place / "new.txt"
    for verb, *rest in (
        ("transitions",),
        ("neighbors", "bank"),
        ("export", "-o", tmp_path / "v.txt"),
        ("embed", text, "--view", "smooth"),
    ):
        assert "'test-deleted-interpolation', which has " in failed(run(verb, tmp_path / "m", *rest))
    # what such a model can do, it does
    assert json.loads(run("perplexity", tmp_path / "m", text, "--json").stdout)["tokens"] == 25
    assert run("embed", tmp_path / "m", text).stdout.count("\n") == 3
    assert "does not know" in failed(run_process("transitions", tmp_path / "m"))  # which has not registered it
