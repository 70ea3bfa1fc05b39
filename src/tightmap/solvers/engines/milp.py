"""milp: the integer programme of the local polytope, by HiGHS.

    minimise   sum_i theta_i . x_i + sum_A theta_A . mu_A
    where      sum_a x_i(a) = 1,   sum over tuples with a_p = s of mu_A(a) = x_p(s),   mu >= 0,   x_i(a) = 0 or 1

First the linear relaxation is solved.  The multipliers of its second equations are messages, and whatever messages are,
a bound follows from them (energy/energies.py): that is the bound which is given, evaluated here with its own rounding
error.  Then the integer programme is solved, from the labelling at hand.

HiGHS computes in floating point, to tolerances.  When it ends, its labelling is the best one as far as these go, which
is no proof: the status is OPTIMAL only where the bound of the linear relaxation meets the energy.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tightmap.energy.energies import lower_bound
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.engines.external import External, State
from tightmap.solvers.engines.whole import Whole
from tightmap.solvers.engines.worker import Message

LARGEST = 1e4  # costs that are no whole numbers are scaled to this: HiGHS has absolute tolerances
COUNTED = 1e6  # whole costs up to here are left as they are


@dataclass(frozen=True)
class MILP(External):
    """No options."""

    name: ClassVar[str] = "milp"
    summary: ClassVar[str] = "linear relaxation with a certified bound, then the integer programme, by HiGHS"
    capabilities: ClassVar[Capabilities] = Capabilities(small_tables=True, bounds=True, random=True)
    module: ClassVar[str] = "highspy"
    program: ClassVar[str] = "HiGHS"
    search: ClassVar[str] = "tightmap.solvers.engines.milp_search"
    entries: ClassVar[int] = 1_000_000
    cuts: ClassVar[bool] = False  # the messages have to bound every allowed tuple

    def problem(self, state: State, whole: Whole) -> dict[str, Any]:
        largest = float(max(whole.unary.max(initial=0), whole.tables.max(initial=0)))
        unit = 1.0 if whole.exact and largest <= COUNTED else LARGEST / max(largest, 1.0)
        state.memory["unit"] = unit * whole.scale
        return {"unit": unit}

    def _hear(self, state: State, message: Message) -> None:
        if "duals" in message:
            duals = np.frombuffer(base64.b64decode(message["duals"]))
            messages = duals / state.memory["unit"]
            if np.isfinite(messages).all():
                state.bound = max(state.bound, lower_bound(state.graph, messages))
        super()._hear(state, message)
        if message.get("end") == "optimal":
            state.note = "HiGHS ends here: its labelling is the best one within its tolerances, which is no proof"
        elif message.get("end") == "infeasible":
            state.note = "HiGHS says, within its tolerances, that no labelling keeps all hard constraints"
