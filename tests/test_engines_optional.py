"""Methods that other programs carry out: against brute force, with limits, interrupted, and where they are missing."""

from __future__ import annotations

import math
import os
import pickle
import signal
import time

import numpy as np
import pytest

import tightmap as tm
from engines import engine
from problems import random_model
from region_oracles import all_energies
from tightmap.errors import WorkerError
from tightmap.moves.context import Context
from tightmap.registry import ENGINES, METHODS, describe_method, make_solver, methods, solver_class, usable_methods
from tightmap.solvers.base import Init
from tightmap.solvers.engines import external, worker
from tightmap.solvers.engines.whole import FORBIDDEN, whole_costs

EACH = [engine(name) for name in ENGINES]
PROVING = [engine(name) for name in ENGINES if name != "milp"]
VARIANTS = {"cpsat": [{}, {"encoding": "tables"}], "toulbar2": [{}, {"vac": 1}], "milp": [{}]}


def some_model(seed):
    rng = np.random.default_rng(seed)
    return random_model(
        rng,
        n=int(rng.integers(1, 6)),
        labels=int(rng.integers(2, 5)),
        factors=int(rng.integers(1, 8)),
        order=4,
        hard=0.25 if seed % 3 == 0 else 0.0,
        integral=seed % 2 == 0,
    )


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    worker.dismiss_all()


# ------------------------------------------------------------------------------------------------- whole numbers


def energies_by_whole(graph, whole):
    """For every labelling of the canonical variables: its energy and its whole cost."""
    from tightmap.energy.energies import energy

    for index in np.ndindex(*graph.arrays.cards.tolist()):
        labels = np.array(index, dtype=np.int64)
        yield energy(graph, labels), whole.cost(labels)


@pytest.mark.parametrize("seed", range(60))
def test_whole_costs_bound_every_energy(seed):
    model = some_model(seed)
    graph = model.graph()
    if graph.m == 0:
        return
    whole = whole_costs(graph, math.inf)
    assert whole.complete
    for value, cost in energies_by_whole(graph, whole):
        assert (cost is None) == (value > graph.hard_threshold)
        if cost is not None:
            bound = whole.bound(graph, cost)
            assert bound <= value + 2e-16 * abs(value)
            assert value - bound <= 2.0 * bound.error + graph.quantum * 1e-6
            assert bound.error <= 1e-9 * (abs(value) + abs(whole.base) + 1.0)


@pytest.mark.parametrize("seed", range(60))
def test_entries_beyond_a_known_energy_are_left_out(seed):
    """Those that are left out belong to no labelling as good as the known one."""
    graph = some_model(seed).graph()
    if graph.m == 0:
        return
    known = sorted(value for value, _ in energies_by_whole(graph, whole_costs(graph, math.inf)))
    upper = known[min(3, len(known) - 1)]
    if upper > graph.hard_threshold:
        return
    whole = whole_costs(graph, upper)
    for value, cost in energies_by_whole(graph, whole):
        if value <= upper:
            assert cost is not None
    if whole.complete:
        assert ((whole.tables == FORBIDDEN) == (whole_costs(graph, math.inf).tables == FORBIDDEN)).all()


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 1e9])
def test_whole_costs_do_not_depend_on_the_unit(factor):
    costs = np.random.default_rng(1).normal(size=(3, 3))
    pair = []
    for scale in (1.0, factor):
        model = tm.Model([3, 3])
        model.add_factors([[0, 1]], costs[None] * scale)
        pair.append(whole_costs(model.graph(), math.inf).tables)
    ratio = pair[1].max() / pair[0].max()
    assert 0.4 < ratio < 2.1 and np.allclose(pair[1] / ratio, pair[0], rtol=1e-9)


