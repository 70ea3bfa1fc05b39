"""Images: models that are canonical as they are, so that their Graph needs no list of edges (graph/lattice.py).

One block of Potts or truncated differences, with one limit, on the edges of ``Model.edges``, step by step as there but
with the steps in any order, no weight of zero, no variable fixed, finite costs.  The form of everything else is
assembled (build.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tightmap.canonical.assemble import NOTHING_FORBIDDEN, common_quantum
from tightmap.canonical.recognise import Sums
from tightmap.canonical.units import Unit
from tightmap.factors.difference import DifferenceBlock, LinearBlock, QuadraticBlock
from tightmap.factors.piece import Piece
from tightmap.factors.potts import PottsBlock
from tightmap.graph.graph import LATER, Arrays, FloatArray, Graph, Kind
from tightmap.graph.lattice import Lattice, make_pixels
from tightmap.runtime.compiled import lean

if TYPE_CHECKING:
    from tightmap.factors.block import Block
    from tightmap.model.model import Model

IMPLICIT = 1 << 18  # variables from which on a list of edges is worth avoiding, also at the cost of some moves
NARROWEST = 3  # on narrower grids two steps may lead to the same neighbour


@lean
def _listed(scopes, begin, height, width, dr, dc):
    """Whether the scopes from ``begin`` on are the edges of this step, in raster order; where they end, or -1."""
    e = begin
    for r in range(height - dr):
        for c in range(max(0, -dc), width - max(0, dc)):
            p = r * width + c
            if e >= len(scopes) or scopes[e, 0] != p or scopes[e, 1] != p + dr * width + dc:
                return -1
            e += 1
    return e


def _steps(model: Model, block: Block) -> list[tuple[int, int]] | None:
    """The steps of a block on all edges of a grid, one step after the other in any order; None where it has others."""
    from tightmap.model.model import grid_steps

    assert model.grid_shape is not None
    height, width = model.grid_shape
    for reach in (1, 2):
        left = [(int(dr), int(dc)) for dr, dc in grid_steps(2, reach)]
        if len(block) != sum((height - dr) * (width - abs(dc)) for dr, dc in left):
            continue
        found: list[tuple[int, int]] = []
        begin = 0
        while left:
            distance = int(block.scopes[begin, 1] - block.scopes[begin, 0])
            step = next((s for s in left if s[0] * width + s[1] == distance), None)
            begin = -1 if step is None else int(_listed(block.scopes, begin, height, width, *step))
            if step is None or begin < 0:
                return None
            left.remove(step)
            found.append(step)
        return found
    return None


def image_steps(model: Model) -> list[tuple[int, int]] | None:
    """The steps of the edges of a model that ``image_graph`` takes, else None."""
    shape, unaries = model.grid_shape, model.given_unaries
    if shape is None or min(shape) < NARROWEST or len(model.blocks) != 1 or unaries is None:
        return None
    block = model.blocks[0]
    if type(block) not in (PottsBlock, LinearBlock, QuadraticBlock):
        return None
    labels = int(model.cardinalities[0])
    if labels < 2 or (model.cardinalities != labels).any() or (model.clamped >= 0).any():
        return None
    if isinstance(block, DifferenceBlock) and (block.limits != block.limits[0]).any():
        return None
    if not math.isfinite(model.constant) or not np.isfinite(unaries.max()) or not block.weights.all():
        return None
    return _steps(model, block)


def image_graph(
    model: Model, unit: Unit, steps: list[tuple[int, int]], write_out: Callable[[], Arrays], avoided: bool
) -> Graph:
    """The Graph of such a model; ``write_out`` makes the arrays when somebody asks for them.

    avoided : methods are to do without these
    """
    assert model.grid_shape is not None
    block, labels = model.blocks[0], int(model.cardinalities[0])
    difference = np.arange(labels, dtype=np.float64)
    limit = 1.0
    if isinstance(block, DifferenceBlock):
        limit = float(min(block.limits[0], (labels - 1.0) ** block.power))
        profile = np.minimum(difference**block.power, limit)
    else:
        profile = (difference > 0).astype(np.float64)
    unary = model.kept_unaries()
    weights: FloatArray = block.weights
    constant = weights.strides[0] == 0 or bool((weights == weights[0]).all())
    weight = weights[:1].copy() if constant else weights.copy()
    tables = np.zeros((1, 0)) if block.kind == Kind.POTTS else np.array([[limit]])
    none = np.zeros((1, 0), dtype=np.int64)
    few = np.zeros(1, dtype=np.int64)
    piece = Piece(block.kind, block.scopes[:1], weight, few, tables, none)
    pixels = make_pixels(model.grid_shape, steps, unary, weight, profile, block.kind == Kind.POTTS)
    return Graph(
        arrays=LATER,
        variables=LATER,
        fixed=LATER,
        grid_shape=model.grid_shape,
        quantum=common_quantum(unary, [piece], Sums(few, unary[:0])),
        slack=0.0,
        power=0,
        typical=unit.typical,
        shift=model.constant,
        lattice=Lattice(pixels, int(block.kind), limit, len(block), write_out, avoided),
        **NOTHING_FORBIDDEN,
    )
