"""Kernels that come with a package: used when they are for this Numba, this processor and these sources, else left."""

import json
import os
import shutil
import subprocess
import sys

import numba
import pytest

from tightmap.runtime import shipped

CALLEE = "from tightmap.runtime.compiled import compiled\n@compiled\ndef inner(x): return x + {}\n"
CALLER = (
    "from package.deep.callee import inner\nfrom tightmap.runtime.compiled import compiled\n"
    "@compiled\ndef outer(x): return 2 * inner(x)\n"
    "@compiled\ndef other(x): return 3 * inner(x)\n"
)
PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from package.caller import outer, other
from package.deep.callee import inner
{}
results = outer(3), other(3), inner(3)
print(*results, sum(sum(k.entry.stats.cache_hits.values()) for k in (outer, other, inner)))
"""
PORTABLE = ("generic", ())  # LLVM's name of the plainest processor of every kind


def run(package, cache, more="", **settings):
    """What the program says, line by line: last the results, and how many of the three kernels came from disk."""
    places = os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": places, "TIGHTMAP_NATIVE": "0"} | settings
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM.format(more)],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A package whose kernels were compiled for a processor of every machine, and packed."""
    package = tmp_path_factory.mktemp("built") / "package"
    (package / "deep").mkdir(parents=True)
    (package / "deep" / "callee.py").write_text(CALLEE.format(1))
    (package / "caller.py").write_text(CALLER)
    assert run(package, None, **shipped.settings(*PORTABLE))[-1] == "8 12 4 0"
    files = shipped.pack(package, *PORTABLE)
    assert sorted(file.suffix for file in files) == [".nbc"] * 3 + [".nbi"] * 3
    assert not list(package.rglob("__pycache__/*.nb?"))
    return package


@pytest.fixture
def package(built, tmp_path):
    """A copy of it in another place: an installation."""
    return shutil.copytree(built, tmp_path / "installed" / "package")


@pytest.fixture
def cache(tmp_path):
    """A place for machine code that is still empty."""
    return tmp_path / "cache"


def kept(cache):
    return len(list(cache.rglob("*.nbc")))


def change_list(package, **values):
    file = package / "kernels" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_used_with_an_empty_cache(package, cache):
    assert run(package, cache) == ["8 12 4 3"], "nothing is compiled, nothing is said"
    assert kept(cache) == 0


def test_used_where_nothing_can_be_written(package, cache):
    refuse = (
        "from tightmap.runtime import keeping\ndef refuse(*_): raise RuntimeError\nkeeping._OwnCache.__init__ = refuse"
    )
    assert run(package, cache, refuse)[-1] == "8 12 4 3"


def test_other_sources_are_compiled_and_kept_as_ever(package, cache):
    (package / "deep" / "callee.py").write_text(CALLEE.format(100))
    assert run(package, cache)[-1] == "206 309 103 0"
    assert run(package, cache)[-1] == "206 309 103 3", "from the user's cache"


def test_another_numba_compiles_and_says_so_once(package, cache):
    change_list(package, Numba="0.1")
    said = run(package, cache)
    assert said[-1] == "8 12 4 0"
    reason = f"are for Numba 0.1, not {numba.__version__}: they are compiled when first used"
    assert [line for line in said if "Numba 0.1" in line] == [f"the kernels that came with package {reason}"]


def test_damaged_and_foreign_files_are_left_alone(package, cache):
    """One kernel cut short, one replaced by another that is whole, the index of the third not the one of the list."""
    folder = package / "kernels"
    (outer,), (other,) = folder.glob("caller.outer*.nbc"), folder.glob("caller.other*.nbc")
    (inner,) = folder.glob("deep/callee.inner*.nbi")
    whole = outer.read_bytes()
    outer.write_bytes(whole[: len(whole) // 2])
    other.write_bytes(whole)
    inner.write_bytes(inner.read_bytes() + b"x")
    assert run(package, cache)[-1] == "8 12 4 0"
    assert run(package, cache)[-1] == "8 12 4 3", "from the user's cache, where they have been written"
    assert outer.read_bytes() != whole, "the package is not written to"


def test_native_code_is_compiled_when_asked_for(package, cache):
    assert run(package, cache, TIGHTMAP_NATIVE="1")[-1] == "8 12 4 0"
    assert kept(cache) == 3


# ------------------------------------------------------------------------------------------ when they may run here


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an imported package with a list of kernels that fits."""

    class Imported:
        __path__ = (str(tmp_path),)

    monkeypatch.setitem(sys.modules, "with_kernels", Imported)
    monkeypatch.setattr(shipped, "_host_features", lambda: {"avx": True, "avx2": True, "amx": False})
    monkeypatch.delenv("TIGHTMAP_NATIVE", raising=False)
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    shipped.shipped.cache_clear()
    shipped.pack(tmp_path, "some-cpu", ("avx", "avx2"))
    yield tmp_path
    shipped.shipped.cache_clear()


def test_they_fit(folder):
    found = shipped.shipped("with_kernels")
    assert found is not None and (found.cpu, found.features) == ("some-cpu", "+avx,+avx2")
    assert shipped.shipped("without_kernels") is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"Numba": "0.1"}, "are for Numba 0.1, not"),
        ({"Python": "cpython 2.7"}, "are for Python cpython 2.7"),
        ({"platform": "plan9-vax"}, "are for platform plan9-vax"),
        ({"features": ["avx", "amx"]}, "need a processor with amx:"),
        ({"features": ["avx", "unheard-of"]}, "need a processor with unheard-of:"),
        ({"files": 3}, "cannot be read"),
    ],
)
def test_refused_with_the_reason(folder, caplog, values, reason):
    file = folder / "kernels" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    with caplog.at_level("INFO", logger="tightmap"):
        assert shipped.shipped("with_kernels") is None
        assert shipped.shipped("with_kernels") is None
    assert len(caplog.messages) == 1 and reason in caplog.messages[0]


def test_a_torn_list_is_no_list(folder, caplog):
    file = folder / "kernels" / "manifest.json"
    file.write_text(file.read_text()[:20])
    assert shipped.shipped("with_kernels") is None


def test_not_for_those_who_name_another_processor(folder, monkeypatch):
    monkeypatch.setattr(numba.config, "CPU_NAME", "generic")
    assert shipped.shipped("with_kernels") is None


def test_only_listed_files_with_the_listed_content_are_read(folder):
    kernels = folder / "kernels"
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.nbc").write_bytes(b"code")
    shipped.pack(folder, "some-cpu", ())
    (kernels / "b.nbc").write_bytes(b"foreign")
    found = shipped.shipped("with_kernels")
    assert found is not None and found.read("a.nbc") == b"code" and found.read("b.nbc") is None
    (kernels / "a.nbc").write_bytes(b"c0de")
    assert found.read("a.nbc") is None
