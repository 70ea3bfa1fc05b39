"""The decorator of all kernels: one translation for compiled callers, full compilation for Python, kept on disk."""

import importlib
import pkgutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numba import types
from numba.core.dispatcher import Dispatcher

import tightmap
import tightmap.compiled
from tightmap.compiled import Compiled, compiled, lean


@lean
def _square(x, power):
    return x**power


@compiled
def _sum_of_squares(values, narrow, wide):
    total = 0.0
    for v in values:
        total += _square(v, narrow) + _square(v, wide) + _square(v, 2)
    return total


@compiled
def _buffer(n):
    out = np.zeros(n)
    for i in range(n):
        out[i] = i
    return out


@compiled
def _fill_and_sum(n):
    return _buffer(n).sum()


@compiled
def _fail(x):
    if x < 0:
        raise ValueError("negative")
    return x


@compiled
def _calls_fail(x):
    return _fail(x) + 1


def test_integers_of_all_widths_and_literals_share_one_translation():
    assert _sum_of_squares(np.array([1.0, 2.0]), np.int8(2), np.int64(2)) == 15.0
    for power in (types.int8, types.int32, types.int64, types.literal(2)):
        _square.get_call_template((types.float64, power), {})
    assert len(_square.overloads) == 1
    assert not _square.entry.overloads, "nothing but compiled code called it"


def test_the_same_function_from_python_and_from_compiled_code():
    assert _buffer(4).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert _fill_and_sum(4) == 6.0


def test_division_by_zero_is_infinite():
    @compiled
    def divide(a, b):
        return a / b

    assert divide(1.0, 0.0) == np.inf


def test_errors_inside_callees_reach_python():
    assert _calls_fail(1) == 2
    with pytest.raises(ValueError, match="negative"):
        _calls_fail(-1)


def test_a_lean_function_must_not_allocate():
    @lean
    def wasteful(n):
        return np.zeros(n).sum()

    with pytest.raises(Exception, match=r"NRT|array passed"):
        wasteful(3)


def test_kept_on_disk_until_a_source_file_changes(tmp_path):
    """Two processes compile once; a change of any file of the package, even of another one, compiles again."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "callee.py").write_text(
        "from tightmap.compiled import compiled\n@compiled\ndef inner(x): return x + 1\n"
    )
    (package / "caller.py").write_text(
        "from package.callee import inner\nfrom tightmap.compiled import compiled\n"
        "@compiled\ndef outer(x): return 2 * inner(x)\n"
    )
    program = textwrap.dedent(
        """
        import pathlib, sys
        import tightmap.compiled as c
        root = pathlib.Path("package")
        files = sorted(root.glob("*.py"))
        c._package_stamp = lambda: tuple((p.name, p.stat().st_mtime_ns, p.stat().st_size) for p in files)
        from package.caller import outer
        print(outer(int(sys.argv[1])), sum(outer.entry.stats.cache_hits.values()))
        """
    )

    def run() -> str:
        command = [sys.executable, "-c", program, "3"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert run() == "8 0"
    assert run() == "8 1"
    (package / "callee.py").write_text(
        "from tightmap.compiled import compiled\n@compiled\ndef inner(x): return x + 100\n"
    )
    assert run() == "206 0"


def test_without_a_place_on_disk_it_still_works(monkeypatch):
    def refuse(*_):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("tightmap.compiled._PackageCache.__init__", refuse)

    @compiled
    def twice(x):
        return 2 * x

    with pytest.raises(RuntimeError):
        tightmap.compiled._PackageCache(None)
    assert twice(4) == 8


def test_every_kernel_of_the_package_is_compiled_this_way():
    names = [m.name for m in pkgutil.walk_packages(tightmap.__path__, "tightmap.") if not m.name.endswith("__main__")]
    kernels = {
        f"{name}.{key}": value
        for name in names
        for key, value in vars(importlib.import_module(name)).items()
        if isinstance(value, Dispatcher)
    }
    assert len(kernels) > 200
    assert [name for name, value in kernels.items() if not isinstance(value, Compiled)] == []
