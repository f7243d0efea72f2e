"""Base phrases (chunks) of English Universal Dependencies trees, as BIO tags.

A token joins the phrase of another one, step by step, by these rules; tokens that end at the same one and stand side by
side are a phrase. Its type is that of the token they end at.

- To its head: `fixed`, `flat` and `goeswith`; of a nominal (noun, name, pronoun, number, symbol, adjective, determiner)
  its `det`, `amod` and `nmod:poss` before it, its `nummod` and `compound` on either side, and a hyphen; the possessive
  's; an adverb before the adjective, number, adverb or determiner it modifies.
- To the verb, or to the copula of a predicate: auxiliaries, the infinitive's `to`, a negation, and adverbs between the
  auxiliary and the verb.

NP: nominals; VP: verbs, auxiliaries and copulas; ADJP, ADVP: adjectives and adverbs that are in no other phrase; PP:
the preposition alone; SBAR: the conjunction alone; PRT: a particle of a verb. Punctuation, `cc` and `discourse` are in
no phrase. A part that other words cut off from its end is named by its last word.
"""

from __future__ import annotations

from typing import NamedTuple

from data import Tagged, lines_of

TYPES = {
    "NOUN": "NP", "PROPN": "NP", "PRON": "NP", "NUM": "NP", "SYM": "NP", "X": "NP", "DET": "NP",
    "VERB": "VP", "AUX": "VP", "ADJ": "ADJP", "ADV": "ADVP", "ADP": "PP", "SCONJ": "SBAR",
}  # fmt: skip
NAMED_BY_RELATION = {"case": "PP", "mark": "SBAR", "compound:prt": "PRT"}
OUTSIDE = ("punct", "cc", "discourse")
NOMINAL = {"NOUN", "PROPN", "PRON", "NUM", "SYM", "X", "ADJ", "DET"}
NEGATIONS = ("not", "n't", "n’t")
MOST_STEPS = 20  # a tree is never that deep in a phrase; a circle would not end


class Node(NamedTuple):
    form: str
    upos: str
    head: int  # index, −1 for the root
    relation: str


def phrases(nodes: list[Node]) -> list[str]:
    """The BIO tags of a sentence."""
    copula = {node.head: i for i, node in enumerate(nodes) if node.relation == "cop"}
    ends = [_end(i, nodes, copula) for i in range(len(nodes))]
    tags = ["O"] * len(nodes)
    first = 0
    while first < len(nodes):
        last = first
        while last + 1 < len(nodes) and ends[last + 1] == ends[first]:
            last += 1
        end = nodes[ends[first]]
        kind = _type(end) if first <= ends[first] <= last else TYPES.get(nodes[last].upos)
        if kind:
            tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
        first = last + 1
    return tags


def _type(node: Node) -> str | None:
    return None if node.relation in OUTSIDE else NAMED_BY_RELATION.get(node.relation) or TYPES.get(node.upos)


def _end(i: int, nodes: list[Node], copula: dict[int, int]) -> int:
    for _ in range(MOST_STEPS):
        joined = _joins(i, nodes, copula)
        if joined < 0:
            break
        i = joined
    return i


def _joins(i: int, nodes: list[Node], copula: dict[int, int]) -> int:
    """The token whose phrase token i joins, or −1."""
    form, _, h, relation = nodes[i]
    if h < 0:
        return -1
    head = nodes[h]
    if relation.split(":")[0] in ("fixed", "flat", "goeswith"):
        return h
    if _is_verbal(i, nodes, copula):
        if h in copula:
            return copula[h]
        return h if head.upos in ("VERB", "AUX") and i < h else -1
    joins = (
        (head.upos in NOMINAL and relation in ("det", "det:predet", "amod", "nmod:poss") and i < h)
        or (head.upos in NOMINAL and relation in ("nummod", "compound"))
        or (head.upos in NOMINAL and relation == "punct" and form == "-")
        or (relation == "case" and head.relation == "nmod:poss" and i > h)
        or (relation == "advmod" and head.upos in ("ADJ", "NUM", "ADV", "DET") and i < h)
    )
    return h if joins else -1


def _is_verbal(i: int, nodes: list[Node], copula: dict[int, int]) -> bool:
    form, _, h, relation = nodes[i]
    is_verb = nodes[h].upos in ("VERB", "AUX")
    if relation.startswith("aux") or (relation == "mark" and form.lower() == "to"):
        return True
    if relation != "advmod":
        return False
    if form.lower() in NEGATIONS and (is_verb or h in copula):
        return True
    return is_verb and i < h and any(n.head == h and n.relation.startswith("aux") for n in nodes[:i])


def ewt_phrases(part: str) -> list[Tagged]:
    """The English Web Treebank, `train` or `dev`, with base phrases."""
    out: list[Tagged] = []
    rows: list[list[str]] = []
    for line in [*lines_of(f"labelled/ud-en-ewt.{part}.conllu.xz"), ""]:
        cells = line.split("\t")
        if len(cells) == 10 and cells[0].isdigit():
            rows.append(cells)
        elif not line and rows:
            index = {cells[0]: i for i, cells in enumerate(rows)}
            nodes = [Node(c[1], c[3], index.get(c[6], -1), c[7]) for c in rows]
            out.append(Tagged([n.form for n in nodes], phrases(nodes)))
            rows = []
    return out
