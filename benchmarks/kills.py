"""Partitioned ADMM with workers that are killed at random moments: the labels stay the same, and the run ends.

    python benchmarks/kills.py --size 400 --labels 3 --workers 2 --kills 10 [--seed 0] [--limit 200]

A thread sends SIGKILL to a worker of the run, whichever and whenever, also while it is being started again.  One line
per kill, then the digest of the undisturbed run and of this one; the exit code says whether they agree.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import zlib

import numpy as np

from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.tiles.engines import Processes
from tightmap.solvers.admm.tiles.programme import Plan, Run
from tightmap.solvers.admm.tiles.rows import GridRows, source_of


def digest(unary: np.ndarray, plan: Plan, kills: int, seed: int, pause: float) -> tuple[str, float, int]:
    """Of the labels, with seconds, and how many workers were killed on the way."""
    profile = (0.0,) + (1.0,) * (unary.shape[2] - 1)
    begin = time.perf_counter()
    run = Run(GridRows(source_of(unary), profile, (0.3, 0.3), 32), plan)
    over, killed = threading.Event(), []

    def killer() -> None:
        chance = random.Random(seed)
        assert isinstance(run.engine, Processes)
        while len(killed) < kills and not over.wait(pause * chance.random()):
            hand = chance.choice(run.engine.hands)
            with contextlib.suppress(ProcessLookupError, AttributeError):
                os.kill(hand.process.pid, signal.SIGKILL)
                killed.append(hand.process.pid)
                where = f"{run.position.phase}, iteration {run.position.total}"
                print(f"  {time.perf_counter() - begin:6.2f} s  killed {hand.process.pid} during {where}", flush=True)

    thread = threading.Thread(target=killer, daemon=True)
    if kills:
        thread.start()
    try:
        while not run.done:
            run.advance()
            if kills > len(killed) and run.position.phase == "sweep":
                time.sleep(0.02)  # the run should not be over before the kills are
        labels = run.engine.read(run.position.best, 0, unary.shape[0])
        code = f"{zlib.crc32(np.ascontiguousarray(labels).tobytes()):08x}"
        return code, time.perf_counter() - begin, len(killed)
    finally:
        over.set()
        if kills:
            thread.join()
        run.engine.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--labels", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=6.0, help="longest time between two kills, seconds")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds until the stacks are printed")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.limit, exit=True)
    unary = np.random.default_rng(0).random((options.size, options.size, options.labels), dtype=np.float32)
    cycles = (Cycle(growth=1.01), Cycle(growth=1.01, relax=1.6))
    calm, seconds, _ = digest(unary, Plan(1, "inline", cycles=cycles, bound_rounds=3), 0, 0, 0.0)
    print(f"undisturbed {calm} in {seconds:.1f} s", flush=True)
    plan = Plan(options.workers, "processes", cycles=cycles, bound_rounds=3)
    found, seconds, killed = digest(unary, plan, options.kills, options.seed, options.pause)
    print(f"{killed} kills   {found} in {seconds:.1f} s: {'the same' if found == calm else 'DIFFERENT'}")
    return 0 if found == calm else 1


if __name__ == "__main__":
    sys.exit(main())
