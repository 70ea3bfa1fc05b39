"""Models so large that methods run one after the other: who is started, who keeps the turn, and when it ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tightmap as tm
from tightmap.canonical import build
from tightmap.moves.context import Context
from tightmap.runtime import clock
from tightmap.solvers.auto import large, plan, solver
from tightmap.solvers.auto.large import Course
from tightmap.solvers.base import Init


def test_a_start_has_to_fit_into_half_of_what_is_left() -> None:
    course = Course(labels=10_000_000, limit=10.0)
    cost = plan.STARTS["expansion"] * 10.0
    assert course.fits("expansion", cost / large.ALONE + 0.01) and not course.fits("expansion", cost)
    course.started("trws", 0.001)
    assert course.start("expansion") == pytest.approx(cost)
    assert course.fits("expansion", 2.0 * cost + 0.01) and not course.fits("expansion", 2.0 * cost - 0.01)
    assert not course.fits("expansion", 0.0) and course.fits("expansion", math.inf)
    assert course.start("a method that nobody knows") == pytest.approx(large.USUAL * 10.0)


def test_a_slow_machine_is_noticed() -> None:
    course = Course(labels=10_000_000, limit=10.0)
    before = course.start("expansion")
    course.started("trws", 3.0 * course.start("trws"))
    assert course.start("expansion") == pytest.approx(3.0 * before)
    course.started("admm", 0.001)  # one that was quick says nothing about others
    assert course.start("expansion") == pytest.approx(3.0 * before)


def test_who_closes_the_gap_goes_on() -> None:
    course = Course(labels=10_000_000, limit=10.0)
    gaps = [100.0, 80.0, 60.0, 59.0, 58.0, 20.0]
    verdicts = [course.closing(gap, float(second)) for second, gap in enumerate(gaps)]
    assert verdicts == [True, True, True, False, False, True]
    assert course.closing(19.9, 5.5)  # nothing is judged before a span is over
    course.started("expansion", 1.0)
    assert not course.closing(math.inf, 7.0)  # without a bound there is no gap to close


def test_the_last_step_leaves_time_for_the_end() -> None:
    course = Course(labels=10_000_000, limit=10.0)
    assert course.last(step=2.0, left=0.9) and not course.last(step=2.0, left=1.1)


def noise(side: int = 24, labels: int = 4) -> tm.Model:
    rng = np.random.default_rng(0)
    model = tm.Model.grid(side, side, labels)
    model.add_unaries(rng.random((side, side, labels)))
    model.add_potts(model.edges(), rng.random(len(model.edges())))
    return model


def test_methods_that_cannot_start_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, solver):
        monkeypatch.setattr(module, "LARGE", 0)
    model = noise()
    result = tm.solve(model, time_limit=1.0)
    assert result.lower_bound <= result.energy == model.energy(result.labels)
    assert "trws" in result.note
    monkeypatch.setitem(plan.STARTS, "expansion", 1e9)
    monkeypatch.setitem(plan.STARTS, "admm", 1e9)
    result = tm.solve(model, time_limit=1.0)
    assert "trws" in result.note and "expansion" not in result.note and "admm" not in result.note
    assert result.lower_bound <= result.energy == model.energy(result.labels)
    monkeypatch.setattr(large, "USUAL", 1e9)
    for method in plan.STARTS:
        monkeypatch.setitem(plan.STARTS, method, 1e9)
    result = tm.solve(model, time_limit=1.0)  # nothing can start: the first labelling remains
    assert result.energy == model.energy(result.labels) and result.iterations == 0
    assert result.status is tm.Status.TIME_LIMIT


def test_a_method_goes_on_where_no_other_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little it gains: nobody else has a use for the time."""
    monkeypatch.setattr(solver, "LARGE", 0)
    monkeypatch.setattr(large.Course, "closing", lambda *_: False)
    for method in plan.STARTS:
        monkeypatch.setitem(plan.STARTS, method, 1.0 if method == "trws" else 1e9)
    monkeypatch.setattr(large, "USUAL", 1e9)
    auto, graph = solver.Auto(), noise().graph()
    for more, goes_on in (("trws", True), ("expansion", False)):
        state = auto.start(graph, Init(), Context(deadline=clock.now() + 1000.0))
        while not state.turns:
            auto.step(state)
        assert state.turns[0].phase.method == "trws"
        monkeypatch.setitem(plan.STARTS, more, 1.0)
        state.turns[0].until = -math.inf  # its share is over
        auto.step(state)
        assert bool(state.turns) == goes_on


def test_without_a_limit_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "LARGE", 0)
    graph = noise(8, 3).graph()
    assert solver.Auto().start(graph, Init(), Context()).course is None
    assert solver.Auto().start(graph, Init(), Context(deadline=clock.now() + 5.0)).course is not None


def test_a_large_image_gets_no_list_of_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, solver):
        monkeypatch.setattr(module, "LARGE", 0)
    for limit in ("EXACT", "PIXELS", "ANNEAL", "TABU"):  # too large for methods of small models
        monkeypatch.setattr(plan, limit, 0)
    monkeypatch.setattr(build, "IMPLICIT", 0)
    for method in ("expansion", "admm"):
        monkeypatch.setitem(plan.STARTS, method, 1e9)
    model = noise(40)
    result = tm.solve(model, time_limit=1.0, keep_state=False)
    assert "trws" in result.note and not model.graph().listed
