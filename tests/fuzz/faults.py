"""Methods that misbehave on purpose: the fuzzer has to notice, and to survive."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tightmap.graph.graph import Graph
from tightmap.moves.context import Context
from tightmap.solvers.base import Init, Progress, Solver


@dataclass(frozen=True)
class Liar(Solver):
    """Calls the labelling of zeros optimal, whatever the model is."""

    name: ClassVar[str] = "liar"

    def start(self, graph: Graph, init: Init, context: Context) -> Graph:
        return graph

    def step(self, state: Graph) -> Progress:
        return Progress(labels=np.zeros(state.n, dtype=np.int64), bound=1e6, done=True)


@dataclass(frozen=True)
class Crash(Liar):
    name: ClassVar[str] = "crash"

    def step(self, state: Any) -> Progress:
        os.kill(os.getpid(), signal.SIGSEGV)
        return Progress(done=True)


@dataclass(frozen=True)
class Hang(Liar):
    name: ClassVar[str] = "hang"

    def step(self, state: Any) -> Progress:
        while True:
            time.sleep(1.0)
