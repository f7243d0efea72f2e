"""What a tagger reads about tokens: a representation is any object with a `name` and a method `features(sentences)`.

`features` gives each token a dict of feature name → number. A representation may also have `vectors(sentences)` with
`dense = True`, or `sparse_rows(sentences)`: a CRF then reads arrays, which takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

from undertow.kernels.types import F32, I64

Sentences = Sequence[Sequence[str]]
Features = list[list[dict[str, float]]]
Arrays = list[F32]


class SparseRows(NamedTuple):
    """Features of tokens as arrays, one token after the other, whatever the sentence.

    Attributes
    ----------
    names
        Of the features.
    bounds
        (n_tokens + 1,): where the features of each token begin.
    ids
        Of all features of all tokens, as positions in `names`.
    values
        Their numbers.
    """

    names: list[str]
    bounds: I64
    ids: I64
    values: F32

    def dicts(self, lengths: Iterable[int]) -> Features:
        """The same features as a dict for each token.

        Parameters
        ----------
        lengths
            Numbers of tokens of the sentences.

        Returns
        -------
        list of lists of dicts
            As `Representation.features` gives them.
        """
        names, ids, values = self.names, self.ids.tolist(), self.values.tolist()
        edges = iter(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True))
        return [
            [{names[ids[i]]: values[i] for i in range(low, high)} for low, high in islice(edges, n)] for n in lengths
        ]


@runtime_checkable
class Representation(Protocol):
    """Anything that gives tokens features; an attribute `window` may say how many neighbors' features a CRF reads too.

    Attributes
    ----------
    name : str
        Begins the names of its features in a CRF.
    """

    name: str

    def features(self, sentences: Sentences) -> Features:
        """Features of the tokens.

        Parameters
        ----------
        sentences
            Token lists.

        Returns
        -------
        list of lists of dicts
            For each token its features by name; those that are 0 are left out.
        """
