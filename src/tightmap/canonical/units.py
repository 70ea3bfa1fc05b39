"""The unit in which the canonical form counts costs: a power of two that makes ordinary costs ordinary numbers.

Nothing a solver does, and nothing it claims, may depend on whether costs are given in volts or in microvolts.  Methods
square costs, divide by them and compare differences with thresholds, so costs of 1e-300 or 1e200 would overflow or
vanish.  The canonical form of a model with such costs is therefore in units of 2^-power: multiplying by a power of two
is exact, and the energies and bounds of the user are exact multiples of the canonical ones.  Models with ordinary costs
keep their own unit.

Only where the sizes of costs differ by more than the exponents of float64 can hold (1e300 beside 1e-150) do the
smallest ones vanish in the unit of the largest.  What may be lost so (``lost_costs``) is subtracted from every bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tightmap.errors import ModelError
from tightmap.factors.block import largest_finite

if TYPE_CHECKING:
    from tightmap.factors.block import Block
    from tightmap.graph.graph import FloatArray
    from tightmap.model.model import Model

SMALL, LARGE = 2.0**-4, 2.0**64  # typical costs in this range are left as they are
SAMPLE = 2048  # variables, and factors of each block, that are looked at
MOST = 1.7e308  # the largest cost there is, about
TINY, NORMAL = 2.0**-1074, 2.0**-1022  # the smallest number there is, and the smallest with all its bits
SAFE = 2.0**300  # the sum of all costs in canonical units stays below this: methods square costs
TOO_LARGE = "the costs are too large: energies could exceed the largest number there is, about 1.8e308; scale them down"


class Unit(NamedTuple):
    """The unit of a canonical form, and how large costs are in it."""

    power: int  # costs are multiplied by 2^power; mostly 0
    typical: float  # median range of a factor or of the unaries of a variable, after that


def choose_unit(model: Model, blocks: Sequence[Block]) -> Unit:
    """The unit for a model whose factors are in these blocks."""
    sizes = [block.sizes(_every(len(block))) for block in blocks]
    unaries = model.given_unaries
    largest = 0.0
    if unaries is not None and len(unaries):
        ranges, largest = _ranges(unaries, model, _every(model.num_variables))
        sizes.append(ranges)
        if model.num_variables > SAMPLE:
            largest = max(largest, largest_finite(unaries))
    sample = np.concatenate([np.zeros(0), *sizes])
    sample = sample[sample > 0.0]
    largest = max([largest, float(sample.max(initial=0.0)), *(_unseen(block) for block in blocks)])
    if math.isinf(largest):  # a weight times a cost is no number: as a cost it would forbid what nobody forbade
        raise ModelError(TOO_LARGE)
    typical = _median(sample) if len(sample) else largest
    if typical == 0.0 or (SMALL <= typical <= LARGE and largest <= SAFE):
        return Unit(0, typical or 1.0)
    power = -math.frexp(typical)[1]
    # rare huge costs beside tiny ones: the sum of all of them has to stay finite
    if unaries is not None:
        largest = max(largest, float(np.abs(unaries).max(initial=0.0, where=np.isfinite(unaries))))
    for block in blocks:
        largest = max(largest, float(block.sizes(slice(None)).max(initial=0.0)))
    terms = model.num_variables + model.num_factors + 1
    room = math.frexp(SAFE)[1] - math.frexp(min(largest, MOST))[1] - terms.bit_length()
    power = min(power, room)
    return Unit(power, math.ldexp(typical, power))


def lost_costs(model: Model, blocks: Sequence[Block], power: int) -> float:
    """By how much, in canonical units, the energy of a labelling may differ because costs vanish; mostly 0.0.

    A number too small for a normal one is off by at most half of TINY when it is rounded.  Tables are counted in units
    of their own largest entry (``Block.scaled``), so there the error is that part of the largest cost.
    """
    lost = 0.0
    unaries = model.given_unaries
    if unaries is not None and _vanish(unaries, np.ldexp(unaries, power)):
        lost += model.num_variables
    for block in blocks:
        scaled = block.scaled(power)
        parts = ("weights", *block.costs_in)
        if any(_vanish(getattr(block, part), getattr(scaled, part)) for part in parts):
            lost += float(np.maximum(scaled.sizes(slice(None)), 1.0).sum()) * len(parts)
    return TINY * lost


def _vanish(costs: FloatArray, scaled: FloatArray) -> bool:
    """Has some cost lost bits, having become too small for a normal number?"""
    small = (np.abs(scaled) < NORMAL) & (costs != 0.0)
    if not small.any():
        return False
    at = np.argmax(np.where(np.isfinite(scaled), np.abs(scaled), 0.0))
    power = math.frexp(scaled.flat[at])[1] - math.frexp(costs.flat[at])[1]
    if scaled.flat[at] == 0.0:
        return True
    with np.errstate(over="ignore"):  # of tables that no factor uses: they are zero in ``scaled``, so it is not asked
        expected = np.ldexp(costs[small], power)
        return bool(((np.ldexp(expected, -power) != costs[small]) & np.isfinite(expected)).any())


def _unseen(block: Block) -> float:
    """The size of the largest factor of a block of which only a sample was looked at, unless all are ordinary."""
    if len(block) <= SAMPLE:
        return 0.0
    most = largest_finite(block.weights)
    with np.errstate(over="ignore"):
        most *= max((largest_finite(getattr(block, name)) for name in block.costs_in), default=1.0)
    return 0.0 if most <= SAFE else float(block.sizes(slice(None)).max(initial=0.0))


def _every(count: int) -> slice:
    """About SAMPLE of so many rows, evenly spread."""
    return slice(0, count, max(1, count // SAMPLE))


def _median(sample: FloatArray) -> float:
    """As np.median, which takes twenty microseconds for a handful of numbers."""
    middle = (len(sample) - 1) // 2, len(sample) // 2
    ordered = np.partition(sample, middle)
    low, high = float(ordered[middle[0]]), float(ordered[middle[1]])
    return high if low == high else (low + high) / 2.0


def _ranges(unaries: FloatArray, model: Model, rows: slice) -> tuple[FloatArray, float]:
    """Ranges of the finite unary costs of some variables (constants do not count), and the largest cost of these."""
    begins, counts = model.begins(rows), model.cardinalities[rows]
    if len(counts) and (counts == counts[0]).all():
        every = len(unaries) == len(counts) * counts[0]  # rows of one length, one after the other
        # label by label: few labels are a short axis
        costs = unaries.reshape(len(counts), -1).T if every else unaries[begins + np.arange(counts[0])[:, None]]
        costs = costs.astype(np.float64, copy=False)
        high, low = costs.max(axis=0), costs.min(axis=0)
        top = max(float(high.max()), -float(low.min()))
        if top < MOST / 2.0:  # all costs are finite, and so are their differences
            return high - low, top
    out = [np.zeros(0)]
    largest = 0.0
    for labels in np.unique(counts):
        costs = unaries[begins[counts == labels][:, None] + np.arange(labels)].astype(np.float64, copy=False)
        finite = np.isfinite(costs)
        with np.errstate(over="ignore", invalid="ignore"):  # a variable without finite costs gives -inf: no range
            spread = costs.max(axis=1, where=finite, initial=-np.inf) - costs.min(axis=1, where=finite, initial=np.inf)
        out.append(spread[finite.any(axis=1)])
        largest = max(largest, float(np.abs(costs).max(where=finite, initial=0.0)))
    return np.concatenate(out), largest
