"""Interpolated modified Kneser–Ney n-grams (Chen and Goodman 1999) on arrays, as the rival of the language models here.

Every n-gram of the training text has a number; the number of w_1 … w_n follows from that of w_1 … w_{n-1} and w_n by
looking up one sorted array an order. The text is one stream: histories reach across lines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Order(NamedTuple):
    keys: Any  # sorted: prefix · V + word
    counts: Any  # of the highest order: times; of the others: distinct words in front
    total: Any  # for each prefix
    reserve: Any  # for each prefix: the mass that goes to the lower order
    discount: Any  # (4,) by count 0, 1, 2, 3+


class KneserNey:
    def __init__(self, n: int = 5) -> None:
        self.n = n

    def fit(self, ids: Any, n_words: int) -> KneserNey:
        self.V = n_words
        ids = np.asarray(ids, dtype=np.int64)
        numbers = [ids]
        keys = [np.arange(n_words)]
        for _ in range(2, self.n + 1):
            ngrams = numbers[-1][:-1] * n_words + ids[len(ids) - len(numbers[-1]) + 1 :]
            found, inverse = np.unique(ngrams, return_inverse=True)
            keys.append(found)
            numbers.append(inverse)
        self.orders: list[Order] = []
        for n in range(1, self.n + 1):
            size = len(keys[n - 1])
            if n == self.n:
                counts = np.bincount(numbers[n - 1], minlength=size)
            else:
                # one occurrence of each (n+1)-gram stands for it; its last n words are an n-gram that ends there
                _, where = np.unique(numbers[n], return_index=True)
                counts = np.maximum(np.bincount(numbers[n - 1][1:][where], minlength=size), n > 1)
            self.orders.append(self._order(keys[n - 1], counts, n, len(keys[n - 2]) if n > 1 else 1))
        return self

    def _order(self, keys: Any, counts: Any, n: int, n_prefixes: int) -> Order:
        prefix = keys // self.V if n > 1 else np.zeros(len(keys), dtype=np.int64)
        ones, twos, threes, fours = (int((counts == c).sum()) for c in (1, 2, 3, 4))
        Y = ones / max(ones + 2 * twos, 1)
        raw = [
            0.0,
            1 - 2 * Y * twos / max(ones, 1),
            2 - 3 * Y * threes / max(twos, 1),
            3 - 4 * Y * fours / max(threes, 1),
        ]
        discount = np.clip(raw, 0, [0, 1, 2, 3])
        total = np.bincount(prefix, weights=counts, minlength=n_prefixes)
        taken = np.bincount(prefix, weights=discount[np.minimum(counts, 3)], minlength=n_prefixes)
        reserve = np.divide(taken, total, out=np.ones(n_prefixes), where=total > 0)
        return Order(keys, counts, total, reserve, discount)

    def probabilities(self, ids: Any) -> Any:
        """p(w_t | w_{t-4} … w_{t-1}) for each token of a stream."""
        ids = np.asarray(ids, dtype=np.int64)
        p = np.full(len(ids), 1 / self.V)
        before = np.zeros(len(ids), dtype=np.int64)  # the number of the history of length n - 1 that ends before t
        for n, order in enumerate(self.orders, start=1):
            known = before >= 0
            key = (before if n > 1 else 0) * self.V + ids
            place = np.minimum(np.searchsorted(order.keys, key), len(order.keys) - 1)
            seen = known & (order.keys[place] == key)
            count = np.where(seen, order.counts[place], 0)
            total = np.where(known, order.total[before], 0)
            high = np.maximum(count - order.discount[np.minimum(count, 3)], 0)
            p = np.where(total > 0, high / np.where(total > 0, total, 1) + order.reserve[before] * p, p)
            number = np.where(seen, place, -1)
            before = np.concatenate(([-1], number[:-1]))
        return p

    def perplexity(self, ids: Any) -> float:
        return float(np.exp(-np.log(self.probabilities(ids)).mean()))

    def sums(self, histories: Any) -> Any:
        """Σ_w p(w | history) for some histories: one, if this file is right."""
        n = self.n - 1
        return np.array(
            [
                self.probabilities(np.concatenate([np.append(h[-n:], w) for w in range(self.V)]))[
                    len(h[-n:]) :: n + 1
                ].sum()
                for h in histories
            ]
        )