# ------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("part", range(4))
def test_against_brute_force(name, part):
    for seed in range(part, 60, 4):
        model = some_model(seed)
        best = all_energies(model).min()
        options = VARIANTS[name][seed // 4 % len(VARIANTS[name])]
        result = tm.solve(model, name, threads=1 + seed % 2, seed=seed, **options)
        slack = 1e-9 * max(1.0, abs(best)) if np.isfinite(best) else 0.0
        assert result.energy == model.energy(result.labels)
        if np.isinf(best):
            assert result.status is tm.Status.INFEASIBLE or name == "milp"
            continue
        assert result.status is not tm.Status.INFEASIBLE
        assert result.energy == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert result.lower_bound <= best + slack
        if name != "milp":
            assert result.status is tm.Status.OPTIMAL


@pytest.mark.parametrize("name", EACH)
def test_a_constant_and_a_factor_change_nothing(name):
    rng = np.random.default_rng(5)
    unary, tables = rng.normal(size=(6, 3)), rng.normal(size=(9, 3, 3))
    pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 5], [0, 2], [1, 3], [2, 5]]
    seen = []
    for scale, constant in ((1.0, 0.0), (2.0**-40, 0.0), (2.0**30, 1e6), (1.0, -7.0)):
        model = tm.Model([3] * 6)
        model.add_unaries(unary * scale)
        model.add_factors(pairs, tables * scale)
        model.add_constant(constant)
        result = tm.solve(model, name)
        seen.append((result.status, result.labels.tolist()))
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("name", EACH)
def test_no_bound_is_above_the_energy_of_the_cycle(name):
    """An odd cycle of disagreements: the linear relaxation says 0, the optimum is 1."""
    model = tm.Model([2, 2, 2])
    model.add_factors([[0, 1], [1, 2], [0, 2]], np.eye(2))
    result = tm.solve(model, name)
    assert result.energy == 1.0
    if name == "milp":
        assert result.lower_bound < 0.5 and result.status is tm.Status.CONVERGED
        assert "no proof" in result.note
    else:
        assert result.lower_bound == 1.0 and result.status is tm.Status.OPTIMAL


@pytest.mark.parametrize("name", PROVING)
def test_contradictions_are_found(name):
    """Three variables of two labels, all different: each table can be satisfied, all of them cannot."""
    model = tm.Model([2, 2, 2])
    model.add_unaries(np.arange(6.0).reshape(3, 2))
    model.add_factors([[0, 1], [1, 2], [0, 2]], np.where(np.eye(2) > 0, np.inf, 0.0))
    result = tm.solve(model, name)
    assert result.status is tm.Status.INFEASIBLE and result.lower_bound == math.inf


@pytest.mark.parametrize("name", EACH)
def test_a_labelling_that_is_given_is_never_lost(name):
    model = some_model(14)
    best = tm.solve(model, "exact")
    result = tm.solve(model, name, init=best.labels)
    assert result.energy == best.energy


@pytest.mark.parametrize("name", EACH)
def test_among_equals_threads_make_no_difference(name):
    """Many labellings are equally good; which one is found must not depend on the number of threads."""
    rng = np.random.default_rng(3)
    model = tm.Model([3] * 14)
    pairs = np.array([(i, j) for i in range(14) for j in range(i) if rng.random() < 0.4])
    model.add_potts(pairs, np.full(len(pairs), -1.0))
    one, two = (tm.solve(model, name, threads=count) for count in (1, 2))
    assert one.labels.tolist() == two.labels.tolist() and one.lower_bound == two.lower_bound


# ------------------------------------------------------------------------------------------------- the process


def hard_model(n=60, labels=6):
    """Too much for a second."""
    rng = np.random.default_rng(0)
    model = tm.Model([labels] * n)
    pairs = [[i, j] for i in range(n) for j in range(i)]
    model.add_factors(pairs, rng.normal(size=(len(pairs), labels, labels)))
    return model


@pytest.mark.parametrize("name", EACH)
def test_the_process_ends_with_the_time_limit(name, monkeypatch):
    hired = []
    monkeypatch.setattr(external, "hire", lambda search: hired.append(worker.Worker(search)) or hired[-1])
    result = tm.solve(hard_model(), name, time_limit=0.6)
    assert result.status is tm.Status.TIME_LIMIT and math.isfinite(result.energy)
    assert len(hired) == 1 and hired[0].process.poll() is not None


@pytest.mark.skipif(not hasattr(os, "kill"), reason="no signals")
@pytest.mark.parametrize("name", EACH)
def test_ctrl_c_ends_the_run_and_the_process(name, monkeypatch):
    hired = []

    def hire(search):
        hired.append(worker.Worker(search))
        return hired[-1]

    monkeypatch.setattr(external, "hire", hire)

    def stop(info):
        if hired and info.elapsed > 0.2:
            os.kill(os.getpid(), signal.SIGINT)

    result = tm.solve(hard_model(), name, callback=stop, time_limit=30.0)
    assert result.status is tm.Status.INTERRUPTED
    assert hired[0].process.poll() is not None


