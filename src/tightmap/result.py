"""Result and Status: what solve() returns, in words that people can act on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError


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

    def to_dict(self, labels: bool = True) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts that strict JSON can carry, without the state.

        An energy or a bound that is not finite is None; elsewhere such numbers are the texts "inf", "-inf" and "nan".
        """
        out: dict[str, Any] = {
            "method": self.method,
            "options": _plain(self.options),
            "status": self.status.name,
            "energy": _finite(self.energy),
            "lower_bound": _finite(self.lower_bound),
            "gap": _finite(self.gap),
            "feasible": bool(self.feasible),
            "iterations": int(self.iterations),
            "elapsed": _plain(float(self.elapsed)),
            "note": self.note,
            "trace": _plain(self.trace),
        }
        return out | {"labels": self.labels.tolist()} if labels else out

    def to_json(self, **options: Any) -> str:
        """``to_dict`` as text; options are those of ``json.dumps``."""
        import json

        return json.dumps(self.to_dict(), **({"allow_nan": False} | options))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Result:
        """The result that ``to_dict`` described; what else is in there (``tightmap solve --json``) is passed over."""
        try:
            status = Status[content["status"]]
            energy, bound = content["energy"], content["lower_bound"]
            labels = np.asarray(content["labels"])
            if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
                raise ValueError(f"labels: expected integers in a row, got shape {labels.shape}, {labels.dtype}")
            return cls(
                labels=labels.astype(np.int64),
                energy=math.inf if energy is None else float(energy),
                # only of an infeasible model the bound is above all
                lower_bound=float(bound) if bound is not None else _missing_bound(status),
                feasible=bool(content["feasible"]),
                status=status,
                iterations=int(content["iterations"]),
                elapsed=float(content["elapsed"]),
                method=str(content["method"]),
                options=dict(_restored(content["options"])),
                trace=[dict(row) for row in _restored(content.get("trace", []))],
                note=str(content.get("note", "")),
            )
        except KeyError as error:
            raise ModelError(f"Result.from_dict: {error} is missing or unknown") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"Result.from_dict: {error}") from None

    def _repr_html_(self) -> str:
        from tightmap.view.notebook import result_html

        return result_html(self)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _missing_bound(status: Status) -> float:
    return math.inf if status is Status.INFEASIBLE else -math.inf


_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # numbers that JSON does not have


def _plain(value: Any) -> Any:
    """The value in what JSON has; what it cannot say at all becomes text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _restored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _restored(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_restored(v) for v in value]
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _same(a: Any, b: Any) -> bool:
    """Equality that looks into containers and compares arrays as wholes."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)
