"""Nothing that is finished gets lost: signals at every moment, full disks, folders that take no files."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model
from tightmap import cli, clock, driver
from tightmap import plot as plots
from tightmap.io import atomic

FILES = ("r.json", "l.txt", "t.csv", "p.png")
FOREVER = ["--method", "bcd", "--option", "restarts=100000000", "--time-limit", "60"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "grid.npz"
    model = grid_model(np.random.default_rng(0), 12, 12, 3)
    tm.write(model, path)
    tm.solve(model, "bcd", max_iterations=1)  # compile
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


def outputs(folder):
    """The options that ask for every file."""
    options = zip(("--json", "--labels", "--trace", "--plot"), FILES, strict=True)
    return [word for option, name in options for word in (option, str(folder / name))]


def assert_complete(folder, model_path, names=FILES):
    """Exactly these files are there, each complete, and nothing temporary."""
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)
    if "r.json" in names:
        record = json.loads((folder / "r.json").read_text())
        model = tm.read(model_path)
        assert model.energy(np.array(record["labels"])) == pytest.approx(record["energy"])
    if "l.txt" in names:
        assert len(tm.read_labels(folder / "l.txt")) == 144
    if "t.csv" in names:
        assert (folder / "t.csv").read_text().startswith("iteration,elapsed,energy,lower_bound")
    if "p.png" in names:
        assert (folder / "p.png").read_bytes().endswith(b"IEND\xaeB`\x82")


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


# ---------------------------------------------------------------------- outputs that fail


@pytest.mark.parametrize("number", range(4))
def test_failed_output_leaves_the_others(model_path, tmp_path, monkeypatch, capsys, number):
    """The disk is full just when one of the files is written."""
    calls = []

    def fsync(_):
        calls.append(1)
        if len(calls) == number + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 2
    assert_complete(tmp_path, model_path, [f for f in FILES if f != FILES[number]])
    out, err = capsys.readouterr()
    option = ("--json", "--labels", "--trace", "--plot")[number]
    assert "bcd: converged" in out and err.count("\n") == 1
    assert err.startswith(f"tightmap: {option} {tmp_path / FILES[number]}: cannot be written (No space left")


def test_output_that_cannot_be_made_leaves_the_others(model_path, tmp_path, monkeypatch, capsys):
    def convergence(result):
        raise MemoryError

    monkeypatch.setattr(plots, "convergence", convergence)
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 2
    assert_complete(tmp_path, model_path, FILES[:3])
    out, err = capsys.readouterr()
    assert "bcd: converged" in out and "--plot" in err and "out of memory" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_full_device(model_path, tmp_path, capsys):
    arguments = ["--json", "/dev/full", "--labels", str(tmp_path / "l.txt")]
    assert cli.run(["solve", str(model_path), "--method", "bcd", *arguments]) == 2
    assert_complete(tmp_path, model_path, ["l.txt"])
    assert "--json /dev/full" in capsys.readouterr().err


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 KiB, and a way to mount it again with other options."""
    place = tmp_path / "small"
    place.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command here: no small disk")
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")

    mount("size=24k")
    yield place, mount
    subprocess.run(["umount", str(place)], check=False)


def test_full_disk(model_path, small_disk, capsys):
    place, _ = small_disk
    assert cli.run(["solve", str(model_path), "--method", "bcd", "--time-limit", "0", *outputs(place)]) == 2
    assert_complete(place, model_path, FILES[:3])  # there is room for all but the picture
    out, err = capsys.readouterr()
    assert "bcd: time limit" in out and "--plot" in err and "No space left on device" in err
    with suppress(OSError), open(place / "filling", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert cli.run(["solve", str(model_path), "--method", "bcd", "--labels", str(place / "new.txt")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "--labels" in err and "No space left on device" in err  # before the run
    assert not (place / "new.txt").exists()


def test_read_only_disk(model_path, small_disk, capsys):
    place, mount = small_disk
    mount("remount,ro")
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(place)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Read-only file system" in err and err.count("\n") == 1


def test_folder_without_permission(model_path, tmp_path, capsys):
    place = tmp_path / "closed"
    place.mkdir()
    place.chmod(0o555)
    try:
        (place / "probe").touch()
    except PermissionError:
        pass
    else:
        pytest.skip("permissions of folders do not bind this user")
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(place)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Permission denied" in err


# ---------------------------------------------------------------------- processes and real signals


def start(arguments, folder, code=None, **environment):
    """The command as a process of its own, with Ctrl-C as in a terminal."""
    command = [sys.executable, *(["-m", "tightmap.cli"] if code is None else ["-c", code]), *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


ANNOUNCE = """
import sys
from tightmap import cli, driver
real = driver.solve
def solve(*args, **options):
    return real(*args, **(options | {"callback": lambda info: print("step", file=sys.stderr, flush=True)}))
driver.solve = solve
cli.main()
"""


@pytest.mark.parametrize("number", SIGNALS[:2])
def test_process_that_is_solving(model_path, tmp_path, number):
    run = start(["solve", str(model_path), *FOREVER, *outputs(tmp_path)], tmp_path, ANNOUNCE)
    try:
        assert run.stderr.readline() == "step\n"
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 128 + number and "bcd: interrupted" in out and set(err.split()) <= {"step"}
    assert_complete(tmp_path, model_path)


def test_random_moments_of_solve(model_path, tmp_path):
    rng = random.Random(1)
    longest = 2.0
    for trial in range(6):
        number, folder = rng.choice(SIGNALS[:2]), tmp_path / str(trial)
        folder.mkdir()
        run = start(["solve", str(model_path), *FOREVER, *outputs(folder)], folder)
        try:
            time.sleep(0.1 + longest * trial / 5 + 0.2 * rng.random())
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


def processes_of(mark):
    """Processes that carry a mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TIGHTMAP_TEST={mark}\0".encode() in (path / "environ").read_bytes():
                found.append(path.name)
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs /proc to find the processes")
def test_random_moments_of_bench(tmp_path):
    """Whatever ends the benchmark: no process, no temporary file, whole rows, and a message that is true."""
    suite = tmp_path / "mine.toml"
    suite.write_text(
        'methods = ["bcd"]\nseeds = [0, 1, 2, 3]\n[[model]]\nproblem = "inpainting"\narguments = {size = 8}\n'
    )
    rng = random.Random(2)
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL]
    for trial, number in enumerate(numbers):
        folder, mark = tmp_path / str(trial), f"{os.getpid()}-{trial}"
        temporary = folder / "temporary"
        temporary.mkdir(parents=True)
        arguments = ["bench", str(suite), "--jobs", "2", "--out", "r.jsonl", "--format", "csv"]
        run = start(arguments, folder, TMPDIR=str(temporary), TIGHTMAP_TEST=mark)
        try:
            time.sleep(0.5 + 0.6 * trial + 0.3 * rng.random())
            run.send_signal(number)
            _, err = run.communicate(timeout=60)
        finally:
            run.kill()
        patience = time.monotonic() + 20.0
        while processes_of(mark) and time.monotonic() < patience:
            time.sleep(0.05)
        assert processes_of(mark) == [] and list(temporary.iterdir()) == []
        file = folder / "r.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        assert len({row["key"] for row in rows}) == len(rows)
        if number is signal.SIGKILL:
            assert run.returncode == -signal.SIGKILL
            continue
        assert run.returncode in (0, 128 + number) and "Traceback" not in err
        if rows and run.returncode:
            assert f"{len(rows)} of 4 runs were finished and are in r.jsonl" in err
