"""Scores of predicted tags: by token, by kind of word, and by span as conlleval counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from undertow.errors import InputError
from undertow.results.tagging.spans import spans_of
from undertow.tables import Table
from undertow.text.vocabulary import Vocabulary

RARE = 2  # words seen at most this often in the labelled training text are rare; unseen ones are among them

Tags = Sequence[Sequence[str]]


class Accuracy(NamedTuple):
    """Accuracy on some tokens.

    Attributes
    ----------
    right : int
        Tokens with the right tag.
    total : int
        All of them.
    """

    right: int
    total: int

    @property
    def accuracy(self) -> float | None:
        """Share of the tokens with the right tag; None if there is no token."""
        return self.right / self.total if self.total else None

    @property
    def error(self) -> float | None:
        """Share of the tokens with a wrong tag; None if there is no token."""
        return 1 - self.right / self.total if self.total else None


class SpanScore(NamedTuple):
    """Counts of spans; two are the same if type, first and last token are.

    Attributes
    ----------
    correct : int
        Predicted spans that are gold spans.
    predicted : int
        Predicted spans.
    gold : int
        Spans of the labelled text.
    """

    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are right; 0 if there are none."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold spans that were found; 0 if there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        # 2pr/(p+r), without its division by zero
        return 2 * self.correct / (self.predicted + self.gold) if self.predicted + self.gold else 0.0


class Score(NamedTuple):
    """A row of the table of a report; None where a measure does not apply.

    Attributes
    ----------
    of
        "tokens" or "spans".
    group
        Of tokens "all", "oov" or "rare"; of spans their type, or "all".
    correct, predicted, gold
        Counts; of tokens the last two are the number of tokens.
    accuracy
        Of tokens.
    precision, recall, f1
        Of spans.
    """

    of: str
    group: str
    correct: int
    predicted: int
    gold: int
    accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None


class Report(NamedTuple):
    """What `evaluate` of a tagger returns; `accuracy` and `f1` are those of all tokens and of all spans.

    Attributes
    ----------
    tokens : dict of Accuracy
        Under "all" and, if the words of the training text are known, "oov" (not among them) and "rare" (at most twice
        among them, the unseen included).
    spans : dict of SpanScore or None
        By type, and all types together under `ALL_TYPES`; None if the tags mark no spans.
    """

    tokens: dict[str, Accuracy]
    spans: dict[str, SpanScore] | None

    @property
    def accuracy(self) -> float | None:
        """Share of all tokens with the right tag."""
        return self.tokens["all"].accuracy

    @property
    def f1(self) -> float | None:
        """F1 of all spans, whatever their type; None if the tags mark none."""
        return None if self.spans is None else self.spans[ALL_TYPES].f1

    def table(self) -> Table[Score]:
        """The scores as a table, as which a report is printed.

        Returns
        -------
        Table of Score
            A row for each group of tokens, then one for each type of span, all types together first.
        """
        rows = [
            Score("tokens", group, a.right, a.total, a.total, a.accuracy, None, None, None)
            for group, a in self.tokens.items()
        ]
        for kind, s in (self.spans or {}).items():
            name = "all" if kind == ALL_TYPES else kind
            rows.append(Score("spans", name, s.correct, s.predicted, s.gold, None, s.precision, s.recall, s.f1))
        return Table(Score, rows)

    def to_frame(self, library: str = "pandas") -> Any:
        """The table as a DataFrame.

        Parameters
        ----------
        library
            "pandas" or "polars".

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            The columns of `Score`.
        """
        return self.table().to_frame(library)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def as_dict(self) -> dict[str, Any]:
        """The scores as plain values.

        Returns
        -------
        dict
            JSON values.
        """
        out: dict[str, Any] = {
            "tokens": {k: {"accuracy": a.accuracy, "right": a.right, "total": a.total} for k, a in self.tokens.items()}
        }
        if self.spans is not None:
            rows = {
                t: {"precision": s.precision, "recall": s.recall, "f1": s.f1, **s._asdict()}
                for t, s in self.spans.items()
            }
            out["spans"] = {"all": rows.pop(ALL_TYPES), "types": rows}
        return out

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Report:
        """The report that `as_dict` gave.

        Parameters
        ----------
        values
            JSON values.

        Returns
        -------
        Report
            With the same counts.
        """
        tokens = {group: Accuracy(a["right"], a["total"]) for group, a in values["tokens"].items()}
        if "spans" not in values:
            return cls(tokens, None)
        rows = {ALL_TYPES: values["spans"]["all"], **values["spans"]["types"]}
        return cls(tokens, {t: SpanScore(s["correct"], s["predicted"], s["gold"]) for t, s in rows.items()})


ALL_TYPES = "\0all"  # no type can be called so


def token_accuracy(gold: Tags, predicted: Tags) -> Accuracy:
    check_same_lengths(gold, predicted)
    right = sum(g == p for a, b in zip(gold, predicted, strict=True) for g, p in zip(a, b, strict=True))
    return Accuracy(right, sum(map(len, gold)))


def accuracy_by_group(
    words: Sequence[Sequence[str]], gold: Tags, predicted: Tags, vocabulary: Vocabulary
) -> dict[str, Accuracy]:
    """Accuracy on all tokens, on words outside the training text ("oov") and on rare ones; case counts."""
    check_same_lengths(gold, predicted)
    check_same_lengths(words, gold)
    counts = vocabulary.counts.tolist()
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for sentence, a, b in zip(words, gold, predicted, strict=True):
        for word, g, p in zip(sentence, a, b, strict=True):
            times = counts[vocabulary.id(word)] if word in vocabulary else 0
            for group in ("all", *(("oov",) if not times else ()), *(("rare",) if times <= RARE else ())):
                total[group] += 1
                right[group] += g == p
    return {group: Accuracy(right[group], total[group]) for group in ("all", "oov", "rare")}


def span_scores(gold: Tags, predicted: Tags) -> dict[str, SpanScore]:
    """Compare predicted spans with gold ones, as conlleval does.

    Parameters
    ----------
    gold, predicted
        Tags of the same sentences; any scheme.

    Returns
    -------
    dict of SpanScore
        All spans together under `ALL_TYPES`, then by type in alphabetic order.

    Raises
    ------
    InputError
        If the two sides differ in length, or a tag marks no span.
    """
    check_same_lengths(gold, predicted)
    correct: Counter[str] = Counter()
    found: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for a, b in zip(gold, predicted, strict=True):
        ours, theirs = set(spans_of(b)), set(spans_of(a))
        found.update(span.type for span in ours)
        there.update(span.type for span in theirs)
        correct.update(span.type for span in ours & theirs)
    types = sorted(found.keys() | there.keys())
    out = {ALL_TYPES: SpanScore(correct.total(), found.total(), there.total())}
    return out | {t: SpanScore(correct[t], found[t], there[t]) for t in types}


def check_same_lengths(a: Sequence[Sequence[str]], b: Sequence[Sequence[str]]) -> None:
    if len(a) != len(b):
        raise InputError(
            f"There are {len(a)} sentences on one side and {len(b)} on the other: give the same sentences."
        )
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if len(x) != len(y):
            raise InputError(
                f"Sentence {i} has {len(x)} tokens on one side and {len(y)} on the other: give one tag each."
            )
