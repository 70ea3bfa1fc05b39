"""The unit in which the canonical form counts costs: a power of two that makes ordinary costs ordinary numbers.

Nothing a solver does, and nothing it claims, may depend on whether costs are given in volts or in microvolts.  Methods
square costs, divide by them and compare differences with thresholds, so costs of 1e-300 or 1e200 would overflow or
vanish.  The canonical form of a model with such costs is therefore in units of 2^-power: multiplying by a power of two
is exact, and the energies and bounds of the user are exact multiples of the canonical ones.  Models with ordinary costs
keep their own unit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tightmap.graph.graph import FloatArray
    from tightmap.model.model import Model

SMALL, LARGE = 2.0**-4, 2.0**64  # typical costs in this range are left as they are
SAMPLE = 2048  # variables, and factors of each block, that are looked at
SAFE = 2.0**300  # the sum of all costs in canonical units stays below this: methods square costs


def unit_power(model: Model) -> int:
    """The power of two by which the costs of a model are multiplied; mostly 0."""
    sizes = [block.sizes(_every(len(block))) for block in model.blocks]
    unaries = model.given_unaries
    if unaries is not None and len(unaries):
        sizes.append(_ranges(unaries, model.offset, _every(model.num_variables)))
    sample = np.concatenate([np.zeros(0), *sizes])
    sample = sample[(sample > 0.0) & np.isfinite(sample)]
    if len(sample) == 0:
        return 0
    typical = float(np.median(sample))
    if SMALL <= typical <= LARGE and sample.max() <= SAFE:
        return 0
    power = -math.frexp(typical)[1]
    # rare huge costs beside tiny ones: the sum of all of them has to stay finite
    terms = model.num_variables + model.num_factors + 1
    room = math.frexp(SAFE)[1] - math.frexp(float(sample.max()))[1] - terms.bit_length()
    return min(power, room)


def _every(count: int) -> slice:
    """About SAMPLE of so many rows, evenly spread."""
    return slice(0, count, max(1, count // SAMPLE))


def _ranges(unaries: FloatArray, offset: np.ndarray, rows: slice) -> FloatArray:
    """Range of the finite unary costs of some variables: a constant added to all labels does not count."""
    out = []
    for begin, end in zip(offset[:-1][rows].tolist(), offset[1:][rows].tolist(), strict=True):
        costs = unaries[begin:end]
        costs = costs[np.isfinite(costs)]
        if len(costs):
            with np.errstate(over="ignore"):
                out.append(float(costs.max() - costs.min()))
    return np.array(out, dtype=np.float64)
