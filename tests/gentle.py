"""Methods with options that make little work, for kernels that run as plain Python (NUMBA_DISABLE_JIT=1)."""

from __future__ import annotations

from typing import Any

from tightmap.registry import solver_class
from tightmap.runtime.compiled import INTERPRETED

OPTIONS: dict[str, dict[str, Any]] = {
    "tabu": {"patience": 30, "rounds": 4},
    "annealing": {"cycles": 3, "sweeps": 4},
    "chains": {"cycles": 3, "sweeps": 2},
    "forest-annealing": {"cycles": 2, "sweeps": 4},
    "lns": {"cycles": 2, "table": 64},
    "pgd": {"restarts": 1, "iterations": 30},
    "fw": {"restarts": 1, "iterations": 30},
    "cqp": {"iterations": 30},
    "trbp": {"sweeps": 10},
    "sdp": {"triangles": 12, "exact": 12, "roundings": 1},
}
TRIALS = {"PATIENCE": 3, "HEATING": 3}  # constants of large neighbourhood search


def gentle(name: str, monkeypatch: Any) -> Any:
    """The method of that name; where kernels are not compiled, one that does little."""
    if not INTERPRETED:
        return name
    if name in ("lns", "auto"):
        for constant, value in TRIALS.items():
            monkeypatch.setattr(f"tightmap.solvers.search.lns.{constant}", value)
    return solver_class(name)(**OPTIONS.get(name, {}))
