"""Small dense blocks of one shape are joined before they are recognised.

Models that are built factor by factor, or read from files that list them so, have thousands of blocks of one factor
each.  Recognising a block is a few dozen array operations whatever its size, about a millisecond for a single table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tightmap.factors.block import Block
from tightmap.factors.dense import DenseBlock

SMALL = 1 << 14  # entries of the tables of a block up to which copying them costs less than another block


def joined(blocks: Sequence[Block]) -> list[Block]:
    """The same factors in fewer blocks; a joined block stands where the first of its blocks was."""
    groups: dict[tuple[int, ...], list[DenseBlock]] = {}
    for block in blocks:
        if type(block) is DenseBlock and block.tables.size <= SMALL:
            groups.setdefault(block.tables.shape[1:], []).append(block)
    out: list[Block] = []
    for block in blocks:
        if type(block) is not DenseBlock or block.tables.size > SMALL:
            out.append(block)
        elif (group := groups.pop(block.tables.shape[1:], None)) is not None:
            out.append(_join(group))
    return out


def _join(group: list[DenseBlock]) -> DenseBlock:
    if len(group) == 1:
        return group[0]
    first = np.cumsum([0, *(len(block.tables) for block in group[:-1])])
    return DenseBlock(
        np.concatenate([block.scopes for block in group]),
        np.concatenate([block.weights for block in group]),
        np.concatenate([block.tables for block in group]),
        np.concatenate([block.index + start for block, start in zip(group, first, strict=True)]),
    )
