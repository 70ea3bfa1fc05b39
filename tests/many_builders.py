"""Functions that make models, for workers to import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

import tightmap as tm
from tightmap.runtime import parallel


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
