"""Build a wheel with compiled kernels: nothing is left to compile for whoever installs it.

    python tools/build_wheel.py [--out dist] [--method trws ...] [--processes 2]

The plain wheel is built and unpacked, the kernels of its modules are compiled for a processor that most machines can
stand in for, and both are packed together.  What is compiled is what `tightmap compile` compiles.  The wheel is for the
version of Python and of Numba that run this tool, and says so: with another Numba it works like a source distribution.

Needs the package's dependencies and `wheel`; `make wheel` has them.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tightmap.runtime import shipped  # noqa: E402

# LLVM's name of a processor, and all that it has: x86-64-v3 is Intel since 2013 and AMD since 2015
TARGETS = {
    "x86_64": (
        "x86-64-v3",
        "64bit avx avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt sahf sse sse2 sse3 sse4.1 "
        "sse4.2 ssse3 xsave",
    ),
}


def run(command: list[str], **environment: str) -> None:
    print("$", *command, flush=True)
    # settings of whoever builds must not find their way into the machine code
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "TIGHTMAP_", "PYTHON"))}
    subprocess.run(command, check=True, cwd=ROOT, env=clean | environment)


def platform_tag() -> str:
    """The kernels need of a system what Numba itself needs, which its own wheel says."""
    machine = platform.machine()
    tags = re.findall(r"^Tag: \S+-(manylinux_\d+_\d+_\w+)$", distribution("numba").read_text("WHEEL") or "", re.M)
    if sys.platform.startswith("linux"):
        return min(tags, key=lambda tag: [int(n) for n in re.findall(r"\d+", tag)]) if tags else f"linux_{machine}"
    import sysconfig

    return re.sub(r"[-.]", "_", sysconfig.get_platform())


def set_tag(folder: Path) -> str:
    """Say in the wheel's own description what it is for; returns the tag."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{version}-{version}{sys.abiflags}-{platform_tag()}"
    (file,) = folder.glob("*.dist-info/WHEEL")
    text = re.sub(r"^Root-Is-Purelib: .*$", "Root-Is-Purelib: false", file.read_text(), flags=re.M)
    file.write_text(re.sub(r"^Tag: .*$", f"Tag: {tag}", text, flags=re.M))
    return tag


def build(out: Path, methods: list[str], processes: int | None) -> None:
    machine = platform.machine()
    if machine not in TARGETS:
        sys.exit(f"no portable processor is known for {machine}; known: {', '.join(TARGETS)}")
    cpu, features = TARGETS[machine][0], TARGETS[machine][1].split()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(work), "."])
        (plain,) = work.glob("*.whl")
        run([sys.executable, "-m", "wheel", "unpack", "--dest", str(work), str(plain)])
        (folder,) = (path for path in work.iterdir() if path.is_dir())
        start = "from tightmap.cli.main import main; main()"
        chosen = [part for method in methods for part in ("--method", method)]
        count = ["--processes", str(processes)] if processes else []
        settings = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **shipped.settings(cpu, features)}
        # twice: of two processes that keep the same kernel for other types at once, one may be forgotten
        for _ in range(2):
            run([sys.executable, "-c", start, "compile", *chosen, *count], **settings)
        files = shipped.pack(folder / "tightmap", cpu, features)
        for rest in list(folder.rglob("__pycache__")):
            shutil.rmtree(rest)
        tag = set_tag(folder)
        out.mkdir(parents=True, exist_ok=True)
        run([sys.executable, "-m", "wheel", "pack", "--dest-dir", str(out), str(folder)])
        size = sum(file.stat().st_size for file in files) / 1e6
        kernels = sum(file.suffix == ".nbc" for file in files)
        print(f"{kernels} kernels for {cpu}, {size:.0f} MB unpacked, {tag}: in {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel")
    parser.add_argument("--method", action="append", default=[], help="compile for these only; repeatable")
    parser.add_argument("--processes", type=int, help="that compile at a time; all cores by default")
    chosen = parser.parse_args()
    build(chosen.out.resolve(), chosen.method, chosen.processes)


if __name__ == "__main__":
    main()
