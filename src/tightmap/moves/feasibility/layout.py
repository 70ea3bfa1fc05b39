"""Constraints as the flat arrays that the kernels work on (literal_trail.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.moves.feasibility.arcs import LABELS
from tightmap.moves.feasibility.constraints import Constraints, Tables
from tightmap.moves.feasibility.literal_trail import (
    COUNTERS,
    FIRST,
    LEAST,
    MASK,
    OF,
    ON,
    ORIGIN,
    SUPPORT,
    TABLE,
    TO,
    VARIABLE,
    WORD,
    Ints,
    Rules,
    Shorts,
    Store,
    Words,
)


def _words(bits: npt.NDArray[np.bool_]) -> Words:
    """(rows, words) of (rows, bits): bit k of a row is bit k % 64 of its word k // 64."""
    rows, count = bits.shape
    padded = np.zeros((rows, 64 * -(-count // 64)), np.bool_)
    padded[:, :count] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _masks(tables: Tables) -> Words:
    """(labels of all positions, words) which tuples contain a label."""
    rows = [tables.allowed[:, p] == np.arange(card)[:, None] for p, card in enumerate(tables.cards)]
    return _words(np.concatenate(rows))


def _by_arcs(group: Tables) -> bool:
    return len(group.cards) == 2 and max(group.cards) <= LABELS


def _arcs(groups: list[Tables]) -> tuple[Ints, Words]:
    """Both arcs of all these tables, ordered by the variable they come from, and the words they refer to."""
    rows, words, at = [np.zeros((0, 5), np.int64)], [np.zeros(0, np.uint64)], 0
    for group in groups:
        allowed = np.zeros(group.cards, np.bool_)
        allowed[group.allowed[:, 0], group.allowed[:, 1]] = True
        words += [_words(allowed)[:, 0], _words(allowed.T)[:, 0]]
        of, on = at, at + group.cards[0]
        at = on + group.cards[1]
        for first, here, there, fewest in ((0, of, on, allowed.sum(axis=0)), (1, on, of, allowed.sum(axis=1))):
            row = np.empty((len(group.scopes), 5), np.int64)
            row[:, ORIGIN], row[:, TO] = group.scopes[:, first], group.scopes[:, 1 - first]
            row[:, OF], row[:, ON], row[:, LEAST] = here, there, fewest.min()
            rows.append(row)
    arc = np.concatenate(rows)
    return arc[np.argsort(arc[:, ORIGIN], kind="stable")], np.concatenate(words)


def rules(offset: Ints, cost: npt.NDArray[np.float64], given: Constraints) -> Rules:
    """The variables with labels offset[i]..offset[i + 1] - 1, two or more each, and the tables."""
    cards = np.diff(offset)
    n, labels = len(cards), int(offset[-1])
    several = np.where(cards > 2, cards, 1)
    begin = np.concatenate(([0], np.cumsum(several)))
    of_label = np.repeat(np.arange(n), cards)
    inner = np.arange(labels) - offset[of_label]
    pair = cards[of_label] == 2
    literal = np.where(pair, 2 * begin[of_label] + 1 - inner, 2 * (begin[of_label] + inner))
    effect = np.full((2 * int(begin[-1]), 2), -1, np.int32)
    effect[literal, 1] = np.arange(labels)
    effect[literal ^ 1, 0] = np.arange(labels)
    slot, table, masks, everything = [], [(0, 0)], [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    at = supports = 0  # where the next masks and supports start
    arc, beside = _arcs([group for group in given.tables if _by_arcs(group)])
    for group in given.tables:
        if _by_arcs(group):
            continue
        mine = _masks(group)
        count, (rows, order) = mine.shape[1], group.scopes.shape
        within = np.concatenate(([0], np.cumsum(group.cards)))  # where the labels of a position start
        here = np.empty((rows, order, 4), np.int64)
        here[:, :, TABLE] = len(table) - 1 + np.arange(rows)[:, None]
        here[:, :, VARIABLE] = group.scopes
        here[:, :, MASK] = at + count * within[:-1]
        here[:, :, SUPPORT] = supports + within[-1] * np.arange(rows)[:, None] + within[:-1]
        slot.append(here.reshape(-1, 4))
        first, word = table[-1]
        table += [(first + order * k, word + count * k) for k in range(1, rows + 1)]
        masks.append(mine.reshape(-1))
        everything.append(np.tile(_words(np.ones((1, len(group.allowed)), np.bool_)).reshape(-1), rows))
        at += mine.size
        supports += rows * int(within[-1])
    slots = np.concatenate(slot) if slot else np.zeros((0, 4), np.int64)
    order = np.argsort(slots[:, VARIABLE], kind="stable")
    near = np.concatenate(([0], np.cumsum(np.bincount(slots[:, VARIABLE], minlength=n))))
    return Rules(
        offset=offset.astype(np.int64),
        owner=np.repeat(np.arange(n), several).astype(np.int32),
        literal=literal.astype(np.int32),
        effect=effect,
        near=near.astype(np.int64),
        slots=order.astype(np.int32),
        slot=slots,
        table=np.array(table, np.int64),
        masks=np.concatenate(masks),
        all=np.concatenate(everything),
        arcs=np.concatenate(([0], np.cumsum(np.bincount(arc[:, ORIGIN], minlength=n)))).astype(np.int64),
        arc=arc,
        beside=beside,
        cost=np.asarray(cost, np.float64),
    )


def _clauses(literal: Shorts, given: Constraints) -> tuple[Shorts, Ints]:
    """The arena with all clauses, and where each starts."""
    parts, starts, at = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], 0
    for labels in given.clauses:
        rows, length = labels.shape
        part = np.zeros((rows, FIRST + length), np.int32)
        part[:, 0] = length
        part[:, FIRST:] = literal[labels] ^ 1
        parts.append(part.reshape(-1))
        starts.append(at + (FIRST + length) * np.arange(rows))
        at += part.size
    return np.concatenate(parts), np.concatenate(starts)


def empty_store(r: Rules, given: Constraints) -> tuple[Store, Ints]:
    """Nothing known, all tables to be looked at; and where the clauses are, which are not yet watched."""
    n, literals, tables = len(r.offset) - 1, len(r.effect), len(r.table) - 1
    booleans = literals // 2
    clauses, starts = _clauses(r.literal, given)
    tuples = sum(len(group.scopes) * len(group.allowed) for group in given.tables if not _by_arcs(group))
    supports = int(r.slot[-1, SUPPORT] + np.diff(r.offset)[r.slot[-1, VARIABLE]]) if len(r.slot) else 0
    longest = int(np.diff(r.table[:, WORD]).max(initial=1))
    wide = max(len(r.literal), literals) + 2
    counters = np.zeros(1, COUNTERS).view(np.recarray)
    counters[0].queued, counters[0].open_variables, counters[0].arena_used = tables, n, len(clauses)
    counters[0].moves = n
    cards = np.diff(r.offset)
    every = np.left_shift(np.uint64(1), np.minimum(cards, LABELS - 1).astype(np.uint64)) - np.uint64(1)
    every[cards >= LABELS] = ~np.uint64(0)

    def shorts(count: int, fill: int = 0) -> Shorts:
        return np.full(count, fill, np.int32)

    built = Store(
        counters=counters,
        value=np.zeros(literals, np.int8),
        info=np.zeros((booleans, 3), np.int64),
        trail=shorts(booleans),
        mark=np.zeros((n + booleans + 2, 2), np.int64),
        size=np.diff(r.offset).astype(np.int32),
        taken=shorts(n, -1),
        domain=every,
        moves=np.arange(n, dtype=np.int32),
        moved=np.ones(n, np.uint8),
        words=r.all.copy(),
        changed=np.zeros(tuples + 1, np.int64),
        before=np.zeros(tuples + 1, np.uint64),
        support=shorts(supports),
        queue=np.arange(tables, dtype=np.int32),
        waiting=np.ones(tables, np.uint8),
        head=shorts(literals, -1),
        arena=np.concatenate((clauses, shorts(8 * (literals + FIRST) + 4096))),
        cause=shorts(wide),
        learnt=shorts(wide),
        seen=np.zeros(booleans, np.uint8),
        touched=shorts(booleans),
        scratch=np.zeros(longest, np.uint64),
        activity=np.concatenate((np.zeros(n), np.ones(1))),
        heap=np.arange(n, dtype=np.int32),
        where=np.arange(n, dtype=np.int32),
        phase=shorts(n, -1),
        stamp=np.zeros(n + booleans + 2, np.int64),
    )
    return built, starts


def with_more_variables(r: Rules, s: Store, more: int) -> tuple[Rules, Store]:
    """The same with so many more variables of two labels, on which there is no constraint; not among the open ones."""
    n, booleans, labels = len(r.offset) - 1, len(r.effect) // 2, int(r.offset[-1])
    first = labels + 2 * np.arange(more)
    ours = 2 * (booleans + np.arange(more))  # the literals that say that the second label is taken
    literal = np.column_stack((ours + 1, ours)).astype(np.int32)
    effect = np.column_stack((first, first + 1, first + 1, first)).reshape(-1, 2).astype(np.int32)

    def longer(array: npt.NDArray[Any], count: int, fill: int = 0) -> Any:
        shape = (count, *array.shape[1:])
        return np.concatenate((array, np.full(shape, fill, array.dtype)))

    rules = r._replace(
        offset=np.concatenate((r.offset, first + 2)),
        owner=np.concatenate((r.owner, n + np.arange(more, dtype=np.int32))),
        literal=np.concatenate((r.literal, literal.reshape(-1))),
        effect=np.concatenate((r.effect, effect)),
        near=longer(r.near, more, int(r.near[-1])),
        arcs=longer(r.arcs, more, int(r.arcs[-1])),
        cost=longer(r.cost, 2 * more),
    )
    store = s._replace(
        **{name: longer(getattr(s, name), more) for name in ("info", "trail", "seen", "touched", "heap", "moves")},
        **{name: longer(getattr(s, name), 2 * more) for name in ("value", "mark", "cause", "learnt", "stamp")},
        **{name: longer(getattr(s, name), more, -1) for name in ("taken", "where", "phase")},
        head=longer(s.head, 2 * more, -1),
        size=longer(s.size, more, 2),
        domain=longer(s.domain, more, 3),
        moved=longer(s.moved, more),
        activity=np.concatenate((s.activity[:-1], np.zeros(more), s.activity[-1:])),
    )
    return rules, store
