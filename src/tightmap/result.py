"""Result and Status: what solve() returns, in words that people can act on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt


class Status(Enum):
    """Why a run ended.  The value of a member is its sentence."""

    OPTIMAL = "The lower bound meets the energy: no labelling is better."
    CONVERGED = "The method has converged; further iterations would change nothing."
    ITERATION_LIMIT = "The iteration limit was reached; the best labelling so far is returned."
    TIME_LIMIT = "The time limit was reached; the best labelling so far is returned."
    INTERRUPTED = "The run was interrupted; the best labelling so far is returned."
    INFEASIBLE = "It is proven that no labelling satisfies all hard constraints."


@dataclass(frozen=True, eq=False)
class Result:
    """The best labelling found, what is proven about it, and how the run went.

    labels       (n,) labels of all variables of the model
    energy       its energy, evaluated on the user's own tables (+inf if it violates a hard constraint)
    lower_bound  no labelling has a lower energy; -inf when the method gives no bound
    feasible     the labelling violates no hard constraint
    trace        one dict per recorded iteration when solve(..., trace=True), else empty
    state        the solver's state, for init= of a later call

    Two results are equal when they say the same: labels, energy, bound, status, method and its options.  How long they
    took to say it, the trace and the state do not matter.
    """

    labels: npt.NDArray[np.int64]
    energy: float
    lower_bound: float
    feasible: bool
    status: Status
    iterations: int
    elapsed: float
    method: str
    options: dict[str, Any]
    trace: list[dict[str, float]] = field(default_factory=list, repr=False)
    state: Any = field(default=None, repr=False)
    note: str = ""

    @property
    def gap(self) -> float:
        """energy - lower_bound; 0.0 when proven optimal, +inf without a bound."""
        if self.status is Status.OPTIMAL:
            return 0.0
        if not np.isfinite(self.energy) or not np.isfinite(self.lower_bound):
            return float("inf")
        return max(0.0, self.energy - self.lower_bound)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        return (
            self._claim() == other._claim()
            and np.array_equal(self.labels, other.labels)
            and _same(self.options, other.options)
        )

    def __hash__(self) -> int:
        return hash(self._claim())  # labels and options could be changed in place, these cannot

    def _claim(self) -> tuple[float, float, Status, str]:
        return self.energy, self.lower_bound, self.status, self.method

    def _gap_text(self) -> str:
        """The gap, and as a share of the energy where there is one."""
        share = f" ({100 * self.gap / abs(self.energy):.4g} %)" if self.energy else ""
        return f"{self.gap:.6g}{share}"

    def summary(self) -> str:
        """A few lines for people."""
        bound = f"{self.lower_bound:.9g}" if np.isfinite(self.lower_bound) else "none"
        lines = [
            f"{self.method}: {self.status.name.replace('_', ' ').lower()} after {self.iterations} iterations, "
            f"{self.elapsed:.2f} s",
            f"  energy       {self.energy:.9g}" + ("" if self.feasible else "  (violates a hard constraint)"),
            f"  lower bound  {bound}",
        ]
        if np.isfinite(self.gap):
            lines.append(f"  gap          {self._gap_text()}")
        lines.append(f"  {self.status.value}")
        if self.note:
            lines.append(f"  {self.note}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        from tightmap.view.notebook import result_html

        return result_html(self)


def _same(a: Any, b: Any) -> bool:
    """Equality that looks into containers and compares arrays as wholes."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)
