"""What the process of method "cpsat" does: tables to clauses, CP-SAT, its answers back (cpsat.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

FORBIDDEN = -1
HUGE = 1 << 61  # a forbidden entry while minima are taken
LONGEST = 64  # different costs of a table up to which its literals form a chain

Ints = npt.NDArray[np.int64]


def by_shape(problem: dict[str, Any]) -> Iterator[tuple[Ints, Ints]]:
    """Scopes (F, k) and tables (F, S1, ..., Sk) of the factors whose tables have one shape, with HUGE for forbidden."""
    first, scope, cards, begin = (problem[key] for key in ("scope_start", "scope", "cards", "begin"))
    groups: dict[tuple[int, ...], list[int]] = {}
    for f in range(len(begin) - 1):
        groups.setdefault(tuple(cards[scope[first[f] : first[f + 1]]].tolist()), []).append(f)
    for shape, members in groups.items():
        factors = np.array(members)
        size = math.prod(shape)
        scopes = scope[first[factors][:, None] + np.arange(len(shape))]
        tables = problem["tables"][begin[factors][:, None] + np.arange(size)].reshape(-1, *shape)
        yield scopes, np.where(tables == FORBIDDEN, HUGE, tables)


def project(scopes: Ints, tables: Ints, offset: Ints, unary: Ints) -> None:
    """Move the least cost of every label from the tables to the labels; a label without any allowed tuple is HUGE."""
    for p in range(scopes.shape[1]):
        others = tuple(q + 1 for q in range(scopes.shape[1]) if q != p)
        low = tables.min(axis=others) if others else tables.copy()
        gone = low >= HUGE
        place = offset[scopes[:, p]][:, None] + np.arange(tables.shape[p + 1])
        unary[place[gone]] = HUGE
        low[gone] = 0
        np.add.at(unary, place, low)
        view = [len(tables)] + [1] * scopes.shape[1]
        view[p + 1] = tables.shape[p + 1]
        tables -= np.where(tables >= HUGE, 0, low.reshape(view))


class Encoding:
    """The model of CP-SAT as it grows: literals are numbers, -v - 1 is "not v"."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.proto = model.proto
        self.count = 0
        self.costs: dict[int, int] = {}
        self.constant = 0

    def literals(self, count: int) -> Ints:
        for _ in range(count):
            self.model.new_bool_var("")
        self.count += count
        return np.arange(self.count - count, self.count)

    def charge(self, literal: int, cost: int) -> None:
        """A literal costs so much when it is true."""
        if literal < 0:
            self.constant += cost
            literal, cost = -literal - 1, -cost
        self.costs[literal] = self.costs.get(literal, 0) + cost

    def either(self, literals: Ints) -> None:
        """Clauses, one in each row."""
        for row in literals.tolist():
            self.proto.constraints.add().bool_or.literals.extend(row)

    def one_of(self, literals: list[int]) -> None:
        self.proto.constraints.add().exactly_one.literals.extend(literals)

    def finish(self) -> None:
        used = [(v, c) for v, c in self.costs.items() if c]
        self.proto.objective.vars.extend([v for v, _ in used])
        self.proto.objective.coeffs.extend([c for _, c in used])


def labels_of(problem: dict[str, Any], out: Encoding) -> Ints:
    """A literal for every label: two labels are one literal and its opposite."""
    cards, offset = problem["cards"], problem["offset"]
    literal = np.empty(int(offset[-1]), np.int64)
    for i, count in enumerate(cards.tolist()):
        at = int(offset[i])
        if count == 2:
            one = int(out.literals(1)[0])
            literal[at : at + 2] = -one - 1, one
        else:
            literal[at : at + count] = out.literals(count)
            out.one_of(literal[at : at + count].tolist())
    return literal


def add_clauses(out: Encoding, scopes: Ints, tables: Ints, start: Ints, literal: Ints) -> None:
    """One clause for each tuple that costs something; literals of the costs of a table form a chain."""
    k = scopes.shape[1]
    if k == 2 and tables.shape[1] == tables.shape[2] > 2:
        same = np.eye(tables.shape[1], dtype=bool)
        apart = tables[:, ~same]
        equal = (tables[:, same] == 0).all(axis=1) & (apart == apart[:, :1]).all(axis=1) & (apart[:, 0] > 0)
        _add_equalities(out, scopes[equal], apart[equal, 0], tables.shape[1], start, literal)
        scopes, tables = scopes[~equal], tables[~equal]
    where = np.nonzero(tables)
    costs = tables[where]
    rows = np.stack([-literal[start[scopes[where[0], p]] + where[p + 1]] - 1 for p in range(k)], axis=1)
    hard = costs >= HUGE
    out.either(rows[hard])
    factor, costs, rows = where[0][~hard], costs[~hard], rows[~hard]
    levels, which = np.unique(np.stack([factor, costs], axis=1), axis=0, return_inverse=True)
    z = out.literals(len(levels))
    before, below = -1, 0
    lengths = np.bincount(levels[:, 0]) if len(levels) else np.zeros(0, np.int64)
    for (f, cost), mine in zip(levels.tolist(), z.tolist(), strict=True):
        if lengths[f] > LONGEST:
            out.charge(mine, cost)
            continue
        if f != before:
            below = 0
        else:
            out.either(np.array([[-mine - 1, mine - 1]]))  # the literal before is that of the next lower cost
        out.charge(mine, cost - below)
        before, below = f, cost
    out.either(np.concatenate([rows, z[which.reshape(-1)][:, None]], axis=1))


