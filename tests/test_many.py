"""solve_many: the same results everywhere, errors that stay with their model, and nothing lost or left behind."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

import many_builders as builders
import tightmap as tm
from command_line import processes_of, start, tightmap
from many_builders import grid
from tightmap.many.messages import LARGE, Memory, pack, receive, send, shared_file, unpack

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and processes of POSIX")
METHOD = {"method": "annealing", "cycles": 1, "sweeps": 2}  # too few sweeps to find the same twice


@pytest.fixture
def mark(monkeypatch):
    """Every process that is started carries this in its environment."""
    name = f"many-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("TIGHTMAP_TEST", name)
    return name


def nobody_left(mark, patience=10.0):
    """The processes of a test are gone, at once or very soon."""
    until = time.monotonic() + patience
    own = str(os.getpid())
    while (left := [p for p in processes_of(mark) if p != own]) and time.monotonic() < until:
        time.sleep(0.05)
    return not left


def collect(models, **options):
    """Outcomes in the order of the models; each comes exactly once."""
    found = list(tm.solve_many(models, **options))
    assert sorted(o.index for o in found) == list(range(len(found)))
    return sorted(found, key=lambda o: o.index)


# ------------------------------------------------------------------ results


def test_the_same_results_whoever_solves_what(tmp_path):
    """Models, files and functions; alone, one worker, two: as solve() with the seed of the place in the sequence."""
    large = partial(grid, size=20)
    tm.write(large(1), tmp_path / "one.npz")
    models = [large(0), tmp_path / "one.npz", partial(large, 2), lambda: large(3), large(0), str(tmp_path / "one.npz")]
    expected = [tm.solve(large(k), seed=7 + i, **METHOD) for i, k in enumerate([0, 1, 2, 3, 0, 1])]
    assert not np.array_equal(expected[0].labels, expected[4].labels)  # the seed of the place matters
    for place in ({"engine": "serial"}, {"workers": 1}, {"workers": 2}):
        found = collect(models, seed=7, **METHOD, **place)
        assert [o.get() for o in found] == expected
        assert all(o.error is None and o.result.state is None for o in found)


def test_errors_stay_with_their_model():
    models = [grid(0), "nowhere.uai", 3, builders.broken, builders.no_model, partial(grid, 1), lambda: 1 / 0]
    for place in ({"engine": "serial"}, {"workers": 1}):
        found = collect(models, method="bcd", **place)
        assert [o.result is not None for o in found] == [True, False, False, False, False, True, False]
        words = (
            "no such file",
            "got int",
            "this and that",
            "must return a tightmap.Model, got int",
            "division by zero",
        )
        for outcome, word in zip([found[i] for i in (1, 2, 3, 4, 6)], words, strict=True):
            assert word in str(outcome.error)
        with pytest.raises(tm.ModelError, match="no such file"):
            found[1].get()
    assert "builders.py" in found[3].error.__notes__[0]  # where it happened, in the worker


def test_a_source_that_fails_takes_no_model_along():
    def made():
        for k in range(5):
            yield grid(k)
        raise RuntimeError("no more frames")

    for place in ({"engine": "serial"}, {"workers": 1}):
        found = []
        with pytest.raises(RuntimeError, match="no more frames"):
            for outcome in tm.solve_many(made(), method="bcd", **place):
                found.append(outcome.index)
        assert sorted(found) == [0, 1, 2, 3, 4]


def test_models_are_drawn_as_they_are_needed(mark):
    drawn = []
    endless = (drawn.append(k) or grid(k) for k in count())
    outcomes = tm.solve_many(endless, method="bcd", workers=1)
    index, result, error = next(outcomes)
    assert error is None and result == tm.solve(grid(index), "bcd") and not nobody_left(mark, patience=0.0)
    assert len(list(islice(outcomes, 4))) == 4 and len(drawn) < 10
    outcomes.close()
    assert nobody_left(mark)


def test_cores_are_shared_out(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "4")
    for wanted, threads in (({"workers": 1}, 4), ({"workers": 1, "threads": 3}, 3), ({"workers": 2}, 2)):
        (found,) = collect([builders.environment], method="bcd", **wanted)
        assert str(found.error) == f"{threads} {threads}"


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        (["a.uai"], {"method": "nothing"}, "unknown method"),
        (["a.uai"], {"method": "bcd", "colour": 3}, "no option 'colour'"),
        (["a.uai"], {"engine": "steam"}, "engine must be one of"),
        (["a.uai"], {"workers": 0}, "workers must be a whole number"),
        (["a.uai"], {"time_limit": -1}, "time_limit"),
        (["a.uai"], {"seed": None}, "seed"),
        (["a.uai"], {"callback": print}, "callback"),
        (["a.uai"], {"checkpoint": "folder", "keep_state": True}, "keep_state"),
        ("a.uai", {}, "expected a sequence"),
        (tm.Model([2]), {}, "expected a sequence"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_mistakes_are_errors_before_anything_starts(models, options, words):
    with pytest.raises(ValueError, match=words):
        tm.solve_many(models, **options)


def test_states_come_back_when_asked_for():
    (found,) = collect([grid(0)], method="trws", max_iterations=4, keep_state=True, workers=1)
    assert found.result.state.messages.shape == tm.solve(grid(0), "trws", max_iterations=4).state.messages.shape


def test_methods_from_outside(monkeypatch):
    """Registered here, or an instance: a worker finds the class; one of the main script cannot be found."""
    monkeypatch.setattr("tightmap.registry._registered", {})
    tm.register(builders.Guess)
    for method in ("guess", builders.Guess(tries=5)):
        (found,) = collect([grid(0)], method=method, workers=1, seed=4)
        assert found.get() == tm.solve(grid(0), method, seed=4) and found.result.method == "guess"
    monkeypatch.setattr(builders.Guess, "__module__", "__main__")
    with pytest.raises(tm.OptionError, match="must live in a module"):
        tm.solve_many([grid(0)], method="guess")


# ------------------------------------------------------------------ accidents


@posix
def test_killed_workers(tmp_path, mark, caplog):
    """One that dies once is replaced and its model solved; one that dies again is an error, and the rest goes on."""
    once, always = tmp_path / "once", tmp_path / "always"
    once.mkdir()
    always.mkdir()
    models = [grid(0), partial(builders.killed, 1, once), partial(builders.killed, 99, always), partial(grid, 3)]
    found = collect(models, method="bcd", workers=1)
    assert [o.result is not None for o in found] == [True, True, False, True]
    assert isinstance(found[2].error, tm.WorkerError) and str(found[2].error).count("SIGKILL") == 2
    assert len(list(once.iterdir())) == 2 and len(list(always.iterdir())) == 2  # tried twice each
    assert [r.levelname for r in caplog.records if r.name == "tightmap"] == ["WARNING"] * 3
    assert nobody_left(mark)


PARENT = """
import os, signal, sys
from functools import partial
import tightmap as tm
import many_builders as builders

