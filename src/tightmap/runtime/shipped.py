"""Kernels that came with the package: machine code that was compiled when its wheel was built.

A wheel for one platform has a folder ``kernels`` beside its modules, with the files that a cache on disk would have and
a list of them, ``manifest.json``.  They are for one version of Numba and of Python, and for a processor that is named
with all its features.  Where one of these is not what runs here, nothing is taken from the folder, which is said once;
the kernels are then compiled on first use, as they are from a source distribution.  Of the files only those count
whose content is what the list says.

``TIGHTMAP_NATIVE=1``  leaves them aside: kernels are compiled for the very processor that they run on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba

from tightmap.runtime.clock import announce

FOLDER, LIST = "kernels", "manifest.json"
_config: Any = numba.config


@dataclass(frozen=True)
class Shipped:
    """The folder of a package whose kernels may run here."""

    package: Path
    cpu: str
    features: str  # as Numba writes them: +avx,+avx2
    digests: dict[str, str]

    def place(self, source: str) -> str | None:
        """Where in the folder the kernels of a source file are; None for a file that is not in the package."""
        try:
            return Path(source).parent.relative_to(self.package).as_posix()
        except ValueError:
            return None

    def read(self, name: str) -> bytes | None:
        """The content of a file, if it is the one that was packed."""
        expected = self.digests.get(name)
        if expected is None:
            return None
        try:
            content = (self.package / FOLDER / name).read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == expected else None


@cache
def shipped(package: str) -> Shipped | None:
    """The kernels that came with an imported package; None where there are none, or none that may run here."""
    if os.environ.get("TIGHTMAP_NATIVE", "0") not in ("", "0"):
        return None
    for place in dict.fromkeys(getattr(sys.modules.get(package), "__path__", ())):
        found = Path(place) / FOLDER / LIST
        try:
            content = json.loads(found.read_text(encoding="utf-8"))
            reason = _misfit(content)
            kernels = Shipped(Path(place), content["cpu"], _written(content["features"]), dict(content["files"]))
        except OSError:  # no such file: installed from source
            continue
        except (ValueError, KeyError, TypeError, AttributeError):
            reason = "cannot be read"
        if reason is None:
            return kernels
        announce(f"the kernels that came with {package} {reason}: they are compiled when first used")
    return None


def _misfit(content: dict[str, Any]) -> str | None:
    """Why machine code that was made under these conditions may not run here."""
    here = _conditions()
    for name in here:
        if content[name] != here[name]:
            return f"are for {name} {content[name]}, not {here[name]}"
    chosen = (_config.CPU_NAME, content["cpu"]), (_config.CPU_FEATURES, _written(content["features"]))
    if any(wanted is not None and wanted != given for wanted, given in chosen):
        return "are for another processor than NUMBA_CPU_NAME and NUMBA_CPU_FEATURES ask for"
    there = _host_features()
    missing = [name for name in content["features"] if not there.get(name, False)]
    return f"need a processor with {', '.join(missing)}" if missing else None


def _conditions() -> dict[str, str]:
    return {
        "Numba": numba.__version__,
        "Python": f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}",
        "platform": sysconfig.get_platform(),
    }


def _host_features() -> dict[str, bool]:
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM does not know this kind of processor
        return {}


def _written(features: Sequence[str]) -> str:
    return ",".join(f"+{name}" for name in features)


def settings(cpu: str, features: Sequence[str]) -> dict[str, str]:
    """The environment in which kernels are compiled that are to be packed."""
    return {
        "NUMBA_CPU_NAME": cpu,
        "NUMBA_CPU_FEATURES": _written(features),
        "NUMBA_DISABLE_INTEL_SVML": "1",  # a library that not every Numba has
    }


def pack(package: Path, cpu: str, features: Sequence[str]) -> list[Path]:
    """Move what was compiled beside the modules of a package into its folder of kernels, with a list of the files."""
    folder = package / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    digests = {}
    for file in sorted(package.rglob("__pycache__/*.nb[ic]")):
        name = (file.parents[1].relative_to(package) / file.name).as_posix()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        digests[name] = hashlib.sha256(file.read_bytes()).hexdigest()
        file.replace(folder / name)
    folder.mkdir(exist_ok=True)
    content = {**_conditions(), "cpu": cpu, "features": list(features), "files": digests}
    (folder / LIST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return [folder / name for name in digests]
