"""tightmap: MAP inference in discrete Markov random fields of any order.

The public names live in modules that are imported when they are first used, so that ``import tightmap`` and
``tightmap --help`` are quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Info": "tightmap.driver",
    "Model": "tightmap.model.model",
    "ModelError": "tightmap.errors",
    "OptionError": "tightmap.errors",
    "Outcome": "tightmap.many.tasks",
    "Result": "tightmap.result",
    "Status": "tightmap.result",
    "maxflow": "tightmap.graphcut.mincut",
    "WorkerError": "tightmap.errors",
    "Plan": "tightmap.plans",
    "methods": "tightmap.registry",
    "prepare": "tightmap.plans",
    "register": "tightmap.registry",
    "register_kind": "tightmap.factors.custom",
    "solve": "tightmap.driver",
    "solve_many": "tightmap.many.solve_many",
    "stationarity": "tightmap.diagnostics",
    "read": "tightmap.io",
    "write": "tightmap.io",
    "read_labels": "tightmap.io",
    "write_labels": "tightmap.io",
    "warm_up": "tightmap.compile_ahead",
}

# modules that are used as tightmap.plot.convergence(...)
_ROOMS = {
    "io": "tightmap.io",
    "plot": "tightmap.view.plot",
    "problems": "tightmap.problems",
    "scale": "tightmap.scale",
    "testing": "tightmap.testing",
}

if TYPE_CHECKING:
    from tightmap import io as io
    from tightmap import problems as problems
    from tightmap import scale as scale
    from tightmap import testing as testing
    from tightmap.compile_ahead import warm_up as warm_up
    from tightmap.diagnostics import stationarity as stationarity
    from tightmap.driver import Info as Info
    from tightmap.driver import solve as solve
    from tightmap.errors import ModelError as ModelError
    from tightmap.errors import OptionError as OptionError
    from tightmap.errors import WorkerError as WorkerError
    from tightmap.factors.custom import register_kind as register_kind
    from tightmap.graphcut.mincut import maxflow as maxflow
    from tightmap.io import read as read
    from tightmap.io import read_labels as read_labels
    from tightmap.io import write as write
    from tightmap.io import write_labels as write_labels
    from tightmap.many.solve_many import solve_many as solve_many
    from tightmap.many.tasks import Outcome as Outcome
    from tightmap.model.model import Model as Model
    from tightmap.plans import Plan as Plan
    from tightmap.plans import prepare as prepare
    from tightmap.registry import methods as methods
    from tightmap.registry import register as register
    from tightmap.result import Result as Result
    from tightmap.result import Status as Status
    from tightmap.view import plot as plot

__all__ = ["__version__", *_PUBLIC, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    raise AttributeError(f"module 'tightmap' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
