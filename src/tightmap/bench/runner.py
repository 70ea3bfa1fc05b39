"""Run a list of runs, each in its own process, and append what happened to a file.

A run ends as a row whatever becomes of its process: with a result, refused (the method cannot take the model), failed
(with the last line of its error), or killed (too long after its time limit, too much memory, a signal).  Runs that the
file already has are not repeated.

A run talks to us through files without names, so that nothing is left behind whatever ends whom; its process ends when
ours is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from typing import IO

from tightmap.bench.records import Row, Run, append_row, latest, read_rows
from tightmap.registry import place_of

PREPARATION_LIMIT = 600.0  # seconds for building the model and compiling the kernels, before the measured part
GRACE = 60.0  # seconds past the time limit before a run is killed (or half the limit, if that is more)
POLL = 0.05

Notice = Callable[[Run, Row], None]


def pending(runs: Iterable[Run], path: str | os.PathLike[str], retry: bool = False) -> list[Run]:
    """Runs that the file does not have yet; with ``retry`` also those that failed or were killed."""
    done = latest(read_rows(path))
    again = {"FAILED", "KILLED"} if retry else set()
    return [run for run in runs if run.key() not in done or done[run.key()].get("status") in again]


def execute(
    runs: list[Run],
    path: str | os.PathLike[str] | None,
    *,
    jobs: int = 1,
    memory_limit: float | None = None,
    before: Callable[[Run], None] | None = None,
    after: Notice | None = None,
    rows: list[Row] | None = None,
    interrupted: threading.Event | None = None,
) -> bool:
    """Carry out the runs, ``jobs`` at a time; ``after`` is told about each.  Returns whether all were carried out.

    Every row is appended to the file ``path``, if there is one, and to ``rows``.  memory_limit is in MiB per run; by
    default 90 % of the machine's memory is shared by the jobs.  The event ``interrupted`` ends the running ones, and so
    does any exception, Ctrl-C for one.
    """
    stop = threading.Event()
    lock = threading.Lock()
    limit = memory_limit if memory_limit is not None else 0.9 * _physical_memory() / max(jobs, 1)

    def one(run: Run) -> tuple[Run, Row] | None:
        if stop.is_set():
            return None
        if before is not None:
            before(run)
        row = _run_process(run, limit, stop)
        if stop.is_set() and row.get("status") == "KILLED":
            return None  # ended by us, not by itself: it will be repeated
        row = {"key": run.key(), **asdict(run), **row, "date": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        with lock:
            if rows is not None:
                rows.append(row)
            if path is not None:
                append_row(path, row)
        return run, row

    pool = ThreadPoolExecutor(max_workers=max(1, jobs))
    try:
        left = {pool.submit(one, run) for run in runs}
        while left and not (interrupted is not None and interrupted.is_set()):
            done, left = wait(left, timeout=POLL, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                if outcome is not None and after is not None:
                    after(*outcome)
        return not left
    finally:
        stop.set()  # nothing is running any more, unless we were interrupted
        _wait_for(pool)


def _wait_for(pool: ThreadPoolExecutor) -> None:
    """See the last runs to their end, which is near; another Ctrl-C must not leave their processes behind."""
    while True:
        try:
            pool.shutdown(wait=True, cancel_futures=True)
            return
        except KeyboardInterrupt:
            continue


def _run_process(run: Run, memory_limit: float, stop: threading.Event) -> Row:
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tightmap.bench.child"],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=errors,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the run
        )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(asdict(run) | {"method": place_of(run.method)}).encode() + b"\n")
            process.stdin.flush()  # and stays open: the worker ends when this pipe breaks
        except BrokenPipeError:
            pass  # it died at once; the exit code says so below
        reason, peak = _watch(process, run, memory_limit, stop, answer.fileno())
        with suppress(BrokenPipeError):
            process.stdin.close()
        row = _answer(answer)
        if not row:
            errors.seek(0)
            row = _post_mortem(process.returncode, reason, errors.read().decode(errors="replace"))
        if row.get("peak_memory_mb") is None and peak:
            row["peak_memory_mb"] = peak
        return row


def _answer(stream: IO[bytes]) -> Row:
    """The row on the last line, or nothing when the worker did not come that far."""
    stream.seek(0)
    text = stream.read()
    if not text.endswith(b"\n"):
        return {}  # cut off
    try:
        row = json.loads(text.splitlines()[-1])
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _watch(
    process: subprocess.Popen[bytes], run: Run, memory_limit: float, stop: threading.Event, answer: int
) -> tuple[str, float]:
    """Wait for the end; kill when out of bounds.  Returns the reason for killing (or nothing) and the peak in MiB.

    The clock of the measured part starts again with every line of the answer.
    """
    begin = time.monotonic()
    measured: float | None = None
    seen = 0  # there is more to be seen when a run is started again because a kernel was compiled
    reason, peak = "", 0.0
    while True:
        usage = _reap(process)
        if usage is not None:
            return reason, max(peak, usage)
        peak = max(peak, _resident(process.pid))
        now = time.monotonic()
        size = os.fstat(answer).st_size
        if size != seen:
            measured, seen = now, size
        if not reason:
            if stop.is_set():
                reason = "the benchmark was interrupted"
            elif peak > memory_limit:
                reason = f"used more than {memory_limit:.0f} MiB of memory"
            elif measured is None and now - begin > PREPARATION_LIMIT:
                reason = f"building the model and compiling took more than {PREPARATION_LIMIT:.0f} s"
            elif run.time_limit is not None and now - begin > PREPARATION_LIMIT + 4 * (run.time_limit + GRACE):
                reason = f"not finished after {now - begin:.0f} s, compilation included"
            elif measured is not None and run.time_limit is not None:
                late = now - measured - run.time_limit
                if late > max(GRACE, 0.5 * run.time_limit):
                    reason = f"did not stop: {late:.0f} s past its time limit of {run.time_limit:g} s"
            if reason:
                process.kill()
        time.sleep(POLL)


def _reap(process: subprocess.Popen[bytes]) -> float | None:
    """None while the process runs, else its peak memory in MiB (0 where the system does not tell)."""
    if not hasattr(os, "wait4"):
        return None if process.poll() is None else 0.0
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _resident(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError, ValueError):
        return 0.0


def _physical_memory() -> float:
    """In MiB; endless where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (ValueError, OSError, AttributeError):
        return float("inf")


def _post_mortem(code: int | None, reason: str, errors: str) -> Row:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    last = lines[-1][:500] if lines else ""
    if reason:
        return {"status": "KILLED", "reason": reason}
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return {"status": "KILLED", "reason": f"ended by {name}" + (f": {last}" if last else "")}
    return {"status": "FAILED", "reason": last or f"exit code {code} without a message"}
