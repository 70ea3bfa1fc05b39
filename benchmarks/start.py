"""From nothing to the first answer: a fresh process that imports the package, builds a small grid and solves it.

    python benchmarks/start.py dist/tightmap-*.whl [--method trws ...] [--times 3] [--wheel-only]

wheel    the wheel with kernels (`make wheel`), in a new environment, no machine code on disk
warm     the sources beside this file, machine code on disk from an earlier process
cold     the sources, nothing on disk: what the process compiles is what the next ones find there
peers    other programs on the same grid, where they are installed

Seconds of wall time of the whole process, the best of several, and in brackets the seconds of processor time, which
other work on the machine disturbs less.  Dependencies come from the environment that runs this.
"""

from __future__ import annotations

import argparse
import os
import resource
import site
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("trws", "expansion", "admm", "exact", "auto")
PROGRAM = """
import sys
import numpy as np, tightmap as tm
grid = tm.Model.grid(10, 10, 3)
grid.add_unaries(np.random.default_rng(0).random((100, 3)))
grid.add_potts(grid.edges(), 0.3)
result = tm.solve(grid, sys.argv[1])
kernels = [k for name, m in list(sys.modules.items()) if name.startswith("tightmap") for k in vars(m).values()]
entries = {id(k): k.entry for k in kernels if hasattr(k, "py_func") and hasattr(k, "entry")}
print(sum(sum(entry.stats.cache_misses.values()) for entry in entries.values()))
"""
GRID = """
import numpy as np
costs = np.random.default_rng(0).random((100, 3))
table = 0.3 * (1.0 - np.eye(3))
index = np.arange(100).reshape(10, 10)
edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1)
                        for a, b in ((index[:, :-1], index[:, 1:]), (index[:-1], index[1:]))])
"""
PEERS = {
    "PyMaxflow, expansion": GRID
    + """
from maxflow.fastmin import aexpansion_grid
aexpansion_grid(costs.reshape(10, 10, 3).copy(), table)
""",
    "GCO, expansion": GRID
    + """
import gco
gco.cut_general_graph(edges.astype(np.int32), np.ones(len(edges)), costs, table, algorithm="expansion")
""",
    "toulbar2, exact": GRID
    + """
import pytoulbar2
network = pytoulbar2.CFN(ubinit=1e9, resolution=6)
for i in range(100):
    network.AddVariable(f"x{i}", range(3))
    network.AddFunction([i], costs[i].tolist())
for i, j in edges.tolist():
    network.AddFunction([i, j], table.ravel().tolist())
network.Solve()
""",
}
IMPORT = "import numpy, tightmap"
BARE = "import numpy, numba"


def environment(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel; its Python.  Other packages are those of this environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "others.pth").write_text("\n".join(site.getsitepackages()) + "\n")  # after its own: the wheel comes first
    return python


def once(
    python: Path, code: str, arguments: list[str], cache: Path, settings: dict[str, str]
) -> tuple[float, float, str]:
    """Wall time and processor time of one process, and what it said."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "TIGHTMAP_", "PYTHON"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(
        [str(python), "-c", code, *arguments],
        env=clean | {"NUMBA_CACHE_DIR": str(cache)} | settings,
        cwd=cache.parent,
        check=True,
        capture_output=True,
        text=True,
    )
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout.strip()


def figures(runs: list[tuple[float, float, str]]) -> str:
    return f"{min(run[0] for run in runs):.2f} ({min(run[1] for run in runs):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--method", action="append", help="repeatable; five by default")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--wheel-only", action="store_true", help="not the sources, which take minutes to compile")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        installed = environment(chosen.wheel.resolve(), work / "venv")
        here = Path(sys.executable)
        source = {"PYTHONPATH": str(ROOT / "src")}

        def several(python: Path, code: str, arguments: list[str], cache: str, settings: dict[str, str]) -> str:
            return figures([once(python, code, arguments, work / cache, settings) for _ in range(chosen.times)])

        sources = [] if chosen.wheel_only else ["source, machine code on disk", "source, nothing on disk"]
        columns = ["", "wheel, nothing on disk", "kernels compiled", *sources]
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for label, code in (("`import numba`", BARE), ("`import tightmap`", IMPORT)):
            row = [several(installed, code, [], "empty", {}), ""]
            row += [several(here, code, [], "empty", source), ""][: len(sources)]
            print(f"| {label} | {' | '.join(row)} |", flush=True)
        for method in chosen.method or METHODS:
            runs = [once(installed, PROGRAM, [method], work / f"{method}{k}", {}) for k in range(chosen.times)]
            row = [figures(runs), runs[0][2]]
            if sources:
                first = once(here, PROGRAM, [method], work / f"source-{method}", source)
                row += [several(here, PROGRAM, [method], f"source-{method}", source), figures([first])]
            print(f"| {method} | {' | '.join(row)} |", flush=True)
        print("\n| other programs | |\n|---|---|")
        for peer, code in PEERS.items():
            try:
                print(f"| {peer} | {several(here, code, [], 'empty', {})} |", flush=True)
            except subprocess.CalledProcessError:
                print(f"| {peer} | not installed |", flush=True)


if __name__ == "__main__":
    main()
