"""Messages stay one sentence of at most 500 characters, whatever is echoed in them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from cli_runner import run
from sentences import is_one_sentence
from undertow import HMM, LDS, Corpus, DynamicEmbedding, LagCounts, Tokenizer, Vocabulary, load
from undertow.errors import LONGEST, FormatError, InputError, UndertowError, cut, short
from undertow.text.events import Events

LONG = "n" * 10_000
UNFITTED: Any = LDS()


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_values_are_shown_short_and_on_one_line() -> None:
    assert short("Zürich") == "'Zürich'" and short(3) == "3" and short("a\nb") == "'a\\nb'"
    assert len(short(LONG)) == 60 and short(LONG).endswith("...")
    assert short(10**5000) == "a int that cannot be shown" and "Unshowable" in short(Unshowable())


def test_a_sentence_loses_its_middle() -> None:
    assert cut("short.", 500) == "short."
    sentence = f"the place {LONG} the cure."
    assert len(cut(sentence, 500)) == 500
    assert cut(sentence, 500).startswith("the place") and cut(sentence, 500).endswith("the cure.")
    error = copy.copy(FormatError(sentence))  # as workers send errors: made again from its arguments
    assert len(str(error)) == LONGEST and isinstance(error, UndertowError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Corpus.open(LONG),
        lambda: LagCounts.open(LONG),
        lambda: load(LONG),
        lambda: UNFITTED.set_params(**{LONG: 1}),
        lambda: LDS(init=LONG).fit([["a"]]),
        lambda: HMM(n_states=LONG).fit([["a"]]),  # type: ignore[arg-type]
        lambda: HMM(random_state=LONG).fit([["a"]]),
        lambda: HMM(n_jobs=LONG).fit([["a"]]),  # type: ignore[arg-type]
        lambda: DynamicEmbedding(drift=LONG).fit([(1, "a", "b", 1)]),
        lambda: DynamicEmbedding().fit([(1, "a", "b", LONG)]),
        lambda: DynamicEmbedding().fit([(1, "a", "b", 1), (LONG, "a", "b", 1)]),
        lambda: Events.build([(1, "a", "b", 1)]).at(LONG),
        lambda: Tokenizer(rule=LONG),
        lambda: Vocabulary(["<unk>", LONG, LONG], [0, 1, 1]),
        lambda: Vocabulary(["<unk>", LONG + " "], [0, 1]),
        lambda: Corpus.from_sentences([LONG]),  # type: ignore[list-item]
        lambda: Corpus.build([LONG], "out"),
    ],
)
def test_long_values_in_python(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UndertowError) as e:
        call()
    assert is_one_sentence(str(e.value)) and len(str(e.value)) <= LONGEST, str(e.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", LONG],
        ["verify", LONG],
        ["fit", "lds", "text.txt", "-o", LONG],
        ["fit", "lds", "text.txt", "-o", "m", "--components", LONG],
        ["corpus", "build", LONG, "-o", "c"],
        ["corpus", "build", "text.txt", "-o", "c", "--boundary", LONG + " "],
        [LONG],
    ],
    ids=lambda a: " ".join(a)[:40],
)
def test_long_values_on_the_command_line(arguments: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a b c\n" * 9)
    done = run(*arguments)
    assert done.returncode in (1, 2) and "bug in undertow" not in done.stderr, done.stderr[:300]
    for line in done.stderr.splitlines():
        assert len(line) <= LONGEST + 40, line[:200]


def test_input_errors_are_still_value_errors() -> None:
    with pytest.raises(ValueError, match="two words"):
        raise InputError("two words")
