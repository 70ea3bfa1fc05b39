"""The decorator of all kernels: one translation for compiled callers, full compilation for Python, kept on disk."""

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from numba import types
from numba.core.dispatcher import Dispatcher

import tightmap
from tightmap.runtime import keeping
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.linking import Compiled


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


CALLEE = "from tightmap.runtime.compiled import compiled\n@compiled\ndef inner(x): return x + {}\n"
CALLER = (
    "from package.callee import inner\nfrom tightmap.runtime.compiled import compiled\n"
    "@compiled\ndef outer(x): return 2 * inner(x)\n"
)
PROGRAM = """
import sys
from package.caller import outer
if len(sys.argv) > 1:  # an upgrade while the package is in use
    import pathlib
    pathlib.Path("package/callee.py").write_text(sys.argv[1])
print(outer(3), sum(outer.entry.stats.cache_hits.values()))
"""


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """A package of two files, one of which calls a kernel of the other, with that kernel on disk."""
    folder = tmp_path_factory.mktemp("once") / "package"
    folder.mkdir()
    (folder / "callee.py").write_text(CALLEE.format(1))
    (folder / "caller.py").write_text(CALLER)
    assert run(folder) == "8 0", "nothing was on disk"
    return folder


@pytest.fixture
def package(compiled_once, tmp_path):
    return shutil.copytree(compiled_once, tmp_path / "package")


@pytest.fixture
def new_package(package):
    """The same before anything is compiled."""
    shutil.rmtree(package / "__pycache__")
    return package


def run(folder, *arguments, path=None):
    """Result of outer(3) in a process of its own, and how many kernels came from disk."""
    # byte code is not kept: what Python itself makes of files of the same size and time is not the question here
    command = [sys.executable, "-B", "-c", PROGRAM, *arguments]
    places = os.pathsep.join(filter(None, [str(path or folder.parent), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": places}
    done = subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_kept_on_disk_until_a_callee_changes(package):
    assert run(package) == "8 1"
    (package / "callee.py").write_text(CALLEE.format(100))
    assert run(package) == "206 0"


KERNELS = """
import numpy as np
from tightmap.runtime.compiled import compiled
@compiled
def squares(n): return np.arange(n) ** 2
@compiled
def hashed(text): return hash(text)
@compiled
def roots(n): return np.sqrt(np.arange(n))
"""
LOADING = """
import sys
from package.kernels import hashed, roots, squares
print(squares(4).sum(), sum(squares.entry.stats.cache_hits.values()), "numba.np.arraymath" in sys.modules, end=" ")
print(hashed("what is hashed") == hash("what is hashed"), sum(hashed.entry.stats.cache_hits.values()), end=" ")
if sys.argv[1] == "all":
    print(roots(5)[4])
"""


def test_what_is_found_on_disk_needs_no_compiler(tmp_path):
    """All that Numba can translate, and SciPy, are imported only where something is compiled: that is 45 MiB."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "kernels.py").write_text(KERNELS)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    found = []
    for what in ("some", "some", "all"):  # the last one compiles a kernel after it has loaded others
        command = [sys.executable, "-B", "-c", LOADING, what]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.strip())
    assert found == ["14 0 True True 0", "14 1 False True 1", "14 1 False True 1 2.0"]


def test_other_content_of_the_same_size_and_time_compiles_again(package):
    file = package / "callee.py"
    before = file.stat()
    file.write_text(CALLEE.format(2))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert run(package) == "10 0"


def test_files_changed_after_import_store_nothing_for_the_new_version(new_package):
    """An upgrade under an open notebook: what the old process compiles must not be taken by the new version."""
    assert run(new_package, CALLEE.format(100)) == "8 0", "the process still runs what it imported"
    assert run(new_package) == "206 0", "the new version compiles its own"
    (new_package / "callee.py").write_text(CALLEE.format(1))
    assert run(new_package) == "8 0"


def test_a_package_in_an_archive(new_package):
    """From a zip file, with other content under the same times: never kernels of the other archive."""
    archive = new_package.parent / "packed.zip"
    for number, expected in ((1, "8"), (1, "8"), (50, "106")):
        with zipfile.ZipFile(archive, "w") as packed:
            for name, text in (("__init__.py", ""), ("callee.py", CALLEE.format(number)), ("caller.py", CALLER)):
                packed.writestr(zipfile.ZipInfo(f"package/{name}", (2020, 1, 1, 0, 0, 0)), text)
        os.utime(archive, (1.6e9, 1.6e9))
        hidden = new_package.with_name("elsewhere")
        if new_package.exists():
            new_package.rename(hidden)  # the current folder comes first on the path
        assert run(new_package, path=archive).split()[0] == expected


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_torn_files_are_compiled_again(package, suffix, damage):
    files = list(package.rglob(f"*.{suffix}"))
    assert files
    for file in files:
        content = file.read_bytes()
        noise = bytes(b ^ 0x55 for b in content)
        file.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "noise": noise}[damage])
    assert run(package) == "8 0"
    assert run(package) == "8 1", "and written anew"


def test_outdated_code_does_not_pile_up(package):
    for number in range(3):
        (package / "callee.py").write_text(CALLEE.format(number))
        run(package)
    assert len(list(package.rglob("caller.outer*.nbc"))) == 1


def test_a_full_disk_does_not_lose_the_result(monkeypatch):
    @compiled
    def thrice(x):
        return 3 * x

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tightmap.runtime.keeping._CheckedFiles._open_for_write", fail)
    assert thrice(4) == 12


def test_without_a_place_on_disk_it_still_works(monkeypatch):
    def refuse(*_):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("tightmap.runtime.keeping._OwnCache.__init__", refuse)

    @compiled
    def twice(x):
        return 2 * x

    with pytest.raises(RuntimeError):
        keeping._OwnCache(None, None, "")
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
