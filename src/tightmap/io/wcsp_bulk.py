"""Runs of ordinary cost functions of a .wcsp file, read together.

A file has a few tokens per function, so a call of NumPy for each of its parts takes longer than everything else.
Here a walk over plain numbers finds where the functions begin; those with the same number of variables and tuples are
then checked and written out as tables at once.  What is not ordinary (shared tables, keywords, large tables) and
what is wrong is left to the reader of single functions (wcsp.py), which knows how to say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.cost_functions import SMALL, Collector
from tightmap.io.tokens import Tokens, group_rows

TOGETHER = 4096  # functions
WIDEST = 6  # variables of an ordinary function
CHUNK = 1 << 16  # numbers that are made Python's own at a time


class _Found(NamedTuple):
    """Functions of one form: which of the run, and where they begin."""

    which: list[int]
    starts: list[int]


class Bulk:
    """Reads as many ordinary functions as follow one another."""

    def __init__(self, tokens: Tokens, pool: Collector, convert: Callable[[FloatArray], FloatArray]) -> None:
        self.tokens, self.pool, self.convert = tokens, pool, convert
        self._base, self._chunk = 0, [0.0][:0]

    def read(self, most: int) -> int:
        """Read functions at the cursor, at most so many; returns how many, 0 where one has to be read singly."""
        forms, end, count = self._walk(min(most, TOGETHER))
        tables: list[tuple[int, IntArray, FloatArray]] = []
        for (arity, number), found in forms.items():
            some = self._tables(arity, number, found)
            if some is None:
                return 0
            tables += some
        tables.sort(key=lambda item: item[0])  # as in the file
        self.pool.room(float(sum(table.size for _, _, table in tables)))
        for _, scope, table in tables:
            self.pool.add(scope, table)
        self.tokens.at = end
        return count

    def _walk(self, most: int) -> tuple[dict[tuple[int, int], _Found], int, int]:
        """Where ordinary functions begin, by their number of variables and tuples."""
        at, total = self.tokens.at, len(self.tokens)
        forms: dict[tuple[int, int], _Found] = {}
        count = 0
        while count < most and at < total:
            if not 0 <= at - self._base <= len(self._chunk) - WIDEST - 3:
                self._base, self._chunk = at, self.tokens.values[at : at + CHUNK].tolist()
            here = at - self._base
            arity = self._chunk[here]
            if not 1 <= arity <= WIDEST or arity != int(arity) or here + arity + 2 >= len(self._chunk):
                break
            k = int(arity)
            default, number = self._chunk[here + k + 1], self._chunk[here + k + 2]
            if not default >= 0.0 or not 0.0 <= number <= SMALL or number != int(number):
                break
            after = at + k + 3 + int(number) * (k + 1)
            if after > total:
                break
            found = forms.setdefault((k, int(number)), _Found([], []))
            found.which.append(count)
            found.starts.append(at)
            at, count = after, count + 1
        return forms, at, count

    def _tables(self, arity: int, number: int, found: _Found) -> list[tuple[int, IntArray, FloatArray]] | None:
        """(place in the run, scope, table) of functions of one form, None where one of them is not in order."""
        values, every = self.tokens.values, self.pool.model.cardinalities
        starts = np.array(found.starts)[:, None]
        raw = values[starts + 1 + np.arange(arity)]
        if not ((raw >= 0) & (raw < len(every)) & (raw == np.floor(raw))).all():
            return None
        scopes = raw.astype(np.int64)
        ordered = np.sort(scopes, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            return None
        cards = every[scopes]
        if np.prod(cards.astype(np.float64), axis=1).max() > SMALL:
            return None
        cells = values[starts + arity + 3 + np.arange(number * (arity + 1))].reshape(len(starts), number, arity + 1)
        labels, costs = cells[..., :-1], cells[..., -1]
        good = (labels >= 0) & (labels < cards[:, None]) & (labels == np.floor(labels))
        if not good.all() or not (costs >= 0).all():
            return None
        default = self.convert(values[starts[:, 0] + arity + 1].copy())
        costs = self.convert(costs.copy())
        places = labels.astype(np.int64)
        out = []
        for shape, rows in group_rows(cards):
            tables = np.empty((len(rows), *shape))
            tables[...] = default[rows].reshape((-1,) + (1,) * arity)
            for t in range(number):  # one after the other: of a labelling that is listed twice the last cost counts
                tables[(np.arange(len(rows)), *places[rows, t].T)] = costs[rows, t]
            out += [(found.which[row], scopes[row], tables[q]) for q, row in enumerate(rows.tolist())]
        return out
