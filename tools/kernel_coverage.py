"""Line coverage of the kernels, from the data that ``make coverage`` collected with NUMBA_DISABLE_JIT=1.

    python tools/kernel_coverage.py              a table: lines inside kernels that ran, per file, and in all
    python tools/kernel_coverage.py --missing    the lines that did not run as well

Only lines inside functions decorated with @compiled, @lean or a name made from these count: what is compiled otherwise,
and cannot be seen.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tightmap"
DECORATORS = ("compiled", "lean")


def kernel_lines(source: str) -> set[int]:
    """Numbers of the lines inside kernels, their headers left out."""
    tree = ast.parse(source)
    decorators = set(DECORATORS)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _name(node.value) in DECORATORS:
            decorators |= {_name(target) for target in node.targets}
    out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_name(d) in decorators for d in node.decorator_list):
            out |= set(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    return out


def _name(decorator: ast.expr) -> str:
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return call.id if isinstance(call, ast.Name) else ""


def rows() -> Iterator[tuple[str, int, list[int]]]:
    """File, lines in its kernels, and those of them that did not run."""
    data = Coverage(data_file=str(ROOT / ".coverage"))
    data.load()
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = kernel_lines(path.read_text(encoding="utf-8"))
        if inside:
            _, statements, _, missing, _ = data.analysis2(str(path))
            yield str(path.relative_to(PACKAGE)), len(inside & set(statements)), sorted(inside & set(missing))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true", help="list the lines that did not run")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="fail below this share")
    options = parser.parse_args()
    found = list(rows())
    print(f"{'kernels of':44}{'lines':>7}{'missed':>8}{'ran':>7}")
    for name, lines, missing in found:
        print(f"{name:44}{lines:7}{len(missing):8}{100 * (1 - len(missing) / lines):6.1f}%")
        if options.missing and missing:
            print("    " + ", ".join(map(str, missing)))
    lines, missed = sum(row[1] for row in found), sum(len(row[2]) for row in found)
    share = 100 * (1 - missed / lines)
    print(f"{'all kernels':44}{lines:7}{missed:8}{share:6.1f}%")
    if share < options.at_least:
        raise SystemExit(f"less than {options.at_least} %")


if __name__ == "__main__":
    main()
