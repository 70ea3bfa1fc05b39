"""UAI models: .uai holds potentials that multiply, .LG their natural logarithms, a dialect holds costs that add.

The file is a stream of tokens: MARKOV or BAYES, the label counts, the scopes, then the tables, each in C order over its
scope as written (the last variable runs fastest).  With ``values`` the caller says what the numbers are:

    "potential"   cost = -ln(value); a value of 0 forbids           (the default of .uai)
    "log"         cost = -value; -inf or anything below -1e38 forbids  (the default of .LG)
    "cost"        cost = value; inf forbids                          (the files of LPMP use the same header)
"""

from __future__ import annotations

import warnings
from typing import IO

import numpy as np

from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.expand import check_expansion, tables, unary_tables
from tightmap.io.source import AXES, FormatWarning, Source, check_arity, check_labels
from tightmap.io.tokens import Tokens, group_rows
from tightmap.model.model import Model

VALUES = ("potential", "log", "cost")
FORBIDDEN_LOG = -1e38  # what toulbar2 takes for a logarithm of zero
MIN_RANGE = 1e-7  # exp(-1e-7) has nine digits of it: where all tables are flatter than that, energies would be lost
MAX_RANGE = 700.0  # exp(-708) is the smallest normal number: a wider table would gain hard constraints or lose digits


def _meaning(values: str | None, suffix: str) -> str:
    if values is None:
        return "log" if suffix == ".lg" else "potential"
    for meaning in VALUES:
        if values in (meaning, f"{meaning}s"):
            return meaning
    raise OptionError(f"option values: expected one of {', '.join(VALUES)}, got {values!r}")


# ------------------------------------------------------------------------------------------------ reading


