"""Whatever ends a benchmark: no process and no temporary file stays behind, and what is finished is kept."""

from __future__ import annotations

import csv
import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, replace

import pytest

from bench_worker import RING, worker_that
from command_line import processes_of, start
from tightmap.bench import runner
from tightmap.bench.records import read_rows
from tightmap.bench.suites import built_in
from tightmap.cli import main as cli


def row_of(**more):
    return f"""print('{json.dumps({"status": "CONVERGED", "energy": 1.5, "elapsed": 0.1, "iterations": 3} | more)}')"""


def test_second_interruption_waits_for_the_processes(tmp_path, monkeypatch):
    """Ctrl-C while the runs are being ended must not leave their processes behind."""
    started = []
    worker_that(monkeypatch, "import time; time.sleep(60)")
    fake, shutdown = runner.subprocess.Popen, runner.ThreadPoolExecutor.shutdown

    def start(*args, **options):
        started.append(fake(*args, **options))
        return started[-1]

    def impatient(pool, **options):
        if len(interruptions) < 2:
            interruptions.append(1)
            raise KeyboardInterrupt
        shutdown(pool, **options)

    interruptions = []
    monkeypatch.setattr(runner.subprocess, "Popen", start)
    monkeypatch.setattr(runner.ThreadPoolExecutor, "shutdown", impatient)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            runner.execute([replace(RING, seed=k) for k in range(4)], tmp_path / "r.jsonl", jobs=2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(interruptions) == 2 and started
    assert all(process.returncode == -signal.SIGKILL for process in started)
    assert read_rows(tmp_path / "r.jsonl") == []  # they will be repeated


@pytest.mark.parametrize("out", [None, "r.jsonl"])
def test_command_says_what_is_there_after_a_signal(tmp_path, monkeypatch, capsys, out):
    """The tables of what is finished, a message that is true, and no temporary files."""
    from tightmap.cli import bench as bench_cli

    places = tmp_path / "work", tmp_path / "temporary"
    for place in places:
        place.mkdir()
    monkeypatch.chdir(places[0])
    monkeypatch.setattr(tempfile, "tempdir", str(places[1]))
    worker_that(monkeypatch, row_of() + "; import sys; sys.stdout.flush(); import time; time.sleep(0.2)")
    sentence = bench_cli._sentence

    def then_interrupt(row):
        signal.raise_signal(signal.SIGTERM)
        return sentence(row)

    monkeypatch.setattr(bench_cli, "_sentence", then_interrupt)
    options = ["--jobs", "1", "--methods", "bcd", "--format", "csv", "--report", "page.html"]
    assert cli.run(["bench", "smoke", *options, *(["--out", out] if out else [])]) == 143
    shown, err = capsys.readouterr()
    rows = [row for row in csv.DictReader(shown.splitlines()) if row["source"] == "measured"]
    total = len(built_in("smoke", methods=["bcd"]).runs)
    assert 1 <= len(rows) < total and all(float(row["value"]) == 1.5 for row in rows)
    kept = f"and are in {out}, the same command goes on" if out else "no file keeps them"
    assert f"interrupted; {len(rows)} of {total} runs were finished" in err and kept in err
    assert sorted(p.name for p in places[0].iterdir()) == (["page.html", "r.jsonl"] if out else ["page.html"])
    assert len(read_rows(out or "none")) == (len(rows) if out else 0)
    assert list(places[1].iterdir()) == []


def test_full_disk_shows_what_was_measured(tmp_path, monkeypatch, capsys):
    def fsync(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    worker_that(monkeypatch, row_of())
    monkeypatch.setattr(runner.os, "fsync", fsync)
    out = tmp_path / "r.jsonl"
    arguments = ["bench", "smoke", "--jobs", "1", "--methods", "bcd", "--format", "csv", "--out", str(out)]
    assert cli.run(arguments) == 2
    shown, err = capsys.readouterr()
    assert f"tightmap: --out {out}: cannot be written (No space left on device)" in err and "Traceback" not in err
    assert [row["value"] for row in csv.DictReader(shown.splitlines()) if row["source"] == "measured"]


def test_child_without_a_parent(tmp_path):
    """A process whose starter is gone before it could say what to do ends, and so does one in the middle of a run."""
    command = [sys.executable, "-m", "tightmap.bench.child"]
    done = subprocess.run(command, input=b"", capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    endless = replace(RING, time_limit=600.0, options={"restarts": 10**8})
    child.stdin.write(json.dumps(asdict(endless)).encode() + b"\n")
    child.stdin.flush()
    assert child.stdout.read(1) == b"\n"  # the measured part has begun
    child.stdin.close()
    try:
        assert child.wait(timeout=60) == 1
    finally:
        child.kill()
        child.stdout.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs /proc to find the processes")
def test_random_moments_of_bench(tmp_path):
    """Whatever ends the benchmark: no process, no temporary file, whole rows, and a message that is true."""
    suite = tmp_path / "mine.toml"
    seeds = list(range(100))  # so many processes that no machine is through before the last signal
    suite.write_text(
        f'methods = ["bcd"]\nseeds = {seeds}\n[[model]]\nproblem = "inpainting"\narguments = {{size = 8}}\n'
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
        assert run.returncode == 128 + number and "Traceback" not in err
        if rows:
            assert f"{len(rows)} of {len(seeds)} runs were finished and are in r.jsonl" in err
