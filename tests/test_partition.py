"""One grid on many workers: the same labels whatever their number, engine and fate; bounds below every energy."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import struct
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tightmap as tm
from command_line import tightmap
from naive import brute_force, local_polytope
from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.tiles import engines, labelling
from tightmap.solvers.admm.tiles.programme import Plan, Run
from tightmap.solvers.admm.tiles.ray_engine import RayEngine
from tightmap.solvers.admm.tiles.rows import GridRows, InMemory, source_of
from tightmap.solvers.admm.tiles.store import SharedStore, layouts

FAST = (Cycle(growth=1.03), Cycle(growth=1.03, relax=1.6))


def costs(height, width, labels, seed=0):
    """Noise around large regions."""
    rng = np.random.default_rng(seed)
    regions = rng.integers(0, labels, (height // 7 + 1, width // 5 + 1)).repeat(7, 0).repeat(5, 1)[:height, :width]
    unary = rng.random((height, width, labels))
    np.put_along_axis(unary, regions[..., None], np.take_along_axis(unary, regions[..., None], 2) - 0.3, 2)
    return unary


def grid_rows(height, width, labels, directions, table=(0.0, 1.0), tile=8, by_edge=False):
    profile = tuple((list(table) + [table[-1]] * labels)[:labels])
    weights: object = (0.3,) * directions
    if by_edge:
        weights = InMemory(np.random.default_rng(5).random((height, directions, width)), (height, directions, width))
    return GridRows(source_of(costs(height, width, labels)), profile, weights, tile)


def model_of(rows):
    """The same as a Model, edge by edge."""
    height, width = rows.height, rows.width
    model = tm.Model.grid(height, width, rows.labels)
    model.add_unaries(rows.unaries(0, height).reshape(-1, rows.labels))
    planes = rows.planes(0, height)
    edges, weights = [], []
    for plane, (down, right) in zip(planes, ((0, 1), (1, 0), (1, 1), (1, -1)), strict=False):
        for r, c in itertools.product(range(height), range(width)):
            if plane[r, c] != 0:
                edges.append((r * width + c, (r + down) * width + c + right))
                weights.append(plane[r, c])
    profile = np.array(rows.profile)
    if profile[-1] == profile[1]:
        model.add_potts(np.array(edges), np.array(weights) * profile[1])
    else:
        model.add_truncated_linear(np.array(edges), np.array(weights), float(profile[-1]))
    return model


def finished(rows, plan, kill=()):
    """(position, labels) of a run, a worker killed after some of its steps."""
    run = Run(rows, plan)
    try:
        for step in itertools.count():
            if run.done:
                return run.position, run.engine.read(run.position.best, 0, rows.height).copy()
            if step in kill:
                os.kill(run.engine.pids[step % len(run.engine.pids)], signal.SIGKILL)
            run.advance()
    finally:
        run.engine.close()


@pytest.mark.parametrize(
    ("shape", "directions", "table", "by_edge"),
    [
        ((35, 13, 2), 2, (0.0, 1.0), False),
        ((33, 16, 3), 4, (0.0, 1.0), True),
        ((32, 21, 5), 2, (0.0, 1.0), True),
        ((41, 9, 16), 2, (0.0, 1.0, 2.0, 3.0), False),
        ((37, 10, 7), 4, (0.0, 1.0, 2.0), False),
    ],
)
def test_labels_do_not_depend_on_the_cut(shape, directions, table, by_edge):
    rows = grid_rows(*shape, directions, table, by_edge=by_edge)
    plan = Plan(engine="inline", cycles=FAST, bound_rounds=5)
    position, labels = finished(rows, plan)
    for change in ({"workers": 2}, {"workers": 3, "depth": 2}, {"workers": 4}, {"visit": 1, "depth": 1}):
        other, same = finished(rows, replace(plan, **change))
        assert (labels == same).all() and other == position, change
    model = model_of(rows)
    assert position.energy == pytest.approx(model.energy(labels.reshape(-1).astype(np.int64)), rel=1e-12)
    assert position.bound - position.error <= position.energy


@pytest.mark.parametrize("directions", [2, 4])
def test_sweeps_on_tiles_are_those_of_the_whole_grid(directions):
    """Iterates, not only labels: what is swept with halos is bit for bit what one grid without cuts gives."""
    rows = grid_rows(40, 12, 3, directions)
    found = []
    for tile, workers in ((40, 1), (8, 3)):
        run = Run(replace(rows, tile=tile), Plan(workers, "inline", cycles=FAST))
        while run.position.total < 40:
            run.advance()
        found.append([run.engine.read(f"{name}.{run.position.side}", 0, 40) for name in ("x1", "x2", "y")])
    for whole, cut in zip(*found, strict=True):
        assert (whole == cut).all() and np.ptp(whole) > 0


@pytest.mark.parametrize(("directions", "table", "sign"), [(2, (0, 1), 1), (4, (0, 1, 2), 1), (2, (0, 1), -1)])
def test_bounds_lie_between_the_trivial_one_and_the_relaxation(directions, table, sign):
    rng = np.random.default_rng(1)
    profile = tuple((list(map(float, table)) + [float(table[-1])] * 3)[:3])
    for _ in range(3):
        unary, weights = rng.normal(size=(6, 2, 3)), sign * rng.random((6, directions, 2))
        rows = GridRows(source_of(unary), profile, source_of(weights), 6)
        trivial = unary.min(axis=2).sum() + min(0.0, float(rows.planes(0, 6).sum())) * profile[-1]
        model = model_of(rows)
        graph = model.graph()
        relaxation = graph.user_energy(local_polytope(graph))
        bounds = []
        for tile in (2, 3, 6):
            position, _ = finished(replace(rows, tile=tile), Plan(engine="inline", cycles=FAST[:1], bound_rounds=60))
            assert 0.0 < position.error < 1e-9
            bounds.append(position.bound - position.error)
        assert min(bounds) >= trivial - 1e-9 and max(bounds) <= relaxation + 1e-9
        assert relaxation <= brute_force(model)[0] + 1e-9
        assert relaxation - bounds[-1] <= 0.1 * (relaxation - trivial) + 1e-9  # one tile: nothing is lost at seams


def test_bound_of_one_tile_meets_the_optimum_of_a_tight_model():
    rows = grid_rows(30, 20, 2, 2, tile=64)
    position, _ = finished(rows, Plan(engine="inline", cycles=FAST, bound_rounds=150))
    best = tm.solve(model_of(rows), "qpbo").energy
    assert position.bound - position.error == pytest.approx(best, rel=1e-6)
    assert position.bound - position.error <= best


def test_moves_never_raise_the_energy():
    rng = np.random.default_rng(2)
    for directions in (2, 4):
        rows = grid_rows(12, 9, 4, directions, (0.0, 1.0, 2.0), tile=12, by_edge=True)
        tile = labelling.tile_of(rows, 0)
        labels, proposal = (rng.integers(0, 4, (14, 9)).astype(np.int32) for _ in range(2))
        proposal[[0, -1]] = labels[[0, -1]]
        both = [labelling.tile_energy(tile, x) for x in (labels, proposal)]
        assert labelling.fuse(tile, labels, proposal) > 0 or both[0] <= both[1]
        fused = labelling.tile_energy(tile, labels)
        assert fused <= min(both) + 1e-9
        labelling.descend(tile, labels, 50)
        descended = labelling.tile_energy(tile, labels)
        assert descended < fused
        for r, c, s in itertools.product(range(12), range(9), range(4)):  # no single change is better
            changed = labels.copy()
            changed[r + 1, c] = s
            assert labelling.tile_energy(tile, changed) >= descended - 1e-9


def test_killed_processes_change_nothing():
    rows = grid_rows(35, 13, 3, 2)
    plan = Plan(engine="inline", cycles=FAST, bound_rounds=5)
    position, labels = finished(rows, plan)
    steps = np.random.default_rng(3).choice(30, 3, replace=False).tolist()
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    other, same = finished(rows, replace(plan, workers=2, engine="processes"), kill=steps)
    assert (labels == same).all() and other == position
    if before:
        assert not {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("psm_")}


def test_run_goes_on_from_its_checkpoint(tmp_path):
    rows = grid_rows(35, 13, 3, 2)
    position, labels = finished(rows, Plan(engine="inline", cycles=FAST, bound_rounds=5))
    for steps in (3, 17):
        plan = Plan(2, "inline", str(tmp_path / str(steps)), cycles=FAST, bound_rounds=5)
        os.mkdir(plan.checkpoint)
        first = Run(rows, plan)
        for _ in range(steps):
            first.advance()
        second = Run(rows, replace(plan, workers=3))
        assert second.position == first.position and second.position.total > 0
        other, same = finished(rows, plan)
        assert (labels == same).all() and other == position
        with pytest.raises(tm.OptionError, match="another model"):
            Run(grid_rows(35, 13, 3, 2, by_edge=True), plan)
        with pytest.raises(tm.OptionError, match="another model"):
            Run(replace(rows, unary=source_of(costs(35, 13, 3, seed=9))), plan)


def test_workers_killed_while_they_start_or_answer_change_nothing(monkeypatch):
    rows = grid_rows(35, 13, 3, 2)
    plan = Plan(engine="inline", cycles=FAST[:1], bound_rounds=5)
    position, labels = finished(rows, plan)
    starts = itertools.count()
    start = engines._Hand.start

    def killed_at_once(hand):
        start(hand)
        if next(starts) in (0, 2, 3):  # the first worker, its successor, and one of the second worker
            os.kill(hand.process.pid, signal.SIGKILL)

    monkeypatch.setattr(engines._Hand, "start", killed_at_once)
    receive, cut = engines._Hand.receive, itertools.count()

    def half_an_answer(hand):
        if next(cut) != 5:
            return receive(hand)
        hand.process.kill()
        mine, theirs = multiprocessing.Pipe()
        theirs._send(struct.pack("!i", 1000) + b"half")  # a message of 1000 bytes that ends after four
        theirs.close()
        hand.pipe.close()
        hand.pipe = mine
        return receive(hand)

    monkeypatch.setattr(engines._Hand, "receive", half_an_answer)
    other, same = finished(rows, replace(plan, workers=2, engine="processes"))
    assert next(starts) >= 5 and next(cut) > 6
    assert (labels == same).all() and other == position


def test_a_limit_in_the_middle_of_a_cycle_is_no_loss(tmp_path):
    rows = grid_rows(35, 13, 3, 2)
    model = model_of(rows)
    options = {"workers": 1, "tile": 8, "preset": "fast"}
    whole = tm.solve(model, "admm", **options)
    assert whole.iterations > 80
    for cuts in ((37,), (10, 73)):
        folder = str(tmp_path / str(cuts[0]))
        for cut in cuts:
            early = tm.solve(model, "admm", max_iterations=cut, checkpoint=folder, **options)
            assert early.status is tm.Status.ITERATION_LIMIT and np.isfinite(early.energy)
        again = tm.solve(model, "admm", checkpoint=folder, **options)
        assert (again.labels == whole.labels).all() and again.energy == whole.energy
        assert again.lower_bound == whole.lower_bound


def test_errors_of_workers_arrive(tmp_path):
    unary = costs(20, 8, 2)
    unary[17, 3, 1] = np.nan
    np.save(tmp_path / "u.npy", unary)
    with pytest.raises(tm.ModelError, match="must be finite"):
        tm.scale.solve_rows(tmp_path / "u.npy", workers=2, tile=8)


def from_a_function(first, last):
    return costs(40, 12, 2)[first:last]


def test_rows_from_anywhere_and_labels_to_a_file(tmp_path):
    unary = costs(40, 12, 2)
    options = {"tile": 8, "growth": 1.03, "rounds": 5}
    plain = tm.scale.solve_rows(unary, 0.3, **options)
    np.save(tmp_path / "u.npy", unary)
    raw = np.memmap(tmp_path / "u.raw", unary.dtype, "w+", 64, unary.shape)
    raw[:] = unary
    taller = np.memmap(tmp_path / "t.raw", unary.dtype, "w+", 0, (50, 12, 2))
    taller[10:] = unary
    kinds = [tmp_path / "u.npy", raw, taller[10:], np.load(tmp_path / "u.npy", mmap_mode="r")]
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["costs"] = unary
    for data in [*kinds, f"{tmp_path / 'u.h5'}:costs"]:
        other = tm.scale.solve_rows(data, 0.3, labels=tmp_path / "labels.npy", memory=1e6, **options)
        assert other.digest == plain.digest and (np.load(tmp_path / "labels.npy") == plain.labels).all()
        assert (other.energy, other.lower_bound) == (plain.energy, plain.lower_bound)
    other = tm.scale.solve_rows(from_a_function, 0.3, shape=unary.shape, **options)
    assert other.digest == plain.digest
    assert plain.lower_bound <= plain.energy < np.inf and plain.gap < 0.05 * abs(plain.energy)


def test_rows_that_cannot_be():
    with pytest.raises(tm.OptionError, match="smaller tile"):
        tm.scale.solve_rows(costs(40, 12, 2), memory=1000)
    with pytest.raises(tm.ModelError, match="shape"):
        tm.scale.solve_rows(from_a_function)
    with pytest.raises(tm.ModelError, match="level off"):
        tm.scale.solve_rows(costs(40, 12, 16), table=tuple(range(16)))
    with pytest.raises(tm.OptionError, match="neighbours"):
        tm.scale.solve_rows(costs(40, 12, 2), neighbours=6)
    with pytest.raises(tm.ModelError, match="npy"):
        tm.scale.solve_rows("nowhere.npy")


def test_solve_with_workers(tmp_path):
    rows = grid_rows(35, 13, 3, 4)
    model = model_of(rows)
    options = {"method": "admm", "tile": 8, "growth": 1.03}
    one = tm.solve(model, workers=1, checkpoint=str(tmp_path / "folder"), **options)
    two = tm.solve(model, workers=2, **options)
    assert (one.labels == two.labels).all() and one.lower_bound == two.lower_bound
    assert -np.inf < one.lower_bound <= one.energy == model.energy(one.labels)
    cut = tm.solve(model, workers=1, max_iterations=13, **options)
    assert cut.status is tm.Status.ITERATION_LIMIT and cut.iterations == 13
    chain = tm.Model([2, 2, 3])
    chain.add_factors([[0, 1]], np.random.default_rng(0).random((1, 2, 2)))
    with pytest.raises(tm.ModelError, match="workers need a grid"):
        tm.solve(chain, "admm", workers=2)
    for wrong in ({"workers": 0}, {"tile": 1}, {"checkpoint": "x"}, {"engine": "boat", "workers": 1}):
        with pytest.raises(tm.OptionError):
            tm.solve(model, "admm", **wrong)
    tm.write(model, tmp_path / "m.npz")
    command = ["solve", str(tmp_path / "m.npz"), "--workers", "1", "--option", "tile=8", "--option", "growth=1.03"]
    end = tightmap(*command, "--labels", tmp_path / "labels.txt")
    assert end.returncode == 0 and (tm.read_labels(tmp_path / "labels.txt") == one.labels).all(), end.stderr


class FakeRay(types.ModuleType):
    """As much of Ray as the engine uses, in this process: calls are done at once, an actor can be lost."""

    class exceptions:
        class RayActorError(Exception):
            pass

    def __init__(self):
        super().__init__("ray")
        self.started, self.lose, self.calls, self.made = False, set(), 0, 0

    def is_initialized(self):
        return self.started

    def init(self, **_):
        self.started = True

    def shutdown(self):
        self.started = False

    def kill(self, actor):
        actor.alive = False

    def get(self, refs):
        if isinstance(refs, list):
            return [self.get(r) for r in refs]
        if isinstance(refs, Exception):
            raise refs
        return refs

    def remote(self, **_):
        return lambda cls: types.SimpleNamespace(remote=lambda *a: FakeActor(self, cls(*a)))


class FakeActor:
    def __init__(self, ray, inner):
        ray.made += 1
        self.ray, self.inner, self.alive = ray, inner, True

    def __getattr__(self, name):
        return FakeMethod(self, name)


class FakeMethod:
    def __init__(self, actor, name):
        self.actor, self.name, self.returns = actor, name, 1

    def options(self, num_returns):
        self.returns = num_returns
        return self

    def remote(self, *arguments):
        ray, actor = self.actor.ray, self.actor
        ray.calls += 1
        actor.alive = actor.alive and ray.calls not in ray.lose
        lost = [a for a in arguments if isinstance(a, Exception)]
        if not actor.alive or lost:
            error = lost[0] if lost else ray.exceptions.RayActorError("lost")
            return error if self.returns == 1 else (error,) * self.returns
        return getattr(actor.inner, self.name)(*arguments)


@pytest.mark.parametrize(("workers", "lose", "folder"), [(2, (), False), (3, (31, 60), True), (2, (20,), False)])
def test_actors_give_the_same_labels(monkeypatch, tmp_path, workers, lose, folder):
    rows = grid_rows(35, 13, 3, 4)
    plan = Plan(engine="inline", cycles=FAST, bound_rounds=5)
    position, labels = finished(rows, plan)
    ray = FakeRay()
    ray.lose = set(lose)
    monkeypatch.setitem(sys.modules, "ray", ray)
    other, same = finished(
        rows, replace(plan, workers=workers, engine="ray", checkpoint=str(tmp_path) if folder else None)
    )
    assert (labels == same).all() and other == position
    assert ray.made > workers if lose else ray.made == workers
    assert not ray.started
    if folder:  # a later run finds itself done
        again = Run(rows, replace(plan, workers=2, engine="ray", checkpoint=str(tmp_path)))
        assert again.done and (again.engine.read(again.position.best, 0, 35) == labels).all()


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    rows = grid_rows(35, 13, 3, 4)
    with pytest.raises(tm.OptionError, match="pip install"):
        RayEngine(rows, layouts(rows, np.float32), 2, None, None)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system of shared memory here")
def test_shared_memory_goes_with_its_store():
    rows = grid_rows(35, 13, 3, 4)
    store = SharedStore(layouts(rows, np.float32), 35)
    names = list(store.names.values())
    assert all(Path("/dev/shm", name).exists() for name in names)
    view = store.read("x1.0", 0, 3)  # somebody still looks at it
    store.close()
    assert not any(Path("/dev/shm", name).exists() for name in names) and len(view) == 3
