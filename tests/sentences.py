"""The shape every error message has."""

from __future__ import annotations


def is_one_sentence(message: str) -> bool:
    """No line break, ends in a full stop, says something."""
    return "\n" not in message and message.endswith(".") and len(message) > 15
