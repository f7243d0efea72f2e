"""Classes for words outside the vocabulary: what their spelling tells.

A rare word's shape and ending say much about what it is (`transfected`, `GFP`, `p38`). With classes, a word that the
vocabulary leaves out counts as its class instead of the one unknown word, in training and after. Shapes work for every
cased script; the endings are English. The first line that fits decides:

    <unk:#>      letters and digits              p38, H2O
    <unk:AA>     two or more letters, all capitals    GFP
    <unk:Aa>     begins with a capital           Smolensk
    <unk:-ing>, <unk:-ed>, <unk:-ly>, <unk:-s>   lower case with that ending (-s: not -ss, -us, -is)
    <unk:-adj>   -al -ic -ous -ive -able -ible -ary -ful -less
    <unk:-noun>  -tion -sion -ment -ness -ity -ism -ist -ance -ence -ase -ine -oma -logy
    <unk:-er>, <unk:-verb>                       -er -or; -ize -ise -ify -ate
    <unk:a>      any other word of letters
    <unk:*>      no letter at all
"""

from __future__ import annotations

PREFIX = "<unk:"
_LOWER = (
    ("-ing", ("ing",)),
    ("-ed", ("ed",)),
    ("-ly", ("ly",)),
    ("-noun", ("tion", "sion", "ment", "ness", "ity", "ism", "ist", "ance", "ence", "ase", "ine", "oma", "logy")),
    ("-adj", ("al", "ic", "ous", "ive", "able", "ible", "ary", "ful", "less")),
    ("-verb", ("ize", "ise", "ify", "ate")),
    ("-er", ("er", "or")),
)
CLASSES = tuple(
    f"{PREFIX}{name}>"
    for name in ("#", "AA", "Aa", "-ing", "-ed", "-ly", "-s", "-adj", "-noun", "-er", "-verb", "a", "*")
)


def word_class(word: str) -> str:
    """The class of a word by its spelling alone."""
    return f"{PREFIX}{_name(word)}>"


def _name(word: str) -> str:
    letters = [c for c in word if c.isalpha()]
    if not letters:
        return "*"
    if any(c.isdigit() for c in word):
        return "#"
    if len(letters) > 1 and all(c.isupper() for c in letters):
        return "AA"
    if letters[0].isupper():
        return "Aa"
    if word.endswith("s") and not word.endswith(("ss", "us", "is", "ous")):
        return "-s"
    for name, endings in _LOWER:
        if word.endswith(endings) and len(word) > 4:
            return name
    return "a"
