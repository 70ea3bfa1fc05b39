"""The two ways out of our own compilation: Numba's plain decorator, and plain Python.  Both solve models as ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tightmap as tm
from tightmap.graphcut import maxflow, moves, network, pairwise
from tightmap.registry import usable_methods
from tightmap.runtime import lanes, simd
from tightmap.runtime.compiled import compiled
from tightmap.testing.models import grid_model, random_model

HERE = Path(__file__).parent


def python(*arguments, cwd=HERE, **environment):
    """Standard output of a process of its own."""
    places = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": places} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def results(*methods):
    """What methods make of two small models, as something that can be written down."""
    grid = grid_model(np.random.default_rng(1), 5, 6, 3, "linear", integral=False)
    pairs = random_model(np.random.default_rng(3), n=7, labels=4, factors=9, order=2, tidy=True)
    out = {}
    for method in methods:
        for name, model in (("grid", grid), ("pairs", pairs)):
            result = tm.solve(model, method, max_iterations=40, threads=1)
            out[f"{method} {name}"] = [result.labels.tolist(), result.energy, result.lower_bound, str(result.status)]
    return out


SOLVE = "import json, sys, test_plain; print(json.dumps(test_plain.results(*sys.argv[1:])))"


def same(there, here):
    assert there.keys() == here.keys()
    for name, (labels, energy, bound, status) in here.items():
        assert there[name][0] == labels and there[name][3] == status, name
        assert there[name][1:3] == pytest.approx([energy, bound], rel=1e-9, abs=1e-9), name


def test_plain_python_gives_the_same_results():
    methods = ("bcd", "trws")
    same(json.loads(python("-c", SOLVE, *methods, NUMBA_DISABLE_JIT="1")), results(*methods))


def test_plain_python_keeps_the_promises():
    """All methods, as far as that is quick: `make coverage` runs the whole product."""
    chosen = "different or tree or without or (inf and not 2)"  # methods have digits in their names too
    options = ("-p", "no:xdist", "-p", "no:cacheprovider")
    said = python("-m", "pytest", *options, "test_conformance.py", "-k", chosen, NUMBA_DISABLE_JIT="1")
    expected = sum(
        3 if "2" in name else 5 for name in usable_methods()
    )  # two of the five are deselected by such a name
    assert f"{expected} passed" in said


def test_plain_numba_gives_the_same_results():
    kinds = "from tightmap.moves import coordinate_descent as c; print(type(c.descend).__module__)"
    assert python("-c", kinds, TIGHTMAP_PLAIN_NUMBA="1").strip().startswith("numba.")
    methods = ("bcd", "trws")
    same(json.loads(python("-W", "error", "-c", SOLVE, *methods, TIGHTMAP_PLAIN_NUMBA="1")), results(*methods))


FALLBACK = """
import json, warnings
import numpy as np
import {module} as module
kept = module.{name}
{change}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from tightmap.runtime.compiled import compiled, lean
module.{name} = kept  # Numba itself needs it

@lean
def square(x): return x * x

@compiled
def norm(v):
    total = 0.0
    for x in v:
        total += square(x)
    return total