@pytest.mark.parametrize("name", EACH)
def test_a_process_that_dies_is_an_error_in_words(name):
    graph = hard_model(12).graph()
    solver = make_solver(name, {})
    state = solver.start(graph, Init(), Context())
    solver.step(state)
    assert state.worker is not None
    state.worker.process.kill()
    with pytest.raises(WorkerError, match=f"method '{name}'.*failed: its process ended"):
        for _ in range(1000):
            solver.step(state)
    solver.finish(state)
    among = Context(shared=lambda: math.inf)  # other methods go on
    state = solver.start(graph, Init(), among)
    solver.step(state)
    state.worker.process.kill()
    while not solver.step(state).done:
        pass
    assert "failed" in solver.finish(state).note


def test_an_error_of_the_program_is_passed_on(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text("def search(problem, tell):\n    raise ValueError('too bad')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    busy = worker.hire("failing")
    busy.give({})
    message = None
    until = time.monotonic() + 30.0
    while message is None and time.monotonic() < until:
        message = busy.next(0.1)
    assert message == {"error": "ValueError: too bad"}
    worker.release(busy)
    assert worker.hire("failing") is busy  # it waits for the next problem
    busy.end()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal")
@pytest.mark.parametrize("name", EACH)
def test_among_other_methods_the_process_stands_still_between_two_steps(name):
    graph = hard_model().graph()
    solver = make_solver(name, {})
    state = solver.start(graph, Init(), Context(shared=lambda: math.inf))
    for _ in range(3):
        solver.step(state)
    assert state.worker is not None
    status = f"/proc/{state.worker.process.pid}/stat"
    if os.path.exists(status):
        time.sleep(0.1)
        with open(status, encoding="ascii") as file:
            assert file.read().rpartition(")")[2].split()[0] == "T"
    ended = state.worker.process
    solver.finish(state)
    assert ended.poll() is not None


@pytest.mark.parametrize("name", EACH)
def test_results_can_be_pickled(name):
    result = tm.solve(some_model(2), name)
    assert pickle.loads(pickle.dumps(result)) == result


# ------------------------------------------------------------------------------------------------- the door


@pytest.mark.parametrize("name", ENGINES)
def test_where_a_program_is_missing_the_method_says_how_to_install_it(name, monkeypatch):
    monkeypatch.setattr(external, "find_spec", lambda module: None)
    with pytest.raises(tm.OptionError, match=rf'is not installed: pip install "tightmap\[{name}\]"'):
        tm.solve(some_model(1), name)
    assert usable_methods() == list(METHODS)
    row = next(row for row in methods() if row["name"] == name)
    assert row["installed"] is False and describe_method(name)["options"] is not None


@pytest.mark.parametrize("name", ENGINES)
def test_the_command_line_lists_what_is_not_installed(name, monkeypatch, capsys):
    from tightmap.cli.main import run

    monkeypatch.setattr(external, "find_spec", lambda module: None)
    assert run(["methods", name]) == 0
    assert f'not installed: pip install "tightmap[{name}]"' in capsys.readouterr().out


@pytest.mark.parametrize("name", EACH)
def test_large_models_are_refused_in_words(name):
    limit = solver_class(name).entries
    wide = tm.Model([10] * 8)
    wide.add_pn_potts([list(range(8))], [1.0], np.zeros(10))
    with pytest.raises(tm.ModelError, match=rf"method '{name}'.*{limit} entries at most"):
        tm.solve(wide, name)
    many = tm.Model.grid(200, 200, 30)
    many.add_potts(many.edges(), np.ones(len(many.edges())))
    with pytest.raises(tm.ModelError, match=rf"method '{name}'.*{limit} entries in all"):
        tm.solve(many, name)


def test_options_are_checked():
    for name, options in (("cpsat", {"encoding": "none"}), ("toulbar2", {"vac": -1})):
        if solver_class(name).installed():
            with pytest.raises(tm.OptionError, match=name):
                make_solver(name, options)
