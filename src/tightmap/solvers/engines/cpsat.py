"""cpsat: clauses and whole costs, by the solver CP-SAT of OR-Tools.

Every label is a literal l_i(a), exactly one of each variable is true, and every table becomes whole costs c_A with the
least cost of each label moved to the label (which leaves all energies as they are):

    minimise   sum_i sum_a c_i(a) l_i(a) + sum_A sum_j (t_j - t_(j-1)) z_A,j        t_1 < t_2 < ... the costs in table A
    where      l_1(a_1) and l_2(a_2) and ... => z_A,j  if c_A(a) = t_j,    z_A,j => z_A,j-1,
               not (l_1(a_1) and l_2(a_2) and ...)     if the tuple is forbidden

A factor that asks for equal labels needs one clause for each label, others one for each tuple that costs something.
``encoding="tables"`` has a literal w_A(a) for each allowed tuple instead, tied to the labels by the equations of the
linear relaxation, whose bound the solver then knows:

    minimise   sum_i sum_a c_i(a) l_i(a) + sum_A sum_a c_A(a) w_A(a)
    where      sum over tuples with a_p = s of w_A(a) = l_p(s)

The solver computes in integers, so its bound is one of the whole costs; the error of the scaling is subtracted
(whole.py).  All its strategies take turns on one thread: on several, which of two equally good labellings is found is
a matter of chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tightmap.errors import OptionError
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.engines.external import External, State
from tightmap.solvers.engines.whole import Whole

ENCODINGS = ("clauses", "tables")


@dataclass(frozen=True)
class CPSAT(External):
    """Options of CP-SAT.

    encoding  "clauses": one for each tuple that costs something; "tables": one literal for each allowed tuple
    """

    encoding: str = "clauses"

    name: ClassVar[str] = "cpsat"
    summary: ClassVar[str] = "clauses with whole costs, solved by CP-SAT (OR-Tools): many hard constraints"
    capabilities: ClassVar[Capabilities] = Capabilities(small_tables=True, bounds=True, exact=True, random=True)
    module: ClassVar[str] = "ortools"
    program: ClassVar[str] = "OR-Tools"
    search: ClassVar[str] = "tightmap.solvers.engines.cpsat_search"
    entries: ClassVar[int] = 3_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding not in ENCODINGS:
            raise OptionError(f"cpsat: encoding must be one of {', '.join(ENCODINGS)}, got {self.encoding!r}")

    def problem(self, state: State, whole: Whole) -> dict[str, Any]:
        return {"encoding": self.encoding, "hint": state.incumbent.labels.tolist()}
