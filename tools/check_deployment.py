"""Build deploy/Containerfile and solve a model with the image, as a user who may write nothing but the results.

    python tools/check_deployment.py [--method bcd ...] [--engine docker|podman|venv]

Where no container engine runs, the RUN lines of the file are carried out in a fresh virtual environment instead, and
its packages are made read-only before the model is solved.  The second run may compile nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "deploy" / "Containerfile"
MODEL = "MARKOV\n2\n2 2\n1\n2 0 1\n4\n0.1 0.9 0.8 0.2\n"


def run(command: list[str] | str, **options: object) -> str:
    """Carry out a step; what it wrote, both streams together."""
    print("$", command if isinstance(command, str) else " ".join(command), flush=True)
    done = subprocess.run(  # type: ignore[call-overload]
        command,
        shell=isinstance(command, str),
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed with exit code {done.returncode}")
    return str(done.stdout)


def container_engine() -> str | None:
    """A container engine that is installed and running."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            found = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
            if "Cannot connect" not in found.stdout + found.stderr:
                return name
    return None


def in_container(engine: str, methods: str, folder: Path, command: list[str]) -> str:
    image = "tightmap-check"
    run([engine, "build", "-f", str(FILE), "-t", image, "--build-arg", f"METHODS={methods}", str(ROOT)])
    folder.chmod(0o777)
    return run([engine, "run", "--rm", "--cpus", "2", "--memory", "2g", "-v", f"{folder}:/data", image, *command])


def in_venv(methods: str, folder: Path, command: list[str]) -> str:
    source, place = folder / "src", folder / "venv"
    source.mkdir()
    for line in re.findall(r"^COPY (.*)$", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        *names, target = line.split()
        for name in names:
            to = Path(target.replace("/src", str(source), 1))
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, to / name)
    run([sys.executable, "-m", "venv", str(place)])
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    clean |= {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}", "METHODS": methods}
    for step in re.findall(r"^RUN (.*)$", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        run(step.replace("/src", str(source)), env=clean)
    run(f"chmod -R a-w {place}")
    try:
        return run(["tightmap", *command], env=clean | {"HOME": "/nonexistent"}, cwd=folder)
    finally:
        run(f"chmod -R u+w {place}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", action="append", help="what to compile, all methods by default; the first solves")
    parser.add_argument("--engine", choices=["docker", "podman", "venv"], help="the one that runs, by default")
    chosen = parser.parse_args()
    methods = " ".join(f"--method {m}" for m in chosen.method or [])
    engine = chosen.engine or container_engine() or "venv"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.uai").write_text(MODEL)
        command = ["solve", "model.uai", "--method", (chosen.method or ["auto"])[0], "--json", "result.json"]
        said = in_venv(methods, folder, command) if engine == "venv" else in_container(engine, methods, folder, command)
        print(said, end="")
        result = json.loads((folder / "result.json").read_text())
        assert result["labels"] == [0, 1], result
        assert "compiling kernels" not in said, "a kernel had still to be compiled"
    print(f"{engine}: installed, compiled, solved")


if __name__ == "__main__":
    main()
