"""Weighted constraint satisfaction problems in toulbar2's .wcsp format.

    name N maxDomain C UB      N domain sizes      C cost functions

A cost function is ``arity variables default T`` and T tuples ``labels cost``; or, with default -1, a keyword and its
parameters.  A negative arity defines a table that later functions share with a negative T.  Costs of UB or more forbid.
Costs in a file are integers of at least 0; what is written is shifted and scaled, and the name says how
(``name__scale=100__offset=-5.25``: energy = cost / scale + offset), which the reader here undoes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

import numpy as np

from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.cost_functions import RULES, Collector, Table, rule_costs
from tightmap.io.expand import check_expansion, tables, unary_tables
from tightmap.io.source import Source, check_entries, check_labels
from tightmap.io.tokens import Tokens
from tightmap.io.wcsp_bulk import Bulk
from tightmap.model.model import Model

_SCALED = re.compile(r"__scale=([0-9.e+-]+)__offset=([0-9.e+-]+)$")
SINGLY = 16  # functions that are read one by one before the next run of ordinary ones is tried
_PENALTIES = {"disj": [2], "sdisj": [4, 5]}  # which parameters are costs


# ------------------------------------------------------------------------------------------------ reading


def read_wcsp(source: Source) -> Model:
    """Read a .wcsp file; costs at or above its upper bound become +inf (none is negative, none can make up for it)."""
    tokens = Tokens(source.data, words=1, mixed=True)
    name = tokens.word("the name of the problem")
    n = tokens.count("the number of variables")
    tokens.integer("the largest domain size")
    functions = tokens.count("the number of cost functions")
    top = float(tokens.numbers(1, "the upper bound")[0])
    if not top > 0:
        tokens.fail(tokens.at - 1, "a positive upper bound")
    cards = tokens.integers(n, "a domain size (intervals, with negative sizes, are not supported)", 1, 2**31 - 1)
    check_labels(cards, f"token {tokens.at}", len(source.data))
    found = _SCALED.search(name)
    scale, offset = 1.0, 0.0
    if found:
        try:
            scale, offset = float(found[1]), float(found[2])
        except ValueError:
            tokens.fail(0, "a name, perhaps with __scale=NUMBER__offset=NUMBER at its end")
        if not (np.isfinite(offset) and 0 < scale < np.inf):
            tokens.fail(0, "a positive scale and a finite offset")
    model = Model(cards)
    model.add_constant(offset)
    reader = _Reader(tokens, model, top, scale)
    bulk = Bulk(tokens, reader.pool, reader.convert)
    f = singly = 0
    while f < functions:
        read = bulk.read(functions - f) if f >= singly else 0
        if not read:
            if f >= singly:
                singly = f + SINGLY
            reader.function(f)
        f += read or 1
    tokens.end()
    reader.pool.flush()
    return model


class _Reader:
    def __init__(self, tokens: Tokens, model: Model, top: float, scale: float) -> None:
        self.tokens, self.model, self.top, self.scale = tokens, model, top, scale
        self.pool = Collector(model)
        self.shared: list[tuple[IntArray, Table]] = []  # label counts and table

    def costs(self, raw: FloatArray) -> FloatArray:
        """Energies of costs of the file, in a new array."""
        return self.convert(raw.copy())

    def convert(self, raw: FloatArray) -> FloatArray:
        """The same in place."""
        hard = raw >= self.top
        raw /= self.scale
        raw[hard] = np.inf
        return raw

    def function(self, f: int) -> None:
        tokens, cards = self.tokens, self.model.cardinalities
        arity = tokens.integer(f"the arity of cost function {f}", low=-127, high=127)
        n = len(cards)
        scope = tokens.integers(abs(arity), f"a variable of cost function {f}", 0, n - 1)
        if len(set(scope.tolist())) != len(scope):
            tokens.fail(tokens.at - 1, f"distinct variables in the scope of cost function {f}")
        start = tokens.at
        default = float(tokens.numbers(1, f"the default cost of cost function {f}")[0])
        if default == -1 and arity != 0:
            self.keyword(scope, f)
            return
        if not default >= 0:
            tokens.fail(start, "a default cost of at least 0 (or -1 before a keyword)")
        number = tokens.integer(f"the number of tuples of cost function {f}", low=-(2**31))
        if number < 0:
            self.reuse(scope, -number)
            return
        width = len(scope) + 1
        if number * width > len(tokens) - tokens.at:
            tokens.fail(
                tokens.at - 1, f"a number of tuples, with {len(tokens) - tokens.at} tokens to follow", str(number)
            )
        start = tokens.at
        cells = tokens.numbers(number * width, f"a tuple of cost function {f}").reshape(number, width)
        labels, costs = cells[:, :-1], cells[:, -1]
        good = (labels >= 0) & (labels < cards[scope]) & (labels == np.floor(labels))
        if not good.all():
            row, p = (int(i) for i in np.argwhere(~good)[0])
            tokens.fail(start + row * width + p, f"a label in 0..{int(cards[scope[p]]) - 1}")
        if number and not costs.min() >= 0:
            tokens.fail(start + int(np.argmin(costs)) * width + width - 1, "a cost of at least 0")
        if arity == 0:
            self.model.add_constant(float(self.costs(costs if number else np.array([default]))[-1]))
            return
        table = Table(float(self.costs(np.array(default))), labels.astype(np.int64), self.costs(costs))
        if arity < 0:
            self.shared.append((cards[scope], table))
        table.add(self.pool, scope)

    def reuse(self, scope: IntArray, number: int) -> None:
        cards = self.model.cardinalities[scope]
        if not 1 <= number <= len(self.shared) or not np.array_equal(self.shared[number - 1][0], cards):
            self.tokens.fail(
                self.tokens.at - 1, f"one of {len(self.shared)} shared tables, of {cards.tolist()} labels", str(number)
            )
        self.shared[number - 1][1].add(self.pool, scope)

    def keyword(self, scope: IntArray, f: int) -> None:
        tokens = self.tokens
        word = tokens.word(f"a keyword of cost function {f}")
        if word not in RULES:
            tokens.fail(tokens.at - 1, f"a keyword out of {' '.join(RULES)} (others are not supported)")
        number = RULES[word][0]
        parameters = tokens.numbers(number, f"a parameter of '{word}'").tolist()
        if len(scope) != 2 or not np.isfinite(parameters).all():
            tokens.fail(tokens.at - 1, f"2 variables and finite parameters for '{word}', got {len(scope)} variables")
        if any(parameters[p] < 0 for p in _PENALTIES.get(word, ())):
            tokens.fail(tokens.at - 1, f"costs of at least 0 among the parameters of '{word}'")
        cards = self.model.cardinalities[scope].tolist()
        check_entries(float(cards[0]) * float(cards[1]), f"a cost function '{word}'")
        Table(0.0, None, self.convert(rule_costs(word, parameters, (cards[0], cards[1])))).add(self.pool, scope)


# ------------------------------------------------------------------------------------------------ writing


USUAL_DIGITS, MOST_DIGITS = 9, 15  # the second where all costs are small


def decimals(model: Model) -> int:
    """Digits behind the point that all costs need, at most 9, or 15 where no cost reaches a thousandth."""
    digits = 0
    parts = [np.array([model.constant]), model.unaries, *(t for _, t in tables(model))]
    parts = [part[np.isfinite(part)] for part in parts]
    largest = max(float(np.abs(part).max(initial=0.0)) for part in parts)
    if 0.0 < largest < 1e-9:
        raise ModelError(
            f"no cost is above {largest:.3g}, which {MOST_DIGITS} digits behind the point cannot hold; multiply the "
            "costs by some number, or write .npz, .h5 or .LG"
        )
    most = USUAL_DIGITS if largest >= 1e-3 or largest == 0.0 else MOST_DIGITS
    for values in parts:
        while digits < most:
            scaled = values * 10.0**digits
            unit = min(1.0, largest * 10.0**digits)  # nothing but rounding may be lost of what is there at all
            if (np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(unit, np.abs(scaled))).all():
                break
            digits += 1
    return digits


def check_digits(digits: int | None, model: Model) -> int:
    if digits is None:
        return decimals(model)
    if not isinstance(digits, int) or not 0 <= digits <= MOST_DIGITS:
        raise OptionError(f"option digits: expected an integer in 0..{MOST_DIGITS}, got {digits!r}")
    return digits


def write_wcsp(
    model: Model, stream: IO[bytes], suffix: str, *, digits: int | None = None, name: str = "tightmap"
) -> None:
    """Write integer costs: energies times 10^digits, rounded (``digits=None``: as many as they need, at most 9).

    Every factor is shifted to a minimum of 0; scale and shift go into the name.
    """
    check_expansion(model, suffix)
    if not re.fullmatch(r"\S+", name):
        raise OptionError(f"option name: expected one word, got {name!r}")
    power = check_digits(digits, model)
    scale = 10.0**power
    offset = model.constant if np.isfinite(model.constant) else 0.0
    functions: list[tuple[list[int], FloatArray]] = []
    top = 1.0
    for scope, costs in _all_tables(model):
        finite = np.isfinite(costs)
        low = float(costs[finite].min()) if finite.any() else 0.0
        offset += low
        scaled = np.rint((costs - low) * scale)
        top += float(scaled[finite].max()) if finite.any() else 0.0
        functions.append((scope, scaled))
    if top >= 2.0**53:
        raise ModelError(f"the costs need numbers up to {top:.3g}, more than 2^53; write fewer digits (option digits)")
    if not np.isfinite(model.constant):
        functions.append(([], np.array([np.inf])))
    if power or offset:
        name += f"__scale={scale:.0f}__offset={offset!r}"
    cards = model.cardinalities
    head = [
        f"{name} {len(cards)} {int(cards.max(initial=0))} {len(functions)} {top:.0f}",
        " ".join(map(str, cards.tolist())),
    ]
    stream.write(("\n".join(head) + "\n").encode())
    for scope, costs in functions:
        stream.write(_extension(scope, np.where(np.isinf(costs), top, costs)).encode())


def _all_tables(model: Model) -> Iterator[tuple[list[int], FloatArray]]:
    for i, costs in unary_tables(model):
        yield [i], costs
    for scopes, table in tables(model):
        for scope, costs in zip(scopes.tolist(), table, strict=True):
            yield scope, costs


def _extension(scope: list[int], costs: FloatArray) -> str:
    """One cost function; the most frequent cost is the default."""
    if not scope:
        return f"0 {costs[0]:.0f} 0\n"
    values, counts = np.unique(costs, return_counts=True)
    default = values[np.argmax(counts)]
    rows = np.argwhere(costs != default)
    lines = [" ".join(map(str, [len(scope), *scope, int(default), len(rows)]))]
    picked = costs[tuple(rows.T)].astype(np.int64)
    lines += [" ".join(map(str, [*row, cost])) for row, cost in zip(rows.tolist(), picked.tolist(), strict=True)]
    return "\n".join(lines) + "\n"
