"""Sequential tree-reweighted message passing on a pairwise model (V. Kolmogorov, PAMI 2006)."""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.model.model import Model
from tightmap.reference.dense import softened, tables
from tightmap.reference.model import Labels, Outcome, Tables
from tightmap.reference.tensor import Vector

Pairs = dict[tuple[int, int], Vector]


def edge_tables(t: Tables) -> Pairs:
    """theta_ij for both orders of the ends, edges on the same two variables added up."""
    pairs: Pairs = {}
    for scopes, costs, _ in t.groups:
        for (i, j), table in zip(scopes.tolist(), costs, strict=True):
            pairs[i, j] = pairs.get((i, j), 0.0) + table
            pairs[j, i] = pairs[i, j].T
    return pairs


def one_pass(t: Tables, pairs: Pairs, messages: Pairs, order: list[int]) -> tuple[float, Labels]:
    """One pass along the order: new messages to the later variables, the bound (of a pass backwards), and labels.

    A variable averages over the chains through it: gamma = 1 / max(number of earlier, of later neighbours).
    """
    place = {i: k for k, i in enumerate(order)}
    bound = t.constant
    labels = np.zeros(len(order), dtype=np.int64)
    rows = t.rows
    for i in order:
        unary = t.unary[rows[i]]
        around = [j for (a, j) in pairs if a == i]
        later = [j for j in around if place[j] > place[i]]
        gamma = 1.0 / max(1, len(later), len(around) - len(later))

        # the best label given those of earlier variables, and messages instead of the later ones
        cost = unary + sum(messages[j, i] if j in later else pairs[i, j][:, labels[j]] for j in around)
        labels[i] = np.argmin(cost)

        total = unary + sum(messages[j, i] for j in around)
        bound += float(total.min())
        total = total - total.min()
        for j in later:
            message = (gamma * total - messages[j, i])[:, None] + pairs[i, j]
            messages[i, j] = message.min(axis=0)
            bound += float(messages[i, j].min())
            messages[i, j] -= messages[i, j].min()
    return bound, labels


def trws(model: Model | Tables, iterations: int = 50) -> Outcome:
    """Passes forwards and backwards in the order of the variables; the best labels that any pass has met.

    The trace has the bound after each iteration, which never falls: at most the optimum of the linear relaxation.
    """
    hard = tables(model)
    if hard.order > 2:
        raise ModelError(f"trws: pairwise models only, this one has a factor of {hard.order} variables")
    t = softened(hard)
    pairs = edge_tables(t)
    messages: Pairs = {(i, j): np.zeros(table.shape[1]) for (i, j), table in pairs.items()}
    forwards = list(range(len(t.rows)))
    best, energy = t.argmin(t.unary), np.inf
    trace = []
    for _ in range(iterations):
        _, first = one_pass(t, pairs, messages, forwards)
        bound, second = one_pass(t, pairs, messages, forwards[::-1])
        for labels in (first, second):
            if hard.energy(labels) < energy:
                best, energy = labels, hard.energy(labels)
        trace.append({"bound": bound, "energy": energy})
    return Outcome(best, hard.energy(best), trace)