def read_uai(source: Source, *, values: str | None = None) -> Model:
    """Read a MARKOV or BAYES model; ``values`` is "potential", "log" or "cost" (by default what the suffix says)."""
    meaning = _meaning(values, source.suffix)
    tokens = Tokens(source.data, words=1, comment=b"#")
    header = tokens.word("the word MARKOV or BAYES")
    if header.upper() not in ("MARKOV", "BAYES"):
        tokens.fail(0, "the word MARKOV or BAYES (other kinds of UAI files are not supported)")
    n = tokens.count("the number of variables")
    cards = tokens.integers(n, "a number of labels", low=1, high=2**31 - 1)
    check_labels(cards, f"token {tokens.at}", len(source.data))
    model = Model(cards)
    m = tokens.count("the number of functions")

    scope_start, arity = tokens.records(m, "scope of function")
    scope_end = tokens.at
    check_arity(arity, "scope of function")
    table_start, size = tokens.records(m, "table of function")
    tokens.end()

    # the scopes in one go: every token between the arities is a variable
    inside = np.ones(scope_end - int(scope_start[0] - 1) if m else 0, dtype=bool)
    if m:
        inside[scope_start - 1 - (scope_start[0] - 1)] = False
        first = int(scope_start[0] - 1)
        places = first + np.flatnonzero(inside)
        listed = tokens.values[places]
        good = (listed >= 0) & (listed < n) & (np.floor(listed) == listed)
        if not good.all():
            tokens.fail(int(places[np.argmin(good)]), f"a variable (an integer in 0..{n - 1})")

    constants = np.flatnonzero(arity == 0)
    _check_sizes(tokens, constants, size, table_start, np.ones(len(constants)))
    for c in constants.tolist():
        model.add_constant(float(_costs(tokens, table_start[c : c + 1], 1, meaning)[0, 0]))
    empty = 0  # tables that forbid everything
    for (k,), rows in group_rows(arity[:, None]):
        if k == 0:
            continue
        scopes = tokens.values[scope_start[rows][:, None] + np.arange(k)].astype(np.int64)
        ordered = np.sort(scopes, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any():
            f = int(rows[np.argmax(twice)])
            tokens.fail(int(scope_start[f]), f"distinct variables in the scope of function {f}", "one of them twice")
        shapes = cards[scopes]
        with np.errstate(over="ignore"):
            _check_sizes(tokens, rows, size, table_start, np.prod(shapes.astype(np.float64), axis=1))
        for shape, part in group_rows(shapes):
            costs = _costs(tokens, table_start[rows[part]], int(size[rows[part[0]]]), meaning)
            busy = [p for p in range(k) if k <= AXES or shape[p] > 1]  # one label needs no axis, and NumPy has few
            model.add_factors(scopes[part][:, busy], costs.reshape((len(part), *(shape[p] for p in busy))))
            empty += int(np.isposinf(costs).all(axis=1).sum()) if meaning == "potential" else 0
    if empty:
        warnings.warn(
            f"{source.path}: {empty} tables of nothing but zeros; as potentials they forbid every labelling. If the "
            'file holds costs, read it with values="cost" (--values costs)',
            FormatWarning,
            stacklevel=6,
        )
    return model


def _check_sizes(tokens: Tokens, rows: IntArray, size: IntArray, start: IntArray, expected: FloatArray) -> None:
    wrong = size[rows] != expected
    if wrong.any():
        c = int(np.argmax(wrong))
        f = int(rows[c])
        tokens.fail(int(start[f]) - 1, f"{expected[c]:.0f} entries for the table of function {f}", str(int(size[f])))


def _costs(tokens: Tokens, starts: IntArray, size: int, meaning: str) -> FloatArray:
    """(len(starts), size) costs of tables of one size."""
    if size and len(starts) > 1 and (np.diff(starts) == size + 1).all():  # tables that follow each other: no gathering
        first = int(starts[0])
        numbers = tokens.values[first : first + len(starts) * (size + 1) - 1]
        numbers = np.append(numbers, 0.0).reshape(-1, size + 1)[:, :size]
    else:
        numbers = tokens.values[starts[:, None] + np.arange(size)]
    if meaning == "potential":
        bad = ~((numbers >= 0.0) & (numbers < np.inf))
        expected = "a potential (a finite number, not negative"
        expected += '; if these are costs or logarithms, read with values="cost" or values="log", or --values costs)'
        with np.errstate(divide="ignore", invalid="ignore"):
            costs = -np.log(numbers)
    elif meaning == "log":
        bad = ~(numbers < np.inf)
        expected = "a logarithm (a number below +inf)"
        costs = np.where(numbers <= FORBIDDEN_LOG, np.inf, -numbers)
    else:
        bad = ~(numbers > -np.inf)
        expected = "a cost (a number above -inf)"
        costs = numbers.copy()
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        tokens.fail(int(starts[row]) + column, expected)
    costs += 0.0  # -ln 1 is 0, not -0
    return costs


# ------------------------------------------------------------------------------------------------ writing


class _Encoder:
    """Turns cost tables into the numbers of the file and collects what has to go into the constant."""

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning
        self.constant = 0.0
        self.widest = 0.0  # range of the costs of a factor

    def numbers(self, costs: FloatArray, scope: list[int]) -> FloatArray:
        if self.meaning == "cost":
            return costs + 0.0
        if self.meaning == "log":
            if (costs[np.isfinite(costs)] >= -FORBIDDEN_LOG).any():
                raise ModelError(
                    f"the factor on variables {tuple(scope)} has costs of {-FORBIDDEN_LOG:g} or more, which logarithms "
                    "forbid; write .h5 or .npz instead"
                )
            return 0.0 - costs
        finite = costs[np.isfinite(costs)]
        if not len(finite):
            return np.zeros_like(costs)
        low, high = float(finite.min()), float(finite.max())
        self.widest = max(self.widest, high - low)
        if high - low > MAX_RANGE:
            raise ModelError(
                f"the costs of the factor on variables {tuple(scope)} range over {high - low:.6g}, more than "
                f"potentials can hold ({MAX_RANGE:.0f}); write .LG or .h5 instead"
            )
        shift = 0.0 if low >= -MAX_RANGE and high <= MAX_RANGE else low
        self.constant += shift
        return np.exp(shift - costs)

    def constants(self) -> list[float]:
        """Costs of the zero-arity factors that make up the constant: several where exp would under- or overflow."""
        if self.constant == 0.0:
            return []
        if self.meaning != "potential" or not np.isfinite(self.constant):
            return [self.constant]
        parts = int(abs(self.constant) // MAX_RANGE) + 1
        if parts > 100_000:
            raise ModelError(f"the constant {self.constant:.6g} is too large for potentials; write .LG or .h5 instead")
        return [self.constant / parts] * parts


def write_uai(model: Model, stream: IO[bytes], suffix: str, *, values: str | None = None) -> None:
    """Write a MARKOV model; evidence becomes hard unary costs, the constant becomes a factor of no variables."""
    encoder = _Encoder(_meaning(values, suffix))
    check_expansion(model, suffix)
    encoder.constant = model.constant
    scopes: list[str] = []
    body: list[str] = []

    def put(scope: list[int], table: FloatArray) -> None:
        scopes.append(" ".join(map(str, [len(scope), *scope])))
        body.append(f"{table.size} " + " ".join(map(repr, encoder.numbers(table.ravel(), scope).tolist())))

    for i, costs in unary_tables(model):
        put([i], costs)
    for scope, table in tables(model):
        for row, costs in zip(scope.tolist(), table, strict=True):
            put(row, costs)
    if 0.0 < encoder.widest < MIN_RANGE:
        raise ModelError(
            f"no two costs of a factor differ by more than {encoder.widest:.3g}, which potentials cannot hold; "
            "multiply the costs by some number, or write .LG or .h5 instead"
        )
    for cost in encoder.constants():
        encoder.constant = 0.0
        put([], np.array([cost]))
    cards = " ".join(map(str, model.cardinalities.tolist()))
    stream.write(f"MARKOV\n{model.num_variables}\n{cards}\n{len(scopes)}\n".encode())
    for lines in (scopes, body):
        stream.write(("\n".join(lines) + "\n\n").encode())
