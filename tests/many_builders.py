"""Functions that make models, and a method, for workers to import."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

import tightmap as tm
from tightmap.runtime import parallel
from tightmap.solvers.base import Progress, Solver


@dataclass(frozen=True)
class Guess(Solver):
    """Random labellings: a method from outside."""

    tries: int = 3
    name: ClassVar[str] = "guess"
    summary: ClassVar[str] = "random labellings"

    def start(self, graph, init, context):
        return [graph, context.rng(), self.tries]

    def step(self, state):
        state[2] -= 1
        return Progress(labels=state[1].integers(0, state[0].arrays.cards), done=state[2] == 0)


def grid(seed, size=6, labels=3):
    rng = np.random.default_rng(seed)
    model = tm.Model.grid(size, size, labels)
    model.add_unaries(rng.random((size * size, labels)))
    model.add_potts(model.edges(), 0.4 * rng.random(len(model.edges())))
    return model


def noted(seed, log, pause=0.0):
    """A model whose making is written down, one line each."""
    with open(log, "a") as file:
        file.write(f"{seed}\n")
    time.sleep(pause)
    return grid(seed)


def killed(times, marks):
    """Ends its process by SIGKILL the first so many times."""
    tries = sum(1 for _ in Path(marks).glob("try*"))
    (Path(marks) / f"try{tries}").touch()
    if tries < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return grid(0)


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def broken():
    raise Unpicklable("this", "that")


def no_model():
    return 5


def environment():
    """Says in its error what a worker may use."""
    raise ValueError(f"{parallel.available()} {os.environ['OMP_NUM_THREADS']}")
