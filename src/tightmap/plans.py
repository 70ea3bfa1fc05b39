"""prepare(): the same structure again and again with other costs, as in video, learning loops and parameter sweeps.

A Plan keeps the canonical form of a model.  Solving with other unaries or weights fills them in, and begins where the
last run ended: its labels, and where the method has them its messages or relaxed vectors, which remain valid whatever
the costs are.  Results are those of ``solve`` on the same model from the same start.
"""

from __future__ import annotations

import copy
from typing import Any

from tightmap.canonical.skeleton import Skeleton
from tightmap.driver import solve
from tightmap.errors import ModelError, OptionError
from tightmap.model.model import Model
from tightmap.registry import make_solver
from tightmap.result import Result
from tightmap.solvers.base import Solver

OF_A_RUN = (
    "time_limit",
    "wall_limit",
    "max_iterations",
    "seed",
    "threads",
    "callback",
    "trace",
    "keep_state",
)  # options of solve() that are no options of the method


class Plan:
    """A model whose costs change.  One call at a time; several threads need a plan each.

    model  as it is now, with the unaries and weights of the last call (to be read, not changed)
    last   the last result, where the next run begins
    """

    def __init__(self, model: Model, method: str | Solver, options: dict[str, Any]) -> None:
        if not isinstance(model, Model):
            raise ModelError(f"prepare: expected a tightmap.Model, got {type(model).__name__}")
        if "init" in options:
            raise OptionError("prepare: init belongs to the calls of plan.solve()")
        make_solver(method, {k: v for k, v in options.items() if k not in OF_A_RUN})
        self.model = copy.copy(model)
        self.method, self.options = method, dict(options)
        self.last: Result | None = None
        self._skeleton = Skeleton(self.model)
        self.model._graph = self._skeleton.first

    def solve(
        self, unaries: Any = None, weights: Any = None, init: Any = None, *, warm: bool = True, **options: Any
    ) -> Result:
        """Solve with new costs; what is not given stays as it was.

        unaries : in the place of all unary costs, in the form that ``Model.add_unaries`` takes for all variables.
        weights : of all factors, in the form that ``Model.replace_weights`` takes.
        init : where to begin, as for ``solve``; by default the last result.
        warm : False begins like a first call.
        options : of the run, in the place of those of ``prepare``: time_limit, max_iterations, seed, callback, ...
        """
        for name in options:
            if name not in OF_A_RUN:
                raise OptionError(f"plan.solve: {name!r} is no option of a run; those are {', '.join(OF_A_RUN)}")
        model = self.model._sharing()  # what is wrong with the costs leaves the plan as it was
        if weights is not None:
            model.replace_weights(weights)
        if unaries is not None:
            model.replace_unaries(unaries)
        if unaries is None and weights is None:
            model._graph = self.model._graph
        else:
            model._graph = self._skeleton.graph(model)
        start = self.last if init is None and warm else init
        result = solve(model, self.method, init=start, **(self.options | options))
        self.model, self.last = model, result
        return result


def prepare(model: Model, method: str | Solver = "auto", **options: Any) -> Plan:
    """Get ready to solve a model several times with other unaries or weights; the options are those of ``solve``."""
    return Plan(model, method, options)
