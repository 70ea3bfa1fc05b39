"""What every method promises, as checks that any method can be put through.

Each promise is a function of a method (as ``tightmap.solve`` takes it) that raises AssertionError when it is broken.
Methods may refuse a model, but in words: a ModelError that names the method counts as kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from tightmap.driver import Info, solve
from tightmap.errors import ModelError
from tightmap.model.model import Model
from tightmap.registry import solver_class
from tightmap.result import Result, Status
from tightmap.solvers.base import Solver
from tightmap.testing.models import grid_model, optimum, random_model, tree_model

Method = str | Solver
Promise = Callable[[Method], None]


@cache
def awkward_models() -> dict[str, tuple[Model, float]]:
    """Name -> model and its optimum: every shape that has broken something, small enough for brute force."""
    ones = Model([1, 1])
    ones.add_factors([[0, 1]], [[3.0]])
    unary = Model([2, 3])
    unary.add_unaries([[1.0, 0.0], [2.0, 1.0, 0.5]])
    mixed = Model([1, 3, 2, 1])
    mixed.add_unaries([[0.5], [1.0, 0.0, 2.0], [0.0, 1.0], [0.0]])
    mixed.add_factors([[2, 1]], np.arange(6.0).reshape(2, 3))
    mixed.add_factors([[0, 1, 2, 3]], np.array([[5.0, 1.0], [0.0, 2.0], [1.0, 1.0]]).reshape(1, 3, 2, 1))
    shared = Model.grid(2, 4, 3)
    rng = np.random.default_rng(2)
    shared.add_unaries(rng.normal(size=(8, 3)))
    shared.add_factors(shared.edges(), rng.normal(size=(3, 3)))
    hard = Model([3, 3, 3])
    hard.add_unaries(np.array([[0.0, 1.0, 2.0]] * 3))
    hard.add_factors([[0, 1], [1, 2], [0, 2]], np.where(np.eye(3) > 0, np.inf, 0.0))
    out = {
        "empty": Model([]),
        "one label each": ones,
        "unaries only": unary,
        "one-label variables, unsorted scopes": mixed,
        "shared table": shared,
        "all different": hard,
    }
    for order in (2, 3, 4):
        for inf in (0.0, 0.1):
            r = np.random.default_rng(10 * order + int(inf > 0))
            name = f"order {order}{' with inf' if inf else ''}"
            out[name] = random_model(r, n=6, labels=3, factors=8, order=order, hard=inf)
    out["tree"] = tree_model(np.random.default_rng(3), n=8)
    out["grid"] = grid_model(np.random.default_rng(4), 3, 4, 2)
    out["binary grid"] = grid_model(np.random.default_rng(5), 3, 5, 2, "linear")
    out["tiny costs"] = _tiny()
    return {name: (model, optimum(model)) for name, model in out.items()}


def _tiny() -> Model:
    """Costs around 1e-12, whose differences an absolute threshold would swallow."""
    rng = np.random.default_rng(6)
    model = Model([2] * 5)
    model.add_unaries(rng.normal(size=(5, 2)) * 1e-12)
    model.add_factors([[i, j] for i in range(5) for j in range(i)], rng.normal(size=(10, 2, 2)) * 1e-12)
    return model


def name_of(method: Method) -> str:
    return method if isinstance(method, str) else method.name


def _run(method: Method, model: Model, **arguments: Any) -> Result | None:
    """Solve, or None where the method says in words that the model is not for it."""
    try:
        return solve(model, method, **({"max_iterations": 60, "time_limit": 20.0} | arguments))
    except ModelError as error:
        assert name_of(method) in str(error), f"the refusal does not name the method: {error}"
        return None


def keeps_its_word(method: Method, model: str) -> None:
    """``keeps_its_word_on`` one of the awkward models."""
    keeps_its_word_on(method, *awkward_models()[model])


def keeps_its_word_on(method: Method, given: Model, best: float) -> None:
    """Energies, bounds and claims against the optimum, by brute force; the same again with the same seed."""
    result = _run(method, given)
    if result is None:
        return
    size = 1e-9 * abs(best) if math.isfinite(best) else 0.0
    assert result.labels.shape == (given.num_variables,)
    assert result.energy == given.energy(result.labels), "the energy is not the one of the labels"
    assert result.feasible == math.isfinite(result.energy)
    assert result.energy >= best - size, "an energy below the optimum"
    assert result.lower_bound <= best + size, "a bound above the optimum"
    able = (solver_class(method) if isinstance(method, str) else type(method)).capabilities
    if not able.bounds and given.graph().m:
        assert result.lower_bound == -math.inf or result.status is Status.OPTIMAL, "a bound that is not announced"
    if result.status is Status.OPTIMAL:
        assert abs(result.energy - best) <= size, "called optimal and is not"
    if result.status is Status.INFEASIBLE:
        assert best == math.inf, "called infeasible and is not"
    again = _run(method, given)
    assert again is not None and (again.labels == result.labels).all(), "not the same labels with the same seed"


def threads_change_nothing(method: Method) -> None:
    model = grid_model(np.random.default_rng(7), 12, 13, 2, "potts")
    one, two = (_run(method, model, threads=t, max_iterations=30, time_limit=None) for t in (1, 2))
    if one is not None and two is not None:
        assert (one.labels == two.labels).all() and one.lower_bound == two.lower_bound


def answers_without_time(method: Method) -> None:
    model = grid_model(np.random.default_rng(8), 6, 6, 2, "potts")
    result = _run(method, model, time_limit=0.0, max_iterations=None)
    if result is None:
        return
    assert result.status is Status.TIME_LIMIT and result.iterations == 0 and math.isfinite(result.energy)
    none = _run(method, model, max_iterations=0, time_limit=None)
    assert none is not None and none.status is Status.ITERATION_LIMIT and none.iterations == 0


def warm_starts_never_lose(method: Method) -> None:
    model = grid_model(np.random.default_rng(9), 6, 7, 2, "potts")
    first = _run(method, model)
    if first is None:
        return
    for init in (np.array(first.labels), first):
        again = _run(method, model, init=init)
        assert again is not None and again.energy <= first.energy
    relaxed = _run(method, model, init=np.full((model.num_variables, 2), 0.5))
    assert relaxed is not None and math.isfinite(relaxed.energy)


def the_callback_sees_and_stops(method: Method) -> None:
    model = grid_model(np.random.default_rng(11), 8, 8, 2, "potts")
    seen: list[Info] = []

    def watch(info: Info) -> bool:
        seen.append(info)
        return len(seen) >= 2

    result = _run(method, model, callback=watch, trace=True)
    if result is None:
        return
    assert 1 <= len(seen) <= 2 and len(result.trace) == len(seen)
    assert result.energy <= seen[-1].energy
    assert math.isclose(model.energy(seen[-1].labels), seen[-1].energy, rel_tol=1e-9, abs_tol=1e-9)
    assert {"iteration", "elapsed", "energy", "lower_bound"} <= set(result.trace[0])
    if len(seen) == 2:
        assert result.status in (Status.OPTIMAL, Status.INTERRUPTED, Status.CONVERGED)


def promises() -> Iterator[tuple[str, Promise]]:
    """Every promise with its name."""
    for model in awkward_models():
        yield f"keeps its word: {model}", partial(keeps_its_word, model=model)
    for promise in (
        threads_change_nothing,
        answers_without_time,
        warm_starts_never_lose,
        the_callback_sees_and_stops,
    ):
        yield promise.__name__.replace("_", " "), promise


def conformance(method: Method | type[Solver]) -> int:
    """Put a method through all promises; returns how many there are, raises AssertionError at the first broken one."""
    ready = method() if isinstance(method, type) else method
    count = 0
    for name, promise in promises():
        try:
            promise(ready)
        except AssertionError as error:
            raise AssertionError(f"method {name_of(ready)!r}, {name}: {error}") from error
        count += 1
    return count
