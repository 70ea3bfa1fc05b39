"""A grid under a memory cap of a quarter of its size: costs, iterates and labels in files, and the same labels.

    python benchmarks/memory_cap.py --side 5000 --labels 4 --folder FOLDER [--part 0.25]

The size of a model is what a run in memory holds: unaries, iterates before and after a step, labellings.  The second
run is in a process whose private memory, interpreter and compiled kernels included, the system limits to a part of
that (RLIMIT_DATA): an allocation beyond it fails.  The labels of both have to be the same.  Interpreter and kernels
alone take some 230 MB, so that a quarter of a model of less than about 2 GB leaves no room for a tile.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

TILE = 128
OPTIONS = {"weights": 0.3, "tile": TILE, "growth": 1.1, "rounds": 1}


def size_of(side: int, labels: int) -> int:
    """Bytes of unaries (single precision), iterates and labellings in memory."""
    return side * side * (4 * labels + 24 * labels + 3)


def private_bytes() -> float:
    """What the limit counts, now."""
    with open("/proc/self/status") as status:
        return next(1024.0 * int(line.split()[1]) for line in status if line.startswith("VmData"))


def capped(path: str, cap: float) -> None:
    import tightmap as tm

    small = np.random.default_rng(0).random((256, 64, 2), dtype=np.float32)
    tm.scale.solve_rows(small, memory=1e8, **OPTIONS)  # kernels are in memory
    resource.setrlimit(resource.RLIMIT_DATA, (int(cap), int(cap)))
    room = cap - private_bytes()
    begin = time.perf_counter()
    result = tm.scale.solve_rows(path, memory=0.5 * room, labels=path + ".labels.npy", **OPTIONS)
    print(f"capped at {cap / 1e6:.0f} MB, {room / 1e6:.0f} MB of it free: {result.digest}", end=" ")
    print(f"energy {result.energy:.3f}, bound {result.lower_bound:.3f} in {time.perf_counter() - begin:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--side", type=int, default=5000)
    parser.add_argument("--labels", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path("memory_cap"))
    parser.add_argument("--part", type=float, default=0.25)
    parser.add_argument("--cap", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = options.folder / "unaries.npy"
    if options.cap:
        capped(str(path), options.cap)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    shape = (options.side, options.side, options.labels)
    unary = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    rng = np.random.default_rng(0)
    for first in range(0, options.side, 64):
        unary[first : first + 64] = rng.random(unary[first : first + 64].shape, dtype=np.float32)
    unary.flush()
    del unary
    import tightmap as tm

    begin = time.perf_counter()
    result = tm.scale.solve_rows(path, **OPTIONS)
    full = size_of(options.side, options.labels)
    print(f"{shape}: {full / 1e6:.0f} MB. In memory: {result.digest}", end=" ")
    print(f"energy {result.energy:.3f}, bound {result.lower_bound:.3f} in {time.perf_counter() - begin:.1f} s")
    del result
    command = [sys.executable, __file__, "--folder", str(options.folder), "--cap", str(options.part * full)]
    sys.stdout.flush()
    sys.exit(subprocess.call(command))


if __name__ == "__main__":
    main()
