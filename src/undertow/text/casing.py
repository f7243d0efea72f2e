"""The casing in which a text mostly has a word: `Great` at the start of a sentence is `great`."""

from __future__ import annotations

from undertow.text.vocabulary import Vocabulary


def most_frequent_casing(word: str, vocabulary: Vocabulary) -> str | None:
    """For a word that begins with a capital the most frequent of itself, its lower case and the same with one capital.

    Parameters
    ----------
    word
        Any word.
    vocabulary
        Words with their counts.

    Returns
    -------
    str or None
        None if the word does not begin with a capital, or the vocabulary has none of the three.
    """
    if not word[:1].isupper():
        return None
    forms = [form for form in (word, word.lower(), word.capitalize()) if form in vocabulary]
    return max(forms, key=lambda form: int(vocabulary.counts[vocabulary.id(form)]), default=None)  # the first of equals
