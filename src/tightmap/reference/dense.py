"""From a Model to dense tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tightmap.model.model import Model
from tightmap.reference.model import Group, Labels, Tables
from tightmap.reference.tensor import Vector


def tables(model: Model | Tables) -> Tables:
    """The dense tables of a model, +inf where it has hard constraints or evidence."""
    if isinstance(model, Tables):
        return model
    unary = model.unaries.copy()
    for i in np.flatnonzero(model.clamped >= 0):
        own = unary[model.offset[i] : model.offset[i + 1]]
        own[np.arange(len(own)) != model.clamped[i]] = np.inf
    factors = []
    for block in model.blocks:
        for c, scope in enumerate(block.scopes):
            shape = tuple(int(s) for s in model.cardinalities[scope])
            factors.append((scope, block.dense(np.array([c]), shape)[0]))
    return collect(model.constant, model.cardinalities, unary, factors)


def collect(
    constant: float, cardinalities: Labels, unary: Vector, factors: Iterable[tuple[Sequence[int] | Labels, Vector]]
) -> Tables:
    """Tables of (scope, table) pairs.

    x_i x_i = x_i at labellings, so of a variable that is twice in a scope only the diagonal of the table counts; a
    table that has a single variable then joins the unaries.
    """
    offset = np.concatenate(([0], np.cumsum(cardinalities))).astype(np.int64)
    unary = unary.copy()
    shapes: dict[tuple[int, ...], list[tuple[list[int], Vector]]] = {}
    for scope, table in factors:
        variables = list(dict.fromkeys(int(i) for i in scope))
        diagonal: list[Any] = [table, [variables.index(int(i)) for i in scope], list(range(len(variables)))]
        table = np.einsum(*diagonal)
        if len(variables) == 1:
            unary[offset[variables[0]] : offset[variables[0] + 1]] += table
        else:
            shapes.setdefault(table.shape, []).append((variables, table))
    groups = []
    for shape, members in shapes.items():
        scopes = np.array([v for v, _ in members], dtype=np.int64)
        entries = [offset[scopes[:, q], None] + np.arange(s) for q, s in enumerate(shape)]
        groups.append(Group(scopes, np.array([t for _, t in members], dtype=np.float64), entries))
    return Tables(float(constant), offset, unary, groups)


def softened(t: Tables) -> Tables:
    """+inf becomes a cost that makes every labelling that pays it worse than every labelling that does not.

    The relaxed methods work on this, because 0 times +inf is no number.
    """
    finite = [np.where(np.isfinite(v), np.abs(v), 0.0) for v in (t.unary, *(g.tables for g in t.groups))]
    most = sum(float(finite[0][r].max()) for r in t.rows)  # with the tables: no sum of finite costs is larger
    most += sum(float(v.reshape(len(v), -1).max(axis=1).sum()) for v in finite[1:])

    def replaced(costs: Vector) -> Vector:
        return np.where(np.isfinite(costs), costs, 3.0 * most + 1.0)

    groups = [g._replace(tables=replaced(g.tables)) for g in t.groups]
    return Tables(t.constant if np.isfinite(t.constant) else 0.0, t.offset, replaced(t.unary), groups)
