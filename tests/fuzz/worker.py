"""A process that works through cases and says what it is about to do, so that its parent knows what killed it."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tightmap.registry import METHODS
from tightmap.runtime import clock

from .models import random_recipe
from .oracle import Oracle
from .recipe import Recipe
from .reproducer import Failure
from .shrink import shrink
from .trials import Broken, Outcome, Trial, judge, random_trials

TICK = 0.5  # seconds between two looks at whether kernels are being compiled
KEPT = 3  # failures of one check and one method that are made small and written down; the rest is counted


@dataclass(frozen=True)
class Plan:
    """What a worker has to know once."""

    seed: int
    methods: list[str]
    trials: int = 2  # of every method with every model
    shrink_seconds: float = 20.0
    extra: dict[str, str] = field(default_factory=dict)  # methods that are not in the library: name -> module:class


@dataclass(frozen=True)
class Task:
    """A case, from which trial on, and the failures there are already."""

    case: int
    first: int = 0
    known: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(frozen=True)
class Begin:
    """The next trial begins; ``again`` while its failure is made small."""

    case: int
    index: int
    again: bool = False


@dataclass(frozen=True)
class Checked:
    """One trial has ended."""

    method: str
    checks: list[str]
    refused: bool


@dataclass(frozen=True)
class Found:
    """A failure, first as it was found and perhaps once more when it is small; or only to be counted."""

    failure: Failure
    again: bool = False
    write: bool = True


@dataclass(frozen=True)
class End:
    """The case is done, in so many seconds without compilation."""

    case: int
    seconds: float


class Alive:
    """Nothing hangs, a kernel is being compiled."""


def make_case(plan: Plan, case: int) -> tuple[Recipe, list[Trial]]:
    """The model of a case and what is done with it: the same in every process."""
    trials = random_trials(plan.seed, case, plan.methods, plan.trials)
    return random_recipe(np.random.default_rng([plan.seed, case])), trials


def strictly(trial: Trial, recipe: Recipe, oracle: Oracle | None = None) -> Outcome:
    """Judge with warnings as errors: nobody asked for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return judge(trial, recipe, oracle)


def serve(connection: Connection, plan: Plan, log: str) -> None:
    """Work on what the connection brings until it closes."""
    METHODS.update(plan.extra)
    with open(log, "w") as file:
        faulthandler.enable(file)
        if hasattr(signal, "SIGUSR1"):
            faulthandler.register(signal.SIGUSR1, file, all_threads=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is asked to stop, and stops its workers
        worker = Worker(connection, plan)
        try:
            while True:
                worker.run(connection.recv())
        except (EOFError, BrokenPipeError):
            os._exit(0)  # the parent is gone: nothing to clean up


class Worker:
    def __init__(self, connection: Connection, plan: Plan) -> None:
        self.connection, self.plan = connection, plan
        self.lock = threading.Lock()
        threading.Thread(target=self._tick, daemon=True).start()

    def send(self, message: Any) -> None:
        with self.lock:
            self.connection.send(message)

    def _tick(self) -> None:
        parent = os.getppid()
        before = clock.compiling_seconds()
        while True:
            time.sleep(TICK)
            if os.getppid() != parent:
                os._exit(0)  # nobody listens any more, and what runs here may never end
            now = clock.compiling_seconds()
            if now - before > TICK / 4:
                try:
                    self.send(Alive())
                except OSError:
                    return
            before = now

    def run(self, task: Task) -> None:
        begin = clock.now()
        recipe, trials = make_case(self.plan, task.case)
        oracle = Oracle(recipe)
        known = Counter(task.known)
        for index, trial in enumerate(trials):
            if index < task.first:
                continue
            self.send(Begin(task.case, index))
            outcome = strictly(trial, recipe, oracle)
            self.send(Checked(trial.method, outcome.checks, outcome.refused))
            for broken in outcome.broken:
                known[trial.method, broken.check] += 1
                failure = Failure(self.plan.seed, task.case, index, trial, recipe, broken)
                write = known[trial.method, broken.check] <= KEPT
                self.send(Found(failure, write=write))
                if write:
                    self.send(Found(self._small(failure), again=True))
        self.send(End(task.case, clock.now() - begin))

    def _small(self, failure: Failure) -> Failure:
        check = failure.broken.check
        last = failure.broken

        def failing(trial: Trial, recipe: Recipe) -> bool:
            nonlocal last
            self.send(Begin(failure.case, failure.index, again=True))
            try:
                broken = _broken(trial, recipe, check)
            except Exception:  # not a model any more
                return False
            last = broken or last
            return broken is not None

        trial, recipe = shrink(failure.trial, failure.recipe, failing, self.plan.shrink_seconds)
        return replace(failure, trial=trial, recipe=recipe, broken=last)


def _broken(trial: Trial, recipe: Recipe, check: str) -> Broken | None:
    """The failure of this check, if it fails."""
    outcome = strictly(trial, recipe)
    return next((broken for broken in outcome.broken if broken.check == check), None)