assert norm(np.array([3.0, 4.0])) == 25.0
assert norm.entry is norm and norm.py_func([1.0]) == 1.0
{more}
print(json.dumps([(w.category.__name__, str(w.message)) for w in seen]))
"""
OTHER = {  # module and name of what another version of Numba might not have, and how it looks there
    "name": ("numba.core.dispatcher", "_FunctionCompiler", "del module._FunctionCompiler"),
    "parameter": ("numba.core.compiler", "compile_extra", "module.compile_extra = lambda context, function: None"),
    "method": ("numba.core.codegen", "JITCodeLibrary", "module.JITCodeLibrary = type('JITCodeLibrary', (), {})"),
}


def other_internals(what, more=""):
    module, name, change = OTHER[what]
    return python("-c", FALLBACK.format(module=module, name=name, change=change, more=more)).splitlines()


@pytest.mark.parametrize("what", OTHER)
def test_other_internals_of_numba_lead_to_plain_numba_with_one_warning(what):
    said = json.loads(other_internals(what)[0])
    assert [kind for kind, _ in said] == ["RuntimeWarning"]
    assert "internals of Numba" in said[0][1] and "TIGHTMAP_PLAIN_NUMBA" in said[0][1]


def test_other_internals_of_numba_still_solve():
    more = "import test_plain; print(json.dumps(test_plain.results('bcd')))"
    said = other_internals("name", more)
    same(json.loads(said[0]), results("bcd"))
    assert len(json.loads(said[1])) == 1


def test_machine_code_of_plain_numba_belongs_to_one_version_of_the_package(tmp_path):
    """Numba itself looks at the file of a kernel only, and would use code that calls functions long gone."""
    program = "from tightmap.runtime import plain; print(plain._folder())"
    first, again = (python("-c", program, NUMBA_CACHE_DIR=str(tmp_path)).strip() for _ in range(2))
    assert first == again and Path(first).parent == tmp_path and Path(first).is_dir()
    changed = "from pathlib import Path; read = Path.read_bytes\n"
    changed += "Path.read_bytes = lambda p: read(p) + (b'#' if p.name == 'potts.py' else b'')\n" + program
    assert python("-c", changed, NUMBA_CACHE_DIR=str(tmp_path)).strip() != first


# ---------------------------------------------------------------------------- Python twins of what only Numba knows


@compiled
def _use_lanes(a, b, narrow, small, out):
    """Every instruction once, one result after the other into out."""
    x, y = simd.load(a, 1), simd.load(simd.pointer(b), 2)
    simd.prefetch(a, 0)
    simd.keep(b)
    simd.store(out, 0, x + y)
    simd.store(out, 8, x - y)
    simd.store(out, 16, x * y)
    simd.store(out, 24, x / y)
    simd.store(out, 32, simd.minimum(x, y))
    simd.store(out, 40, simd.maximum(x, y))
    simd.store(out, 48, simd.choose_less(x, y, y, x + x))
    simd.store(out, 56, simd.absolute(x))
    simd.store(out, 64, simd.shift_up(x, a[0]))
    simd.store(out, 72, simd.shift_down(x, a[0]))
    simd.store(out, 80, simd.replace_last(x, a[0]))
    simd.store(out, 88, simd.load_as(small, 1, a))
    simd.store(out, 96, simd.cast(simd.load(narrow, 0), a))
    simd.store(out, 104, simd.splat(simd.get(b, 3)))
    simd.put(out, 112, simd.lane(x, 3))
    simd.put(out, 113, simd.lane_sum(x))
    simd.put(out, 114, simd.lane_min(x))
    simd.put(out, 115, float(simd.less_mask(x, y)))


def test_lanes_are_what_simd_does(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=10), rng.normal(size=10)
    narrow, small = rng.normal(size=8).astype(np.float32), rng.integers(0, 255, 9).astype(np.uint8)
    fast, slow = np.zeros(116), np.zeros(116)
    _use_lanes(a, b, narrow, small, fast)
    used = [name for name in vars(lanes) if callable(vars(lanes)[name]) and name[0] not in "_AV"]
    assert set(used) <= set(_use_lanes.py_func.__code__.co_names), "every instruction is compared"
    for name in used:
        monkeypatch.setattr(simd, name, getattr(lanes, name))
    _use_lanes.py_func(a, b, narrow, small, slow)
    assert (fast == slow).all()


@pytest.mark.parametrize("index", [-1, 3])
def test_lanes_outside_an_array_are_noticed(index):
    for read in (lanes.load, lambda ary, k: lanes.store(ary, k, lanes.splat(1.0))):
        with pytest.raises(IndexError):
            read(np.zeros(10), index)
    with pytest.raises(IndexError):
        lanes.get(np.zeros(3), index)


@compiled
def _walk(net, p, k):
    return (
        network.degree(net, p), network.arc(net, p, k), network.head(net, p, k), network.sister(net, p, k),
        network.back(net, p, k), network.edge(net, p, k),
    )  # fmt: skip


def test_networks_are_the_same_in_python():
    csr, _ = network.csr_from_edges(4, np.array([0, 0, 1, 2]), np.array([1, 2, 2, 3]))
    grid = network.Grid(np.array([1, -1, 5, -5]), 4)
    for net, p, slots in ((csr, 2, 3), (grid, 6, 4)):
        for k in range(slots):
            for node in (p, np.uint64(p)):
                for slot in (k, np.int8(k)):
                    got = _walk.py_func(net, node, slot)
                    assert [int(v) for v in _walk(net, node, slot)] == [int(v) for v in got]
                    assert all(isinstance(v, int) for v in got), "NumPy would make floats of uint64 and int8"


@compiled
def _numbers(cost, like):
    return moves.half(cost), pairwise.type_like(7, like)


@pytest.mark.parametrize("number", [np.int32(-5), np.int64(9), np.float64(2.5)])
def test_numbers_of_costs_are_the_same_in_python(number):
    assert _numbers(number, number) == _numbers.py_func(number, number)


def test_capacities_of_moves_are_computed_lazily_in_python_too():
    """``pending`` and ``touch`` are chosen by type, in plain Python as in compiled code."""
    empty = np.zeros(1)
    move = moves.Move(None, *[empty] * 7, np.array([3, 4]), *[empty] * 2, np.array([0, 4, 0, 0, 0]))
    assert maxflow.pending(move, 0) and not maxflow.pending(move, 1)
    assert not maxflow.pending(None, 0) and maxflow.touch(None, None, None, 0) is None
    assert maxflow.touch.dispatch(moves.Move) is not maxflow.touch.dispatch(type(None))
