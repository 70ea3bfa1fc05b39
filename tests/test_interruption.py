"""Nothing that is finished gets lost: signals at every moment of a command, at known ones and at random ones."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import tightmap as tm
from command_line import FILES, assert_complete, outputs, processes_of, said, start
from problems import grid_model
from tightmap import driver
from tightmap.cli import main as cli
from tightmap.io import atomic
from tightmap.runtime import clock
from tightmap.view import plot as plots

FOREVER = ["--method", "bcd", "--option", "restarts=100000000", "--time-limit", "60"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "grid.npz"
    model = grid_model(np.random.default_rng(0), 12, 12, 3)
    tm.write(model, path)
    tm.solve(tm.read(path), "bcd", trace=True)  # compile all that the command needs: its processes say when they do
    return path


@pytest.fixture(autouse=True)
def signals_as_in_a_terminal():
    """A job in the background has Ctrl-C ignored; a person's shell does not."""
    before = {s: signal.getsignal(s) for s in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for s in SIGNALS[1:]:
        signal.signal(s, signal.SIG_DFL)
    yield
    clock.announce_always(False)
    after = {s: signal.getsignal(s) for s in SIGNALS}
    for s, handler in before.items():
        signal.signal(s, handler)
    # whatever a command did with its signals is undone at its end
    assert after == {signal.SIGINT: signal.default_int_handler} | dict.fromkeys(SIGNALS[1:], signal.SIG_DFL)


def send(*signals):
    for s in signals:
        signal.raise_signal(s)


def solving(monkeypatch, during=(), before=(), **more):
    """Let signals come right before a run, or inside of its first step."""
    real = driver.solve

    def solve(model, method, **options):
        send(*before)
        left = list(during)

        def callback(info):
            while left:
                send(left.pop(0))

        return real(model, method, **(options | more | {"callback": callback}))

    monkeypatch.setattr(driver, "solve", solve)


# ---------------------------------------------------------------------- one command, signals at known moments


@pytest.mark.parametrize("number", SIGNALS)
def test_while_solving_everything_is_written(model_path, tmp_path, monkeypatch, capsys, number):
    solving(monkeypatch, during=[number])
    assert cli.run(["solve", str(model_path), *FOREVER, *outputs(tmp_path)]) == 128 + number
    assert_complete(tmp_path, model_path)
    assert json.loads((tmp_path / "r.json").read_text())["status"] == "INTERRUPTED"
    out, err = capsys.readouterr()
    assert "bcd: interrupted" in out and err == ""


def test_before_the_first_step_the_start_is_written(model_path, tmp_path, monkeypatch, capsys):
    """The trace is empty then; the picture says so instead of failing."""
    solving(monkeypatch, before=[signal.SIGTERM])
    assert cli.run(["solve", str(model_path), *FOREVER, *outputs(tmp_path)]) == 143
    assert_complete(tmp_path, model_path)
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["iterations"] == 0 and record["status"] == "INTERRUPTED"
    assert (tmp_path / "t.csv").read_text().count("\n") == 1


@pytest.mark.parametrize("number", SIGNALS[:2])
def test_while_reading_the_command_ends_at_once(model_path, tmp_path, monkeypatch, capsys, number):
    import tightmap.io

    monkeypatch.setattr(tightmap.io, "read", lambda path: send(number))
    assert cli.run(["solve", str(model_path), *FOREVER, *outputs(tmp_path)]) == 128 + number
    assert_complete(tmp_path, model_path, names=())
    assert capsys.readouterr() == ("", "tightmap: interrupted\n")


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_while_writing_what_is_finished_is_written(model_path, tmp_path, monkeypatch, capsys, moment):
    """JSON, labels and trace are completed, the picture is left out."""
    calls = []

    def fsync(number):
        calls.append(number)
        if len(calls) == moment:
            send(signal.SIGTERM)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 143
    assert_complete(tmp_path, model_path, FILES[:3])
    out, err = capsys.readouterr()
    assert "bcd: converged" in out and "--plot" in err and "interrupted" in err and err.count("\n") == 1


def test_one_signal_for_the_run_and_one_for_its_files(model_path, tmp_path, monkeypatch, capsys):
    """An impatient second Ctrl-C that comes when the run is over takes nothing away but the picture."""
    left = [signal.SIGINT]
    solving(monkeypatch, during=[signal.SIGINT])
    monkeypatch.setattr(atomic.os, "fsync", lambda number: send(*[left.pop() for _ in left]))
    assert cli.run(["solve", str(model_path), *FOREVER, *outputs(tmp_path)]) == 130
    assert_complete(tmp_path, model_path, FILES[:3])
    assert "bcd: interrupted" in capsys.readouterr().out


def test_while_drawing_only_the_picture_is_lost(model_path, tmp_path, monkeypatch, capsys):
    real = plots.save

    def save(figure, path):
        with atomic.writing(path) as stream:
            stream.write(b"half of a picture")
            send(signal.SIGINT)
        real(figure, path)

    monkeypatch.setattr(plots, "save", save)
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 130
    assert_complete(tmp_path, model_path, FILES[:3])
    out, err = capsys.readouterr()
    assert "bcd: converged" in out and "--plot" in err and "Traceback" not in err


def test_second_signal_leaves_no_half_file(model_path, tmp_path, monkeypatch, capsys):
    """It ends the command inside of the first write: the old file stays as it was."""
    (tmp_path / "r.json").write_text("old")
    monkeypatch.setattr(atomic.os, "fsync", lambda number: send(signal.SIGINT, signal.SIGINT, signal.SIGINT))
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 130
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"] and (tmp_path / "r.json").read_text() == "old"


def test_second_signal_while_solving_is_quick(model_path, tmp_path, monkeypatch, capsys):
    solving(monkeypatch, during=[signal.SIGINT, signal.SIGINT])
    begin = time.monotonic()
    assert cli.run(["solve", str(model_path), *FOREVER, *outputs(tmp_path)]) == 130
    assert time.monotonic() - begin < 30.0 and list(tmp_path.iterdir()) == []


def test_ignored_signals_stay_ignored(model_path, tmp_path, monkeypatch, capsys):
    """nohup and jobs in the background: neither the command nor the library takes such a signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        solving(monkeypatch, during=[signal.SIGINT, signal.SIGHUP], before=[signal.SIGINT])
        assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 0
        assert_complete(tmp_path, model_path)
        result = driver.solve(tm.read(model_path), "bcd")
        assert result.status is tm.Status.CONVERGED
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_library_leaves_sigterm_alone(model_path, monkeypatch):
    """A program that uses the library decides itself what SIGTERM means, also while solve() runs."""
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        solving(monkeypatch, during=[signal.SIGTERM])
        assert driver.solve(tm.read(model_path), "bcd").status is tm.Status.CONVERGED and seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_command_in_another_thread(model_path, tmp_path, capsys):
    """Handlers can only be set in the main thread; elsewhere a command does without."""
    codes = []
    arguments = ["solve", str(model_path), "--method", "bcd", "--json", str(tmp_path / "r.json")]
    thread = threading.Thread(target=lambda: codes.append(cli.run(arguments)))
    thread.start()
    thread.join()
    assert codes == [0]
    assert_complete(tmp_path, model_path, ["r.json"])


# ---------------------------------------------------------------------- processes and real signals


ANNOUNCE = """
import sys
from tightmap import driver
from tightmap.cli import main as cli
real = driver.solve
def solve(*args, **options):
    return real(*args, **(options | {"callback": lambda info: print("step", file=sys.stderr, flush=True)}))
driver.solve = solve
cli.main()
"""


@pytest.mark.parametrize(("number", "kept"), [*((s, True) for s in SIGNALS[:2]), (signal.SIGTERM, False)])
def test_process_that_is_solving(model_path, tmp_path_factory, tmp_path, number, kept):
    """With kernels on disk, and with none: then it says that it compiles."""
    kernels = {} if kept else {"NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("kernels"))}
    run = start(["solve", str(model_path), *FOREVER, *outputs(tmp_path)], tmp_path, ANNOUNCE, **kernels)
    try:
        first = run.stderr.readline()
        assert kept or said(first) == ""
        assert (said(first) or run.stderr.readline()) == "step\n"
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 128 + number and "bcd: interrupted" in out and set(said(err).split()) <= {"step"}
    assert_complete(tmp_path, model_path)


TWICE = """
import signal
from tightmap.cli import main as cli
from tightmap.io import atomic
atomic.os.fsync = lambda number: [signal.raise_signal(signal.SIGTERM) for _ in range(2)]
cli.main()
"""


def test_process_that_leaves_in_the_middle_of_a_file(model_path, tmp_path):
    """The second signal ends the process inside of a write: the old file stays, and no temporary one."""
    (tmp_path / "r.json").write_text("old")
    run = start(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)], tmp_path, TWICE)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out, said(err)) == (143, "", "tightmap: interrupted\n")
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"] and (tmp_path / "r.json").read_text() == "old"


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs /proc to find the processes")
def test_compilation_in_several_processes(tmp_path):
    """They end at once, not when they are ready."""
    mark = f"compile-{os.getpid()}"
    run = start(["compile", "-m", "bcd", "-m", "qpbo", "--processes", "2"], tmp_path, TIGHTMAP_TEST=mark)
    patience = time.monotonic() + 60.0
    while len(processes_of(mark)) < 3 and run.poll() is None and time.monotonic() < patience:
        time.sleep(0.01)
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=60)
    assert (run.returncode, said(err)) == (143, "tightmap: interrupted\n")
    patience = time.monotonic() + 20.0
    while processes_of(mark) and time.monotonic() < patience:
        time.sleep(0.05)
    assert processes_of(mark) == []


def test_random_moments_of_solve(model_path, tmp_path):
    rng = random.Random(1)
    longest = 2.0
    for trial in range(6):
        number, folder = rng.choice(SIGNALS[:2]), tmp_path / str(trial)
        folder.mkdir()
        run = start(["solve", str(model_path), *FOREVER, *outputs(folder)], folder)
        try:
            time.sleep(longest * trial / 5 + 0.2 * rng.random())
            run.send_signal(number)
            if trial % 2:
                time.sleep(0.1 * rng.random())
                run.send_signal(number)
            out, err = run.communicate(timeout=60)
        finally:
            run.kill()
        # nothing, or all that comes before the picture, or all of it
        assert run.returncode == 128 + number and "Traceback" not in err
        names = sorted(p.name for p in folder.iterdir())
        if trial % 2 == 0:
            assert names in ([], sorted(FILES[:3]), sorted(FILES))
            assert bool(names) == ("energy" in out)
        assert_complete(folder, model_path, names)
