"""Index checks in kernels: that they see what they are for, and that the kernels most at risk pass them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory import check

CAUGHT = {
    "beyond the end": "element(x, 8)",
    "computed and negative": "element(x, -1 + zero)",
    "in a function without reference counts": "lean_element(x, 8)",
    "in another thread": "spread(x, 8)",
    "behind a pointer": "behind_pointer(x, 8)",
    "in front of a pointer": "behind_pointer(x, -1)",
    "written behind a pointer": "write_behind_pointer(x, 8)",
    "lanes beyond the end": "lanes(x, 1)",
    "lanes before the beginning": "lanes(x, -1)",
    "lanes written": "write_lanes(x, 1)",
    "converted lanes": "converted(x, whole, 1)",
}
FINE = {
    "inside": "element(x, 7)",
    "the last one, literally": "last(x)",
    "all lanes": "lanes(x, 0)",
    "prefetched from outside": "ask(x, 1000)",
}
PROGRAM = """
import sys
import numpy as np
from numba import prange
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.simd import get, lane_sum, load, load_as, pointer, prefetch, put, splat, store

@compiled
def element(x, i): return x[i]
@lean
def _inner(x, i): return x[i]
@compiled
def lean_element(x, i): return _inner(x, i)
@compiled(parallel=True)
def spread(x, count):
    for i in prange(count + 1):
        x[i] = 1.0
@compiled
def behind_pointer(x, i): return get(pointer(x), i)
@compiled
def write_behind_pointer(x, i): put(pointer(x), i, 1.0)
@compiled
def lanes(x, i): return lane_sum(load(x, i))
@compiled
def write_lanes(x, i): store(x, i, splat(1.0))
@compiled
def converted(x, whole, i): return lane_sum(load_as(whole, i, x))
@compiled
def ask(x, i): prefetch(x, i)
@compiled
def last(x): return x[-1]

x, whole, zero = np.zeros(8), np.zeros(8, np.uint16), int(sys.argv[1])
for call in sys.argv[2:]:
    try:
        eval(call)
        print("fine")
    except IndexError as error:
        print("caught" if "__main__" in str(error) else error)
"""


def checked(*command: str) -> str:
    """Standard output of a program whose kernels have index checks."""
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = check.environment("bounds") | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    return done.stdout


def test_every_way_out_of_an_array_is_noticed():
    said = checked("-c", PROGRAM, "0", *CAUGHT.values(), *FINE.values()).split("\n")
    found = dict(zip([*CAUGHT, *FINE], said, strict=False))
    assert found == dict.fromkeys(CAUGHT, "caught") | dict.fromkeys(FINE, "fine")


def test_kernels_most_at_risk_stay_inside_their_arrays():
    """Expansion, TRW-S and ADMM on grids with gaps, with uneven label counts, of sizes around the lanes of a vector."""
    assert checked(str(Path(check.__file__).parent / "short.py")).split() == ["97", "runs"]


def test_a_run_that_ends_badly_is_a_failure(monkeypatch):
    """Exceptions and the death of a process are both counted, and the models after them are still run."""
    seen = []

    def popen(command, **_):
        seen.append(int(command[command.index("--first") + 1]))
        lines = ['print(\'{"begin": 0, "model": "a"}\')', "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
        if len(seen) > 1:
            lines = ['print(\'{"begin": 1, "model": "b"}\')']
            lines += ['print(\'{"end": 1, "model": "b", "seconds": 0, "runs": [], "refused": 0, "error": "E"}\')']
        return subprocess_popen([sys.executable, "-u", "-c", "\n".join(lines)], stdout=subprocess.PIPE, text=True)

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(check.subprocess, "Popen", popen)
    outcome = check.run_method("plain", "trws", 2)
    assert seen == [0, 1]
    assert [f.split(":")[1].strip() for f in outcome.failures] == ["trws on a", "trws on b"]
    assert outcome.runs == 2


def test_different_results_are_a_failure():
    one, two = check.Outcome(results={"a": ["x"], "b": ["y"]}), check.Outcome(results={"a": ["x"], "b": ["z"]})
    assert check.differences(one, one, "trws") == []
    assert len(check.differences(one, two, "trws")) == 1


def test_the_heap_checker_sees_one_byte():
    if not check.has_heap_checker():
        pytest.skip(f"{check.HEAP_CHECKER} is not there")
    program = "import ctypes as c; p = c.create_string_buffer(4000); c.memset(p, 0, 4000); del p; print('unharmed')"
    done = subprocess.run(
        [sys.executable, "-c", program], env=check.environment("heap"), capture_output=True, text=True
    )
    assert done.stdout == "unharmed\n", "and nothing where nothing is wrong"


def test_arrays_behind_pointers_live_as_long_as_the_pointers():
    """A kernel's own array is freed after its last mention: what a pointer is taken of has to be kept to the end.

    In the message passing of trws one was not: with two threads, or more labels than fit into a heap block, sums were
    written to memory that belonged to others.
    """
    import ast

    import tightmap

    for path in Path(tightmap.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            made, pointed, kept = set(), set(), set()
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and "np." in ast.unparse(node.value):
                    names = [n for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
                    made |= {name.id for name in names}
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                    if node.func.id == "pointer":
                        pointed.add(ast.unparse(node.args[0]))
                    elif node.func.id == "keep":
                        kept.add(ast.unparse(node.args[0]))
            assert pointed & made <= kept, f"{path.name}, {function.name}: {pointed & made - kept}"


def test_message_passing_over_many_labels_under_the_heap_checker():
    """Large blocks go back to the system when they are freed: who still writes there dies."""
    if not check.has_heap_checker():
        pytest.skip(f"{check.HEAP_CHECKER} is not there")
    program = (
        "from memory.models import FIXED; import tightmap as tm; "
        "print(tm.solve(FIXED['more than 32767 labels'](), 'trws', max_iterations=2, threads=2).status.name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=check.environment("heap"), cwd=Path(__file__).parent, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.stdout.strip() in ("OPTIMAL", "CONVERGED", "ITERATION_LIMIT"), done.stderr[-500:]
