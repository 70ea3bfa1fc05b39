"""The properties, each a line of Python that must be true, so that a reproducer can show the very line that failed.

The names in them:
  model, result       what was solved, and what came out
  optimum             by brute force, +inf if no labelling is allowed
  rounding            what adding up the costs of the best labelling may lose in float64
  blur                the same for the labelling whose costs are the largest
  tolerance           what OPTIMAL leaves open: 1e-9 of how far costs are apart, and blur
  seen                every Info that the callback got
  before              the result of an earlier run: of the same model, or of the one that ``model`` is a twin of
  start               energy of the labelling that was given as init
  descent             the highest energy at which coordinate descent can end
  factor, shift       energies of the twin are factor * energy + shift
  slack               how far OPTIMAL energies of twins may be apart
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tightmap as tm


def close(a: float, b: float, by: float) -> bool:
    """Equal, or not further apart than this; two infinities are equal."""
    return a == b or abs(a - b) <= by


CHECKS: dict[str, str] = {
    # one run
    "labels in range": "result.labels.shape == (model.num_variables,) "
    "and bool(((0 <= result.labels) & (result.labels < model.cardinalities)).all())",
    "energy is that of the labels": "result.energy == model.energy(result.labels)",
    "energy not below the optimum": "result.energy >= optimum - blur",
    "energy adds up": "close(result.energy, summed, blur)",
    "feasible is right": "result.feasible is (result.energy < inf)",
    "bound not above the optimum": "result.lower_bound <= optimum + rounding",
    "bound not above the energy": "result.lower_bound <= result.energy",
    "OPTIMAL is optimal": "result.status is not OPTIMAL or (optimum < inf and result.energy <= optimum + tolerance)",
    "INFEASIBLE is infeasible": "result.status is not INFEASIBLE or optimum == inf",
    "iterations within the limit": "result.iterations <= limit",
    "no time is no time": "result.status in (TIME_LIMIT, OPTIMAL, INFEASIBLE)",
    "ends by itself": "result.status in (CONVERGED, OPTIMAL, INFEASIBLE)",
    # float64 cannot close a gap as small as rounding, and a search adds the same costs up a few times
    "proves small models": (
        "result.status is (OPTIMAL if optimum < inf else INFEASIBLE) "
        "or 0 < result.energy - result.lower_bound <= 16 * blur"
    ),
    "not worse than descent": "result.energy <= descent + blur",
    # what was shown on the way
    "shown bounds not above the optimum": "all(i.lower_bound <= optimum + rounding for i in seen)",
    "shown bounds never fall": "all(a.lower_bound <= b.lower_bound for a, b in pairwise(seen))",
    "shown energies never rise": "all(a.energy >= b.energy for a, b in pairwise(seen))",
    "shown energies not below the optimum": "all(i.energy >= optimum - blur for i in seen)",
    "shown energies are those of the labels": "all(close(i.energy, model.energy(i.labels), blur) for i in seen)",
    "result not worse than shown": "all(result.energy <= i.energy + blur for i in seen)",
    "result not weaker than shown": "all(result.lower_bound >= min(i.lower_bound, result.energy) for i in seen)",
    "trace is what was shown": "[(r['iteration'], r['energy'], r['lower_bound']) for r in result.trace] "
    "== [(i.iteration, i.energy, i.lower_bound) for i in seen]",
    "iterations go on": "all(a.iteration <= b.iteration for a, b in pairwise(seen))",
    "clock goes on": "all(a.elapsed <= b.elapsed for a, b in pairwise(seen))",
    "stops when asked": "len(seen) < 2 or (len(seen) == 2 and result.status not in (TIME_LIMIT, ITERATION_LIMIT))",
    # two runs
    "not worse than init": "result.energy <= start + blur",
    "not worse than the run before": "result.energy <= before.energy + blur",
    "same labels": "(result.labels == before.labels).all() and result.energy == before.energy",
    "same bound": "result.lower_bound == before.lower_bound and result.status is before.status",
    "twins agree on the optimum": "not (before.status is result.status is OPTIMAL) "
    "or close(result.energy, factor * before.energy + shift, slack)",
    "twins do not contradict each other": "not (before.status is INFEASIBLE and result.feasible) "
    "and not (result.status is INFEASIBLE and before.feasible)",
    "exact twins have the same status": "result.status is before.status",
    "exact twins have the same energy": "result.energy == factor * before.energy + shift",
    "part is not better than the whole": "before.status not in (OPTIMAL, INFEASIBLE) "
    "or result.energy >= before.energy - tolerance",
}

RUN = tuple(CHECKS)[: tuple(CHECKS).index("iterations within the limit")]
SHOWN = tuple(name for name in CHECKS if name.startswith(("shown", "result not", "trace", "iterations go", "clock")))

COMPILED = {name: compile(line, name, "eval") for name, line in CHECKS.items()}
STATUSES = {status.name: status for status in tm.Status}


def holds(check: str, facts: Mapping[str, Any]) -> bool:
    """Is this property true of these facts?"""
    from itertools import pairwise
    from math import inf

    names = {**STATUSES, "close": close, "pairwise": pairwise, "inf": inf, **facts}
    return bool(eval(COMPILED[check], names))
