"""Hands out cases to workers, survives their crashes and hangs, writes reproducers and adds up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from .recipe import Recipe
from .reproducer import Failure
from .shrink import shrink
from .trials import Broken, Trial
from .worker import KEPT, Begin, Checked, End, Found, Plan, Task, make_case, serve

PROGRESS = 60.0  # seconds between two lines of progress
START = 120.0  # seconds that a new process may take to import everything


@dataclass
class Summary:
    """What was done and what went wrong."""

    cases: int = 0
    trials: Counter[str] = field(default_factory=Counter)  # by method
    refused: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)  # by method and check
    written: dict[Path, Failure] = field(default_factory=dict)

    def line(self) -> str:
        done = f"{self.cases} models, {self.trials.total()} trials, {self.checks.total()} checks"
        return f"{done}, {self.failures.total()} failures"

    def text(self) -> str:
        lines = [self.line(), ""]
        lines.append(f"{'method':12} {'trials':>8} {'refused':>8} {'failures':>8}")
        for method, count in self.trials.items():
            failed = sum(n for (name, _), n in self.failures.items() if name == method)
            lines.append(f"{method:12} {count:8} {self.refused[method]:8} {failed:8}")
        lines += ["", f"{'check':40} {'made':>8} {'failures':>8}"]
        every = [*self.checks, *(check for _, check in self.failures if check not in self.checks)]
        for check in dict.fromkeys(every):
            failed = sum(n for (_, name), n in self.failures.items() if name == check)
            lines.append(f"{check:40} {self.checks[check]:8} {failed:8}")
        lines += ["", f"{self.failures.total()} failures"]
        for (method, check), count in sorted(self.failures.items()):
            lines.append(f"  {count} x {method}: {check}")
        lines += [f"  {path}: {failure.broken.message}" for path, failure in self.written.items()]
        return "\n".join(lines)


class Lane:
    """One worker process after the other, each going on where the one before it died."""

    def __init__(self, plan: Plan, log: Path) -> None:
        self.plan, self.log = plan, log
        self.task: Task | None = None
        self.at: Begin | None = None
        self.spent = 0.0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(other, self.plan, str(self.log)), daemon=True)
        self.process.start()
        other.close()
        self.fresh = True
        self.since = time.monotonic()

    def give(self, task: Task) -> None:
        self.task, self.at = task, None
        self.sent = self.since = time.monotonic()
        self.connection.send(task)

    def quiet(self) -> float:
        """Seconds since the worker last said something."""
        return time.monotonic() - self.since

    def stop(self) -> str:
        """End the worker, and say where it was if it left word."""
        if self.process.is_alive():
            if hasattr(signal, "SIGUSR1") and self.process.pid is not None:
                os.kill(self.process.pid, signal.SIGUSR1)
                time.sleep(0.5)
            self.process.kill()
        self.process.join()
        self.connection.close()
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        places = [line.strip() for line in lines if "tightmap" in line and line.lstrip().startswith("File")]
        return "; ".join(places[:3])

    def restart(self) -> str:
        where = self.stop()
        self._start()
        return where


def busy_machine() -> float:
    """How many times longer everything takes because others use the machine too."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 1.0
    return max(1.0, load / (os.cpu_count() or 1))


class Parent:
    def __init__(self, plan: Plan, out: Path, processes: int = 2, hang: float = 30.0) -> None:
        self.plan, self.out, self.hang = plan, out, hang
        self.summary = Summary()
        self.folder = tempfile.TemporaryDirectory(prefix="tightmap-fuzz-")
        self.lanes = [Lane(plan, Path(self.folder.name) / f"worker-{i}.log") for i in range(processes)]

    def run(self, cases: Iterator[int], seconds: float = float("inf")) -> Summary:
        """Work through the cases; a lane ends after so many seconds, in which compilation does not count."""
        told = time.monotonic()
        try:
            while True:
                if time.monotonic() > told + PROGRESS:
                    told = time.monotonic()
                    print(self.summary.line(), file=sys.stderr, flush=True)
                for lane in self.lanes:
                    if lane.task is None and lane.spent < seconds:
                        case = next(cases, None)
                        if case is not None:
                            lane.give(Task(case, known=Counter(self.summary.failures)))
                busy = [lane for lane in self.lanes if lane.task is not None]
                if not busy:
                    return self.summary
                ready = wait([lane.connection for lane in busy], timeout=1.0)
                for lane in busy:
                    if lane.connection in ready:
                        self._listen(lane)
                    elif lane.quiet() > (START if lane.fresh else self.hang) * busy_machine():
                        self._lost(lane, f"no answer for {self.hang:g} s", died=False)
        finally:
            for lane in self.lanes:
                lane.stop()
            self.folder.cleanup()

    def _listen(self, lane: Lane) -> None:
        try:
            message = lane.connection.recv()
        except (EOFError, ConnectionResetError):
            lane.process.join(10.0)
            self._lost(lane, f"the process died ({lane.process.exitcode})", died=True)
            return
        lane.since, lane.fresh = time.monotonic(), False
        if isinstance(message, Begin):
            lane.at = message
        elif isinstance(message, Checked):
            self.summary.trials[message.method] += 1
            self.summary.refused[message.method] += message.refused
            self.summary.checks.update(message.checks)
        elif isinstance(message, Found):
            self._found(message)
        elif isinstance(message, End):
            self.summary.cases += 1
            lane.spent += message.seconds
            lane.task = None

    def _found(self, message: Found) -> None:
        failure = message.failure
        if not message.again:
            self.summary.failures[failure.trial.method, failure.broken.check] += 1
            print(f"case {failure.case}: {failure.trial}: {failure.broken.check}", file=sys.stderr, flush=True)
        if message.write:
            self._write(failure)

    def _write(self, failure: Failure) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / failure.file_name
        path.write_text(failure.script())
        self.summary.written[path] = failure

    def _lost(self, lane: Lane, how: str, died: bool) -> None:
        """Note what the worker was doing, and let another go on behind it."""
        task, at = lane.task, lane.at
        assert task is not None
        lane.spent += time.monotonic() - lane.sent
        where = lane.restart()
        if at is None:
            raise RuntimeError(f"a worker died before its first trial: {how} {where}")
        recipe, trials = make_case(self.plan, task.case)
        trial = trials[at.index]
        check = "survives" if not at.again else "survives smaller models"
        message = f"{how} {where}".strip()
        failure = Failure(self.plan.seed, task.case, at.index, trial, recipe, Broken(check, message))
        known = self.summary.failures[trial.method, check] < KEPT
        self._found(Found(failure, write=known))
        if known and died and not at.again:
            self._write(self._small(failure))
        if not at.again:
            self.summary.trials[trial.method] += 1
        self.summary.checks[check] += 1
        lane.give(replace(task, first=at.index + 1, known=Counter(self.summary.failures)))

    def _small(self, failure: Failure) -> Failure:
        """Shrink a model that kills: every try needs a process of its own (a model that hangs would take for ever)."""

        def failing(trial: Trial, recipe: Recipe) -> bool:
            script = replace(failure, trial=trial, recipe=recipe).script()
            try:
                done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=START)
            except subprocess.TimeoutExpired:
                return False
            return done.returncode < 0

        trial, recipe = shrink(failure.trial, failure.recipe, failing, 3 * self.plan.shrink_seconds)
        return replace(failure, trial=trial, recipe=recipe)


def fuzz(plan: Plan, out: Path, cases: Iterator[int], seconds: float = float("inf"), **settings: Any) -> Summary:
    """Fuzz models: these cases, for at most so many seconds a process."""
    return Parent(plan, out, **settings).run(cases, seconds)
