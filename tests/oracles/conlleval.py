"""Chunks and F1 written from the definition of conlleval (Tjong Kim Sang, CoNLL-2000), token by token and slowly."""

from __future__ import annotations


def starts(before: str, before_type: str, tag: str, type_: str) -> bool:
    """`startOfChunk` for B, I and O."""
    if (before, tag) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}:
        return True
    return tag != "O" and before_type != type_


def ends(before: str, before_type: str, tag: str, type_: str) -> bool:
    """`endOfChunk` for B, I and O: whether the chunk of the token before ends before this one."""
    if (before, tag) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}:
        return True
    return before != "O" and before_type != type_


def split(tag: str) -> tuple[str, str]:
    return (tag[0], tag[2:]) if tag != "O" else ("O", "")


def counts(gold: list[list[str]], guessed: list[list[str]]) -> dict[str, list[int]]:
    """type -> [correct, found, in gold], by conlleval's one pass over both columns side by side."""
    out: dict[str, list[int]] = {}

    def row(type_: str) -> list[int]:
        return out.setdefault(type_, [0, 0, 0])

    for a, b in zip(gold, guessed, strict=True):
        in_correct = False  # the open chunks began at the same token with the same type, and agree so far
        last_a = last_b = ("O", "")
        for tag_a, tag_b in zip([*a, "O"], [*b, "O"], strict=True):  # a sentence ends with O
            now_a, now_b = split(tag_a), split(tag_b)
            end_a, end_b = ends(*last_a, *now_a), ends(*last_b, *now_b)
            if in_correct:
                if end_a and end_b and last_a[1] == last_b[1]:
                    in_correct = False
                    row(last_a[1])[0] += 1
                elif end_a != end_b or now_a[1] != now_b[1]:
                    in_correct = False
            start_a, start_b = starts(*last_a, *now_a), starts(*last_b, *now_b)
            if start_a and start_b and now_a[1] == now_b[1]:
                in_correct = True
            if start_a:
                row(now_a[1])[2] += 1
            if start_b:
                row(now_b[1])[1] += 1
            last_a, last_b = now_a, now_b
    return out


def f1(correct: int, found: int, there: int) -> float:
    precision = correct / found if found else 0.0
    recall = correct / there if there else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
