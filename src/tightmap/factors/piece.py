"""Piece: factors of one kind on canonical variables, between a block of the user's and the arrays of a Graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import FloatArray, IntArray, Kind


@dataclass
class Piece:
    """Factors of one kind and arity on sorted scopes of canonical variables; row c uses tables[table[c]]."""

    kind: Kind
    scopes: IntArray
    weights: FloatArray
    table: IntArray
    tables: FloatArray  # (t, P) parameters as in graph.Kind
    ints: IntArray  # (t, Q)
    values: FloatArray | None = None  # numbers for every label of every variable, which all rows share

    @property
    def arity(self) -> int:
        return int(self.scopes.shape[1])

    def take(self, rows: npt.NDArray[Any]) -> Piece:
        return Piece(
            self.kind, self.scopes[rows], self.weights[rows], self.table[rows], self.tables, self.ints, self.values
        )


class Form(Protocol):
    """What a block needs to know, and can ask for, when it is brought into canonical form (canonical/build.py)."""

    cards: IntArray  # label counts of the user's variables
    new_id: IntArray  # canonical number of every variable of the user's, -1 for those that are fixed

    def allow(self, rounding: float) -> None:
        """Energies may be off by so much, in canonical units, for a reason that their own size does not tell."""

    def tables(self, scopes: IntArray, tables: FloatArray, index: IntArray, weights: FloatArray) -> list[Piece]:
        """Dense tables, turned so that scopes ascend, and recognised where they have structure."""

    def exceptions(
        self,
        scopes: IntArray,
        entries: IntArray,
        values: FloatArray,
        default: float,
        shape: tuple[int, ...],
        weights: FloatArray,
    ) -> list[Piece]:
        """Tables given by a default cost and a list of exceptions."""


def simple_piece(kind: Kind, scopes: IntArray, weights: FloatArray, params: npt.ArrayLike = ()) -> Piece:
    """A piece whose rows all share one parameter vector."""
    table = np.asarray(params, dtype=np.float64).reshape(1, -1)
    none = np.zeros((1, 0), dtype=np.int64)
    return Piece(kind, scopes, weights, np.zeros(len(scopes), dtype=np.int64), table, none)


def with_limits(kind: Kind, scopes: IntArray, weights: FloatArray, limits: FloatArray) -> Piece:
    """A truncated difference with a limit per row; equal limits are stored once."""
    distinct, table = np.unique(limits, return_inverse=True)
    none = np.zeros((len(distinct), 0), dtype=np.int64)
    return Piece(kind, scopes, weights, table.astype(np.int64).reshape(-1), distinct[:, None], none)


def ascending(scopes: IntArray) -> bool:
    """Is every scope in ascending order?"""
    return all(bool((scopes[:, p] <= scopes[:, p + 1]).all()) for p in range(scopes.shape[1] - 1))


def sorted_scopes(scopes: IntArray) -> IntArray:
    """Scopes of factors to which the order of their variables is nothing, ascending."""
    return scopes if ascending(scopes) else np.sort(scopes, axis=1)
