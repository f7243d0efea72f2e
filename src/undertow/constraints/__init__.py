"""Constraints on the words of a text, combined by `&`, `|` and `~`; models answer and generate under them.

`HMM.probability` and `HMM.generate` take them; docs/constraints.md has the mathematics and the syntax of `Matches`.
"""

from undertow.constraints.kinds import (
    Constraint,
    Contains,
    Count,
    EndsWith,
    Length,
    Matches,
    OneOf,
    Phrase,
    StartsWith,
    Without,
)

__all__ = [
    "Constraint",
    "Contains",
    "Count",
    "EndsWith",
    "Length",
    "Matches",
    "OneOf",
    "Phrase",
    "StartsWith",
    "Without",
]
