"""Shared functions: machine code that exists once, on disk and in memory, whichever kernels call it."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tightmap import Model
from tightmap.runtime.compiled import INTERPRETED, _wanted_plain, compiled, shared

if INTERPRETED or _wanted_plain:
    pytest.skip("kernels are compiled by another way, or not at all", allow_module_level=True)
from numba import types

from tightmap.runtime.sharing import FORM

LARGE = """
from numba import types
from tightmap.runtime.compiled import shared

def floats(x, *_):
    return isinstance(x, types.Float)

@shared(floats)
def large(x, k):
    return {} * x + k
"""
KERNEL = """
from package.large import large
from tightmap.runtime.compiled import compiled, lean

@lean
def between(x):  # whoever calls it has to ask for what it calls
    return large(x, 1)

@compiled
def {0}(x):
    return between(x) {1}
"""
PROGRAM = """
import sys
from package.one import one
from package.two import two
from package.large import large
print(one(3.0), two(3.0), sum(sum(k.entry.stats.cache_hits.values()) for k in (one, two)), end=" ")
print(len(large._compiler._provided))
"""


def run(folder, program=PROGRAM):
    path = os.pathsep.join(filter(None, [str(folder.parent), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-B", "-c", program]
    done = subprocess.run(
        command, cwd=folder.parent, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared") / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "large.py").write_text(LARGE.format(2))
    (folder / "one.py").write_text(KERNEL.format("one", "+ 0"))
    (folder / "two.py").write_text(KERNEL.format("two", "* 10"))
    assert run(folder) == "7.0 70.0 0 1"
    return folder


@pytest.fixture
def package(compiled_once, tmp_path):
    return shutil.copytree(compiled_once, tmp_path / "package")


def test_it_is_kept_once_and_found_again(package):
    assert len(list(package.rglob(f"*{FORM}*.nbc"))) == 1
    assert run(package) == "7.0 70.0 2 1", "both kernels and what they call come from disk"


def test_kernels_on_disk_get_it_back_when_it_is_lost(package):
    """Whichever process compiles it: its name is the one that they call."""
    for file in package.rglob(f"*{FORM}*"):
        file.unlink()
    assert run(package) == "7.0 70.0 2 1"
    assert len(list(package.rglob(f"*{FORM}*.nbc"))) == 1
    assert run(package) == "7.0 70.0 2 1"


@pytest.mark.parametrize("damage", [b"", b"noise"])
def test_torn_files_are_compiled_again(package, damage):
    for file in package.rglob(f"*{FORM}*"):
        file.write_bytes(damage)
    assert run(package) == "7.0 70.0 2 1"


def test_another_function_leaves_no_kernel_that_calls_the_old_one(package):
    (package / "large.py").write_text(LARGE.format(5))
    assert run(package) == "16.0 160.0 0 1"


def test_a_kernel_that_calls_another_name_is_compiled_again(package):
    """A name that is not there would end the process when the kernel is loaded."""
    other_digest = PROGRAM.replace(
        "from package.one", "from tightmap.runtime import sharing\nsharing.repr = lambda stamp: 'x'\nfrom package.one"
    )
    for file in package.rglob(f"*{FORM}*"):
        file.unlink()
    assert run(package, other_digest) == "7.0 70.0 0 1"


def test_elsewhere_it_is_linked_like_any_other_function():
    @shared(lambda x: isinstance(x, types.Float))
    def half(x):
        return x / 2

    @compiled
    def both(x, k):
        return half(x) + half(k)

    assert both(3.0, 4) == 3.5
    assert [args for args in half._compiler._provided] == [(types.float64,)]
    assert half(5.0) == 2.5, "Python calls it as well"


NESTED = """
import numpy as np
from package.large import large
from tightmap.runtime.compiled import compiled, shared

@shared(allocates=True)
def total(n):
    table = np.empty(n)
    for k in range(n):
        table[k] = large(1.0, k)
    if n > 100:
        raise ValueError("too many")
    return table.sum()

@compiled
def kernel(n):
    return total(n) + large(0.5, 0)
"""
NESTED_PROGRAM = """
from package.large import large
from package.nested import kernel, total
print(kernel(3), sum(kernel.entry.stats.cache_hits.values()), len(large._compiler._provided), end=" ")
print(len(total._compiler._provided), end=" ")
try:
    kernel(101)
except ValueError as error:
    print(error)
"""


def test_a_shared_function_may_allocate_raise_and_call_another_one(package):
    (package / "nested.py").write_text(NESTED)
    assert run(package, NESTED_PROGRAM) == "10.0 0 1 1 too many"
    assert run(package, NESTED_PROGRAM) == "10.0 1 1 1 too many", "all three come from disk"
    for file in package.rglob(f"large*{FORM}*"):
        file.unlink()
    assert run(package, NESTED_PROGRAM) == "10.0 1 1 1 too many", "and what is lost is compiled again"


def test_operations_on_factors_of_every_kind_are_shared_and_those_on_pairs_are_not():
    from tightmap.energy.energies import smallest_entries
    from tightmap.factors.kernels import minmarg

    rng = np.random.default_rng(0)
    general = Model([2, 3, 2])
    table = rng.random((2, 3, 2))
    general.add_factors([[0, 1, 2]], table)
    assert smallest_entries(general.graph()).tolist() == [table.min()]
    provided = set(minmarg._compiler._provided)
    assert len(provided) == 1
    pairs = Model([2, 3])
    pairs.add_factors([[0, 1]], table[:, :, 0])
    assert smallest_entries(pairs.graph()).tolist() == [table[:, :, 0].min()]
    assert set(minmarg._compiler._provided) == provided
