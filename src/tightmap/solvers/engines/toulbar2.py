"""toulbar2: the cost function network solver, branch and bound with soft local consistency.

It is given whole costs, relative to the least entry of every table, and an upper bound from the labelling at hand:

    minimise   C(x) = sum_i c_i(x_i) + sum_A c_A(x_A)     over labellings with C(x) < C(the labelling that is known)

so that it ends with a better labelling, which is optimal, or with the proof that there is none.  It computes in 64-bit
integers, and its bounds are those of the whole costs; the error of the scaling is subtracted (whole.py).

Labellings and bounds on the way are read from what it prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from tightmap.errors import OptionError
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.engines.external import External, State
from tightmap.solvers.engines.whole import Whole
from tightmap.solvers.engines.worker import Message

GAP = re.compile(r"Optimality gap: \[(\d+), \d+\]")


@dataclass(frozen=True)
class Toulbar2(External):
    """Options of toulbar2.

    vac  virtual arc consistency to this depth of the search (less one; 1: at the root): stronger bounds, slower nodes
    """

    vac: int = 0

    name: ClassVar[str] = "toulbar2"
    summary: ClassVar[str] = "branch and bound with soft local consistency, by toulbar2: weighted CSPs"
    capabilities: ClassVar[Capabilities] = Capabilities(small_tables=True, bounds=True, exact=True, random=True)
    module: ClassVar[str] = "pytoulbar2"
    program: ClassVar[str] = "pytoulbar2"
    search: ClassVar[str] = "tightmap.solvers.engines.toulbar2_search"
    entries: ClassVar[int] = 10_000_000
    keeps: ClassVar[bool] = False  # its options are global, and it is loaded in no time

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vac < 0:
            raise OptionError(f"toulbar2: vac must be at least 0, got {self.vac}")

    def problem(self, state: State, whole: Whole) -> dict[str, Any]:
        return {"vac": self.vac}

    def overheard(self, state: State, line: str) -> Message:
        """A gap, or a labelling: the line after the one that announces it."""
        found = GAP.match(line)
        if found:
            return {"units": int(found[1])}
        announced = state.memory.pop("announced", False)
        if line.startswith("New solution:"):
            state.memory["announced"] = True
        elif announced:
            words = line.split()
            if len(words) == state.graph.n and all(word.isdigit() for word in words):
                labels = [int(word) for word in words]
                if all(s < c for s, c in zip(labels, state.graph.arrays.cards.tolist(), strict=True)):
                    return {"labels": labels}
        return {}