folder, log, ends = sys.argv[1:]
for k, outcome in enumerate(tm.solve_many(
    [partial(builders.noted, i, log, 0.05) for i in range(8)], method="bcd", workers=2, checkpoint=folder
)):
    print(outcome.index, flush=True)
    if ends == "kill" and k == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def parent(folder, log, ends, **options):
    return [sys.executable, "-c", PARENT, str(folder), str(log), ends], {
        "env": os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **options,
    }


@posix
def test_a_killed_run_goes_on(tmp_path, mark):
    """SIGKILL of everything: nothing that was finished is solved again, and no worker survives."""
    folder, log = tmp_path / "checkpoint", tmp_path / "log"
    command, options = parent(folder, log, "kill")
    run = subprocess.run(command, check=False, timeout=120, **options)
    assert run.returncode == -signal.SIGKILL and len(run.stdout.split()) == 3
    assert nobody_left(mark)
    finished = (folder / "journal").read_bytes().count(b"\n") - 1
    assert 3 <= finished < 8
    before = log.read_text().split()
    found = collect([partial(builders.noted, i, str(log), 0.05) for i in range(8)], method="bcd", checkpoint=folder)
    assert [o.get() for o in found] == [tm.solve(grid(i), "bcd", seed=i) for i in range(8)]
    assert len(log.read_text().split()) - len(before) == 8 - finished
    again = collect([partial(builders.noted, i, str(log), 0.05) for i in range(8)], method="bcd", checkpoint=folder)
    assert [o.get() for o in again] == [o.get() for o in found]
    assert len(log.read_text().split()) - len(before) == 8 - finished


