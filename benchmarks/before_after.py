"""Two versions of the code in one run: the same fixed amount of work, in turns, best of several.

    python benchmarks/before_after.py OLD/src NEW/src [--repeat 3] [--threads 1] [--only NAME ...]

Every measurement is a process of its own with PYTHONPATH set to one of the two folders; the first call of each only
compiles and is not counted.  Old and new take turns, so that a busy machine is busy for both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

PROGRAM = """
import json, sys, time
import tightmap as tm
from tightmap.bench.instances import PAPER

name, method, options, threads = json.loads(sys.argv[1])
if "/" in name and not name.endswith((".wcsp", ".uai")):
    model = next(i for i in PAPER if f"{i.family}/{i.name}" == name).build().model
else:
    model = tm.read(name)
best, result = float("inf"), None
for k in range(3):
    begin = time.perf_counter()
    result = tm.solve(model, method, threads=threads, seed=0, **options)
    if k:
        best = min(best, time.perf_counter() - begin)
print(json.dumps([best, result.energy, result.lower_bound, result.iterations]))
"""
DATA = os.environ.get("TIGHTMAP_DATA", os.path.join(os.path.dirname(__file__), "..", "..", "shared", "data"))
WORK = (
    ("inpainting-n4/ring-inverse", "bcd", {}),
    ("inpainting-n4/ring-inverse", "admm", {"max_iterations": 5000}),
    ("inpainting-n8/ring-inverse", "admm", {"max_iterations": 3000}),
    ("stereo/tsukuba", "admm", {"max_iterations": 200}),
    ("second-order/venus", "admm", {"max_iterations": 20}),
    ("inpainting-n4/ring-inverse", "trws", {"max_iterations": 500}),
    ("inpainting-n8/ring-inverse", "trws", {"max_iterations": 300}),
    ("stereo/tsukuba", "trws", {"max_iterations": 50}),
    ("inpainting-n4/ring-inverse", "srmp", {"max_iterations": 50}),
    ("segmentation/seed-1", "srmp", {}),
    ("inpainting-n4/ring-inverse", "mplp", {"max_iterations": 30}),
    ("inpainting-n4/ring-inverse", "expansion", {}),
    ("stereo/tsukuba", "expansion", {}),
    ("inpainting-n8/ring-inverse", "fusion", {}),
    ("inpainting-n4/ring-inverse", "pgd", {}),
    ("inpainting-n4/ring-inverse", "fw", {}),
    ("inpainting-n4/ring-inverse", "cqp", {}),
    ("inpainting-n4/ring-inverse", "lns", {"max_iterations": 30}),
    (f"{DATA}/wcsp/celar6sub0.wcsp", "exact", {}),
    (f"{DATA}/uai/Promedas_24.uai", "exact", {}),
    ("matching/matching0", "auto", {}),
)


def measure(source: str, name: str, method: str, options: dict[str, object], threads: int) -> list[float] | str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([name, method, options, threads])],
        env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60]
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="part of a model's or a method's name")
    given = parser.parse_args()
    print("| model | method | old s | new s | old / new | energy old | energy new |\n|---|---|--:|--:|--:|--:|--:|")
    for name, method, options in WORK:
        if given.only and not any(part in f"{name} {method}" for part in given.only):
            continue
        best: dict[str, list[float]] = {}
        trouble = ""
        for _ in range(given.repeat):
            for source in (given.old, given.new):
                found = measure(source, name, method, options, given.threads)
                if isinstance(found, str):
                    trouble = found
                elif source not in best or found[0] < best[source][0]:
                    best[source] = found
            if trouble:
                break
        short = os.path.basename(name) if name.startswith(DATA) else name
        if len(best) < 2:
            print(f"| {short} | {method} | {trouble} |", flush=True)
            continue
        old, new = best[given.old], best[given.new]
        times = f"{old[0]:.4f} | {new[0]:.4f} | {old[0] / new[0]:.2f}"
        print(f"| {short} | {method} | {times} | {old[1]:.9g} | {new[1]:.9g} |", flush=True)


if __name__ == "__main__":
    main()
