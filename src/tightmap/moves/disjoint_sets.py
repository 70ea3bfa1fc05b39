"""Disjoint sets: a forest of parents, in which every set is a tree and its root stands for it."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.runtime.compiled import compiled


@compiled
def find_root(parent, i):
    """The root of the set of i; the way there is halved for the next one who asks."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