@posix
def test_ctrl_c_ends_the_workers(tmp_path, mark):
    command, options = parent(tmp_path / "checkpoint", tmp_path / "log", "never")
    options["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, **options) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and b"KeyboardInterrupt" in errors
    assert nobody_left(mark)
    assert (tmp_path / "checkpoint" / "journal").read_bytes().endswith(b"\n")


def test_torn_lines_are_passed_over(tmp_path, caplog):
    """A journal whose last line was cut off and in which a byte was changed: these two are solved again."""
    log = tmp_path / "log"
    models = [partial(builders.noted, i, str(log)) for i in range(4)]
    found = collect(models, engine="serial", method="bcd", checkpoint=tmp_path)
    lines = (tmp_path / "journal").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"energy": ', b'"energy": 1')
    (tmp_path / "journal").write_bytes(b"".join(lines)[:-9])
    again = collect(models, engine="serial", method="bcd", checkpoint=tmp_path)
    assert [o.get() for o in again] == [o.get() for o in found]
    assert log.read_text().split() == ["0", "1", "2", "3", "0", "3"]
    assert "2 torn lines" in caplog.text
    collect(models, engine="serial", method="bcd", checkpoint=tmp_path)
    assert len(log.read_text().split()) == 6


def test_what_a_checkpoint_tells_apart(tmp_path):
    """Models by content, files by date, options, seeds; not the number of threads."""
    folder, path = tmp_path / "folder", tmp_path / "m.npz"
    tm.write(grid(1), path)

    def lines(models, **options):
        before = (folder / "journal").read_bytes().count(b"\n") if folder.exists() else 1
        collect(models, engine="serial", checkpoint=folder, **({"method": "bcd"} | options))
        return (folder / "journal").read_bytes().count(b"\n") - before

    assert lines([grid(0), path]) == 2
    assert lines([grid(0), path], threads=1) == 0
    assert lines([grid(0)], seed=1) == 1 and lines([grid(0)], method="tabu") == 1
    assert lines([grid(0)], max_iterations=1) == 1 and lines([grid(0)], init=np.zeros(36, dtype=int)) == 1
    changed = grid(0)
    changed.add_constant(1.0)
    assert lines([changed]) == 1
    tm.write(grid(2), path)
    assert lines([grid(0), path]) == 1


def test_a_checkpoint_is_used_by_one_run_at_a_time(tmp_path):
    first = tm.solve_many([grid(0), grid(1)], engine="serial", method="bcd", checkpoint=tmp_path)
    next(first)
    with pytest.raises(tm.OptionError, match="another run"):
        next(tm.solve_many([grid(0)], engine="serial", method="bcd", checkpoint=tmp_path))
    first.close()
    assert len(collect([grid(0)], engine="serial", method="bcd", checkpoint=tmp_path)) == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal").write_text("Dear diary\n")
    with pytest.raises(tm.OptionError, match="something else"):
        next(tm.solve_many([grid(0)], engine="serial", method="bcd", checkpoint=tmp_path / "other"))
    assert (tmp_path / "other" / "journal").read_text() == "Dear diary\n"


# ------------------------------------------------------------------ what goes from process to process


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_one_number_for_all_stays_one_number(again):
    """A worker would otherwise get, and look through, lists of label counts and weights that are all the same."""
    model = tm.Model.grid(50, 60, 4)
    model.add_unaries(np.random.default_rng(0).random((3000, 4)))
    model.add_potts(model.edges(), 0.25)
    model.add_truncated_linear(model.edges(), np.linspace(0.0, 1.0, len(model.edges())), 2.0)
    potts, linear = again(model).blocks
    for array, expected in ((again(model).cardinalities, 4), (potts.weights, 0.25), (linear.limits, 2.0)):
        assert array.strides == (0,) and not array.flags.writeable and (array == expected).all()
    assert linear.weights.strides == (8,) and (linear.weights == model.blocks[1].weights).all()
    assert again(model).cardinalities.dtype == np.int64 and len(potts.weights) == len(model.edges())
    kept = model.given_unaries.nbytes + sum(b.scopes.nbytes for b in model.blocks) + linear.weights.nbytes
    assert len(pickle.dumps(model)) < kept + 2000
    assert tm.solve(again(model), "trws", max_iterations=5) == tm.solve(model, "trws", max_iterations=5)


def test_models_are_pickled_without_what_is_derived():
    model = grid(0)
    model.add_sparse([[0, 1, 2]] * 3, [[0, 0, 0]], [-1.0])
    plain = len(pickle.dumps(model))
    result = tm.solve(model, "bcd")  # makes the canonical form, and what blocks keep for themselves
    assert len(pickle.dumps(model)) == plain
    twin = pickle.loads(pickle.dumps(model))
    assert tm.solve(twin, "bcd") == result and np.array_equal(twin.offset, model.offset)
    shallow = copy.copy(model)
    shallow.add_unaries(np.ones((36, 3)))
    shallow.add_potts([[0, 1]])
    shallow.clamp({0: 1})
    assert tm.solve(model, "bcd") == result and model.num_factors == twin.num_factors == shallow.num_factors - 1
    assert pickle.loads(pickle.dumps(shallow)).clamped[0] == 1


@posix
def test_large_arrays_do_not_go_through_the_pipe():
    model = tm.Model.grid(60, 60, 8)
    model.add_unaries(np.random.default_rng(0).random((3600, 8)))
    size = 3600 * 8 * 8
    pipe, file = io.BytesIO(), shared_file()
    try:
        send(pipe, pack(model), file)
        assert LARGE < size <= os.fstat(file).st_size and len(pipe.getvalue()) < size // 4
        pipe.seek(0)
        memory = Memory(file)
        twin = unpack(receive(pipe, memory))
        assert np.array_equal(twin.unaries, model.unaries) and receive(pipe, memory) is None
        place = twin.given_unaries.ctypes.data
        twin.given_unaries[:] = 0.0  # allowed
        del twin
        for larger in (False, True):  # the next message is in the same place, unless it needs more room
            pipe = io.BytesIO()
            send(pipe, pack([model, np.ones(LARGE)] if larger else [model]), file)
            pipe.seek(0)
            twin, *rest = unpack(receive(pipe, memory))
            assert np.array_equal(twin.unaries, model.unaries) and all((array == 1.0).all() for array in rest)
            assert larger or twin.given_unaries.ctypes.data == place
    finally:
        os.close(file)
    pipe = io.BytesIO()  # and where files are not inherited, they do
    send(pipe, pack(model), None)
    pipe.seek(0)
    assert np.array_equal(unpack(receive(pipe, None)).unaries, model.unaries)


# ------------------------------------------------------------------ the command


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models").mkdir()
    for k in range(3):
        tm.write(grid(k), tmp_path / "models" / f"{k}.npz")
    (tmp_path / "models" / "bad.uai").write_text("MARKOV x")
    (tmp_path / "models" / "notes.txt").write_text("not a model")
    return tmp_path


def rows(path):
    from tightmap.bench.records import read_rows

    return {Path(row["path"]).name: row for row in read_rows(path)}


def test_batch(folder):
    command = ("batch", folder / "models", "--out", folder / "r.jsonl", "--method", "bcd", "--workers", 1)
    run = tightmap(*command)
    assert run.returncode == 2 and "bad.uai" in run.stderr and "1 of 4 models" in run.stderr
    assert "3 models solved" in run.stdout
    found = rows(folder / "r.jsonl")
    assert sorted(found) == ["0.npz", "1.npz", "2.npz", "bad.uai"] and "expected" in found["bad.uai"]["error"]
    for k in range(3):
        assert tm.Result.from_dict(found[f"{k}.npz"]) == tm.solve(grid(k), "bcd")
    before = (folder / "r.jsonl").read_bytes()
    (folder / "models" / "bad.uai").unlink()
    run = tightmap(*command)
    assert run.returncode == 0 and "3 of 3 models are already" in run.stderr
    assert (folder / "r.jsonl").read_bytes() == before
    run = tightmap("batch", folder, "--out", folder / "x.jsonl")
    assert run.returncode == 2 and "there are no models" in run.stderr


@posix
def test_an_interrupted_batch_goes_on(folder, mark):
    (folder / "models" / "bad.uai").unlink()
    for k in range(3, 12):
        tm.write(grid(k, size=40), folder / "models" / f"{k}.npz")
    command = [
        "batch",
        "models",
        "--out",
        "r.jsonl",
        "--method",
        "annealing",
        "--max-iterations",
        "15",
        "--workers",
        "1",
    ]
    process = start(command, folder)
    until = time.monotonic() + 120.0
    while time.monotonic() < until and not (folder / "r.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "the same command goes on" in errors
    assert nobody_left(mark)
    content = (folder / "r.jsonl").read_text()
    early = len(rows(folder / "r.jsonl"))
    assert 1 <= early < 12 and content.count("\n") == early
    run = tightmap(*command, cwd=folder)
    assert run.returncode == 0 and "12 models solved" in run.stdout and len(rows(folder / "r.jsonl")) == 12
    assert (folder / "r.jsonl").read_text().startswith(content)
