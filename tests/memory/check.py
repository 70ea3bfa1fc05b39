"""Run every method on every shape of model with memory checks, and count what happened.

    python tests/memory/check.py [--models 48] [--methods trws,expansion] [--passes bounds,plain,heap] [--jobs 2]

Three passes over the same runs, each method in a process of its own:

bounds  kernels with index checks (``tightmap.runtime.guard``), fresh memory filled with huge negative numbers;
heap    the kernels that users run, under glibc's heap checker (it looks for damage around every block that is freed),
        fresh memory filled with huge positive numbers;
plain   the kernels that users run, as they run them.  Results must be those of the heap pass, bit for bit: whoever
        reads memory before writing it gets something else there.

A failure is an exception that is no refusal in words, the death or silence of the process, a labelling that is none, or
two passes that differ.  The last line says how many there were; any makes the exit status 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

HEAP_CHECKER = "libc_malloc_debug.so.0"
MOST_MEMORY = 6 << 30  # bytes of a process: what needs more counts as refused
SILENCE = 3600.0  # seconds without a word after which a process is taken for dead
UNCACHED = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}  # small blocks that are handed on are not filled otherwise
PASSES: dict[str, dict[str, str]] = {
    "bounds": {"NUMBA_BOUNDSCHECK": "1", "MALLOC_PERTURB_": "1", **UNCACHED},  # fresh bytes are 0xfe
    "heap": {"LD_PRELOAD": HEAP_CHECKER, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "128", **UNCACHED},  # 0x7f
    "plain": {},
}
LONG_STEPS = (
    "tabu",
    "annealing",
    "chains",
    "forest-annealing",
    "lns",
    "exact",
    "combilp",
    "multicut",
    "auto",
)  # a fixed amount of work, however small the model is
# these prepare in their first steps, and search after that
FEW_STEPS = {"exact": 12, "auto": 4}
# some models as if they were large (fuzz/sizes.py): those whose number has this remainder
LARGE = {
    "no list": (3, 0),
    "few bits": (4, 0),
    "one start": (4, 0),
    "turns": (2, 0),
    "streams": (2, 1),
    "slow tree": (3, 1),
}
# Options that lead to other kernels or layouts than the defaults do
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "bcd": [
        *({"blocks": b} for b in ("forests", "lines", "rows", "columns")),
        {"incremental": True, "order": "random"},
    ],
    "fw": [{"steps": "pairwise"}],
    "cqp": [{"steps": "pairwise"}, {"steps": "plain", "line_search": "diminishing"}, {"line_search": "armijo"}],
    "pgd": [{"step_rule": "fixed"}],
    "admm": [
        {"precision": "double"},
        {"preset": "paper"},
        {"decomposition": "star", "sets": "all_simplex", "unary_split": True},
        {"decomposition": "symmetric", "symmetrize": False, "cache": False},
        {"multiscale": False, "preset": "fast"},
        {"preset": "quality"},
    ],
    "trws": [{"precision": "single"}, {"order": "greedy", "rounding": 0}, {"order": "rcm"}, {"precision": "double"}],
    "srmp": [
        {"edges": "minimal"},
        *({"clusters": c} for c in ("squares", "pairs", "triplets", "cycles", "singletons")),
    ],
    "mplp-c": [
        {"clusters": "triplets", "first": 2, "inner": 1},
        {"clusters": "cycles", "updates": "srmp", "first": 2},
        {"clusters": "singletons", "updates": "srmp", "first": 2, "inner": 1},
    ],
    "ad3": [{"exact": True}, {"absorb": False, "relaxation": 1.5}, {"adaptive": False, "eta": 1.0}],
    "subgradient": [{"steps": "diminishing", "sweeps": 2, "decomposition": "forests"}],
    "bundle": [
        {"variant": "proximal", "planes": 3, "sweeps": 0},
        {"planes": 3, "sweeps": 0, "decomposition": "forests"},
        {"decomposition": "lines", "passes": 1},
        {"decomposition": "chains", "planes": 5},
    ],
    "expansion": [
        {"largest": False, "order": "random", "restart": True},
        {"nonmetric": "qpbo"},
        {"nonmetric": "truncate", "order": "descending"},
    ],
    "fastpd": [{"order": "descending", "largest": True}],
    "qpbo": [{"reduction": "hocr", "improve": 2}],
    "fusion": [{"reduction": "hocr", "shifts": True, "random": 2}, {"settle": True}],
    "tabu": [{"spins": False}, {}],
    "sdp": [{"triangles": 0, "exact": 0}, {"exact": 0, "roundings": 0}],
    "exact": [{"elimination": 0}, {"degree": 0, "elimination": 0, "cores": False}],
    "combilp": [{"patience": 0}, {"cores": False}],
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- inside a process


def work(method: str, count: int, first: int) -> None:
    """Run a method on the models from number ``first`` on, with a line before and after each."""
    import resource

    from memory.models import cases

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    for index, (name, build) in enumerate(cases(count)):
        if index < first:
            continue
        print(json.dumps({"begin": index, "model": name}), flush=True)
        begin = time.process_time()
        done = attempt(method, build, index)
        print(json.dumps({"end": index, "model": name, "seconds": time.process_time() - begin} | done), flush=True)


def attempt(method: str, build: Any, index: int) -> dict[str, Any]:
    """Default options in one thread; then others in two threads, every second time from where the first run ended."""
    import tightmap as tm
    from fuzz.sizes import treat_as

    treat_as([size for size, (every, place) in LARGE.items() if index % every == place])
    variants = VARIANTS.get(method, [{}])
    runs: list[str] = []
    refused = 0
    try:
        model = build()
        few = 2 if method in LONG_STEPS or model.num_labels > 20_000 else 20
        few = FEW_STEPS.get(method, few)
        first: Any = None
        for threads in (1, 2):
            options = {} if threads == 1 else variants[index % len(variants)]
            init = first if index % 2 else None
            try:
                result = tm.solve(model, method, max_iterations=few, threads=threads, seed=index, init=init, **options)
            except (tm.ModelError, MemoryError):
                refused += 1
                continue
            if result.energy != model.energy(result.labels):
                raise AssertionError(f"energy {result.energy} is not that of the labels")
            first = result
            content = result.labels.tobytes() + repr((result.energy, result.lower_bound, result.status)).encode()
            runs.append(hashlib.sha256(content).hexdigest()[:16])
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        return {"runs": runs, "refused": refused, "error": found}
    return {"runs": runs, "refused": refused}


# ---------------------------------------------------------------------------------------------- outside


@dataclass
class Outcome:
    """What one method did in one pass."""

    runs: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    results: dict[str, list[str]] = field(default_factory=dict)  # model -> digests
    seconds: dict[str, float] = field(default_factory=dict)  # model -> processor time


def environment(name: str) -> dict[str, str]:
    return os.environ | PASSES[name]


def has_heap_checker() -> bool:
    """Does a byte written behind a block end the process, as it should?"""
    program = "import ctypes as c; p = c.create_string_buffer(4000); c.memset(p, 0, 4001); del p; print('unnoticed')"
    try:
        done = subprocess.run([sys.executable, "-c", program], env=environment("heap"), capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode < 0 and "unnoticed" not in done.stdout


def _lines(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """Lines of a process as they come; None when there has been none for too long."""
    waiting: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            waiting.put(line)
        waiting.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = waiting.get(timeout=SILENCE)
        except queue.Empty:
            yield None
            return
        if line == "":
            return
        yield line


def run_method(name: str, method: str, count: int) -> Outcome:
    """All models in one pass; a process that dies is replaced by one that goes on behind the model it died of."""
    outcome = Outcome()
    first = 0
    while True:
        command = [sys.executable, str(HERE / "check.py"), "--worker", method, "--models", str(count)]
        model, tail, silent = "start", "", False
        with subprocess.Popen(
            [*command, "--first", str(first)], env=environment(name),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process:  # fmt: skip
            for line in _lines(process):
                if line is None:
                    silent = True
                    process.kill()
                    break
                try:
                    entry = json.loads(line)
                except ValueError:
                    tail = line.strip() or tail
                    continue
                model = entry["model"]
                if "begin" in entry:
                    first = entry["begin"] + 1
                    continue
                outcome.runs += len(entry["runs"]) + ("error" in entry)
                outcome.refused += entry["refused"]
                outcome.results[model] = entry["runs"]
                outcome.seconds[model] = entry["seconds"]
                if "error" in entry:
                    outcome.failures.append(f"{name}: {method} on {model}: {entry['error']}")
        if process.returncode == 0 and not silent:
            return outcome
        what = f"silent for {SILENCE:.0f} s" if silent else f"process ended with {process.returncode}"
        outcome.failures.append(f"{name}: {method} on {model}: {what} {tail}".rstrip())
        outcome.runs += 1
        if model == "start":
            return outcome


def conformance(name: str) -> Outcome:
    """The conformance tests under the checks of a pass."""
    options = ["-o", "addopts=", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line"]
    command = [sys.executable, "-m", "pytest", *options, "test_conformance.py"]
    done = subprocess.run(command, env=environment(name), cwd=HERE.parent, capture_output=True, text=True)
    found = {what: int(number) for number, what in re.findall(r"(\d+) (passed|skipped|failed|error)", done.stdout)}
    outcome = Outcome(found.get("passed", 0) + found.get("failed", 0), found.get("skipped", 0))
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode != 0 or outcome.runs == 0:
        outcome.failures = [f"{name}: conformance: {line}" for line in lines or [f"ended with {done.returncode}"]]
    return outcome


def differences(plain: Outcome, heap: Outcome, method: str) -> list[str]:
    return [
        f"plain and heap: {method} on {model}: results differ, something is read before it is written"
        for model, digests in plain.results.items()
        if model in heap.results and heap.results[model] != digests
    ]


def report(name: str, method: str, outcome: Outcome) -> None:
    slowest = max(outcome.seconds, key=outcome.seconds.__getitem__, default="")
    print(
        f"{name:<7} {method:<12} {outcome.runs:5} runs, {outcome.refused:5} refused, {len(outcome.failures):3} failures"
        + (f"; {outcome.seconds[slowest]:.0f} of {sum(outcome.seconds.values()):.0f} s: {slowest}" if slowest else ""),
        *outcome.failures, sep="\n  ", flush=True,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=48, help="random models, in addition to the fixed ones")
    parser.add_argument("--methods", default="", help="names with commas between them; all by default")
    parser.add_argument("--passes", default="bounds,heap,plain")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--skip-conformance", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.models, arguments.first)
        return 0

    from memory.models import FIXED
    from tightmap.registry import ENGINES, installed, usable_methods

    methods = arguments.methods.split(",") if arguments.methods else usable_methods()
    for name in ENGINES:
        if not installed(name):
            print(f"method {name} is left out: its program is not installed")
    passes = arguments.passes.split(",")
    if "heap" in passes and not has_heap_checker():
        print(f"no heap checker on this system ({HEAP_CHECKER}): that pass is left out")
        passes.remove("heap")
    outcomes: dict[tuple[str, str], Outcome] = {}
    with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        waiting = {pool.submit(run_method, name, m, arguments.models): (name, m) for m in methods for name in passes}
        if not arguments.skip_conformance:
            waiting |= {pool.submit(conformance, name): (name, "conformance") for name in passes if name != "plain"}
        for job in as_completed(waiting):
            name, method = waiting[job]
            outcome = outcomes[name, method] = job.result()
            pair = outcomes.get(("plain", method)), outcomes.get(("heap", method))
            if name != "bounds" and pair[0] and pair[1]:
                outcome.failures += differences(*pair, method)
            report(name, method, outcome)
    failures = sum(len(o.failures) for o in outcomes.values())
    print(
        f"{len(FIXED) + arguments.models} models, {len(methods)} methods, {len(passes)} passes: "
        f"{sum(o.runs for o in outcomes.values())} runs, {failures} failures"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
