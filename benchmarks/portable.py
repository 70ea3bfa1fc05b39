"""Portable machine code against that for the processor at hand: what `TIGHTMAP_NATIVE=1 tightmap compile` is worth.

    python benchmarks/portable.py [--rounds 3] [--cache FOLDER]

The same methods on the same models, in processes that take turns: kernels for the processor that wheels are built for
(`tools/build_wheel.py`), and kernels for this one.  Milliseconds of processor time of one thread, the best of all
rounds; both kinds of kernels are compiled in the first round, which takes a minute or two, and are kept in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "src")]
from build_wheel import TARGETS  # noqa: E402

from tightmap.runtime import shipped  # noqa: E402

PROGRAM = """
import json, time
import numpy as np, tightmap as tm

def image(height, width, labels, whole):
    costs = np.random.default_rng(0).random((height * width, labels))
    model = tm.Model.grid(height, width, labels)
    model.add_unaries(np.round(20.0 * costs) if whole else costs)
    return model

potts = image(300, 400, 8, True)
potts.add_potts(potts.edges(), 6.0)
linear = image(300, 400, 16, False)
linear.add_truncated_linear(linear.edges(), 0.1, 3.0)
rng = np.random.default_rng(1)
pairs = np.unique(np.sort(rng.integers(0, 2000, (8000, 2)), axis=1), axis=0)
pairs = pairs[pairs[:, 0] < pairs[:, 1]]
graph = tm.Model([6] * 2000)
graph.add_unaries(rng.random((2000, 6)))
graph.add_factors(pairs, rng.random((len(pairs), 6, 6)))
runs = {
    "trws, image of 16 labels": (linear, "trws", {"precision": "single"}, 10),
    "trws, tables": (graph, "trws", {}, 20),
    "expansion, image of 8 labels": (potts, "expansion", {}, 2),
    "admm, image of 16 labels": (linear, "admm", {}, 20),
    "bcd, image of 16 labels": (linear, "bcd", {"restarts": 1}, 40),
}
out = {}
for name, (model, method, options, iterations) in runs.items():
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        tm.solve(model, method, threads=1, max_iterations=iterations, **options)
        best = min(best, time.process_time() - begin)
    out[name] = best
print(json.dumps(out))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", help="folder for the kernels; a new one that is removed again by default")
    chosen = parser.parse_args()
    cpu, features = TARGETS[platform.machine()]
    kinds = {"portable": shipped.settings(cpu, features.split()), "native": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(chosen.cache or name)
        best: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
        for _ in range(chosen.rounds):
            for kind, settings in kinds.items():
                place = folder / kind
                place.mkdir(parents=True, exist_ok=True)
                clean = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "TIGHTMAP_"))}
                clean |= {"PYTHONPATH": str(ROOT / "src"), "NUMBA_CACHE_DIR": str(place), "TIGHTMAP_NATIVE": "1"}
                done = subprocess.run(
                    [sys.executable, "-c", PROGRAM], env=clean | settings, check=True, capture_output=True, text=True
                )
                for run, seconds in json.loads(done.stdout).items():
                    best[kind][run] = min(best[kind].get(run, float("inf")), seconds)
        print("| run | portable, ms | native, ms | portable : native |\n|---|---|---|---|")
        for run, seconds in best["portable"].items():
            other = best["native"][run]
            print(f"| {run} | {1e3 * seconds:.0f} | {1e3 * other:.0f} | {seconds / other:.2f} |")


if __name__ == "__main__":
    main()
