"""python -m tests.fuzz --minutes 10 --seed 0 [--methods a,b] [--out fuzz-failures] [--case 17]"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
from pathlib import Path

from tightmap.registry import ENGINES, installed, usable_methods

from .parent import fuzz
from .worker import Plan

FILES = 0.2  # share of the time that goes to mutated files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random models against brute force.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of work, compilation not counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", default=",".join(usable_methods()), help="separated by commas; all by default")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"), help="folder for reproducers")
    parser.add_argument("--case", type=int, default=None, help="only this case, to see a failure again")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    methods = given.methods.split(",")
    unknown = [name for name in methods if name not in usable_methods()]
    if unknown:
        parser.error(f"unknown method {unknown[0]!r}; methods are {', '.join(usable_methods())}")
    for name in ENGINES:
        if not installed(name):
            print(f"method {name} is left out: its program is not installed")
    plan = Plan(given.seed, methods)
    with_files = given.case is None and importlib.util.find_spec(f"{__package__}.files") is not None
    seconds = 60.0 * given.minutes * (1.0 - FILES if with_files else 1.0)
    cases = itertools.count() if given.case is None else iter([given.case])
    processes = given.processes if given.case is None else 1
    summary = fuzz(plan, given.out, cases, seconds, processes=processes)
    print(summary.text())
    failures = summary.failures.total()
    if with_files:
        failures += _fuzz_files(60.0 * given.minutes * FILES, given.seed, given.out)
    return 1 if failures else 0


def _fuzz_files(seconds: float, seed: int, out: Path) -> int:
    """Mutated files of every format; the number of failures."""
    files = importlib.import_module(f"{__package__}.files")
    counts = files.fuzz_files(seconds, seed, out)
    print("\nfiles")
    for what, count in counts.items():
        print(f"  {what:38} {count:8}")
    return sum(count for what, count in counts.items() if what.startswith("failure"))


if __name__ == "__main__":
    sys.exit(main())