def _add_equalities(out: Encoding, scopes: Ints, costs: Ints, labels: int, start: Ints, literal: Ints) -> None:
    """Pairs that cost something, or are forbidden, unless their labels are equal: a clause for each label."""
    for (i, j), cost in zip(scopes.tolist(), costs.tolist(), strict=True):
        a = literal[start[i] : start[i] + labels]
        b = literal[start[j] : start[j] + labels]
        if cost >= HUGE:
            out.either(np.concatenate([np.stack([-a - 1, b], axis=1), np.stack([a, -b - 1], axis=1)]))
        else:
            z = int(out.literals(1)[0])
            out.charge(z, cost)
            out.either(np.stack([-a - 1, b, np.full(labels, z)], axis=1))


def add_tables(out: Encoding, scopes: Ints, tables: Ints, start: Ints, literal: Ints) -> None:
    """One literal for each allowed tuple, exactly one of those with a label where the label is chosen."""
    k = scopes.shape[1]
    for f, scope in enumerate(scopes.tolist()):
        where = np.nonzero(tables[f] < HUGE)
        w = out.literals(len(where[0]))
        for cost, mine in zip(tables[f][where].tolist(), w.tolist(), strict=True):
            if cost:
                out.charge(mine, cost)
        for p in range(k):
            for s in range(tables.shape[p + 1]):
                out.one_of([*w[where[p] == s].tolist(), int(-literal[start[scope[p]] + s] - 1)])


def encode(problem: dict[str, Any], model: Any) -> tuple[Encoding, Ints]:
    """The model of CP-SAT, and the literals of all labels."""
    out = Encoding(model)
    offset = problem["offset"]
    unary = np.where(problem["unary"] == FORBIDDEN, HUGE, problem["unary"])
    literal = labels_of(problem, out)
    add = add_tables if problem["encoding"] == "tables" else add_clauses
    for scopes, tables in by_shape(problem):
        project(scopes, tables, offset, unary)
        unary = np.minimum(unary, HUGE)
        add(out, scopes, tables, offset, literal)
    for i in range(len(offset) - 1):
        own = unary[offset[i] : offset[i + 1]]
        low = int(own.min())
        if low < HUGE:
            out.constant += low
            own = np.where(own >= HUGE, HUGE, own - low)
        for mine, cost in zip(literal[offset[i] : offset[i + 1]].tolist(), own.tolist(), strict=True):
            if cost >= HUGE:
                out.either(np.array([[-mine - 1]]))
            elif cost:
                out.charge(mine, cost)
    out.finish()
    return out, literal


def search(problem: dict[str, Any], tell: Callable[..., None]) -> None:
    cp_model: Any = import_module("ortools.sat.python.cp_model")
    model = cp_model.CpModel()
    encoding, literal = encode(problem, model)
    offset, constant = problem["offset"], encoding.constant
    hint = literal[offset[:-1] + np.array(problem["hint"], dtype=np.int64)]
    for i, count in enumerate(problem["cards"].tolist()):
        every = literal[offset[i] : offset[i] + count].tolist()
        for mine in every[1:] if count == 2 else every:
            model.proto.solution_hint.vars.append(mine)
            model.proto.solution_hint.values.append(int(mine == int(hint[i])))
    positive, shown = literal >= 0, np.abs(literal + (literal < 0))

    def labels(value: Callable[[int], int]) -> list[int]:
        true = np.array([value(int(v)) for v in shown], dtype=np.int64) == positive
        return [int(np.argmax(true[a:b])) for a, b in pairwise(offset.tolist())]

    def found(self: Any) -> None:
        values = self.response_proto.solution
        tell(labels=labels(lambda v: values[v]), units=_down(self.best_objective_bound) + constant)

    # made by hand: a class statement would be an error for who checks types without the package
    watch = type("Watch", (cp_model.CpSolverSolutionCallback,), {"on_solution_callback": found})
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = problem["seed"] % 2**31
    solver.parameters.num_workers = 1  # with more, which of several equally good labellings is found is chance
    solver.parameters.interleave_search = True  # all strategies in turn
    solver.best_bound_callback = lambda bound: tell(units=_down(bound) + constant, steady=False)
    status = solver.solve(model, watch())
    if status == cp_model.INFEASIBLE:
        tell(end="infeasible")
    elif status == cp_model.OPTIMAL:
        values = solver.response_proto.solution
        tell(labels=labels(lambda v: values[v]), units=_down(solver.best_objective_bound) + constant, end="optimal")
    else:
        tell(end="stopped")


def _down(bound: float) -> int:
    """The solver's bound is whole; should it ever not be, or be none, nothing is added."""
    return math.floor(bound) if math.isfinite(bound) else -(1 << 62)
