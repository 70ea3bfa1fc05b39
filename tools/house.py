"""The map of the house: which room uses which, checked and drawn.

    python tools/house.py            list what is wrong: arrows that point upwards, cycles, solvers that use each other
    python tools/house.py --draw     write docs/house.svg as well

Imports are read from the sources, so nothing has to be installed.  ``tests/test_house.py`` runs the same checks.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "tightmap"

# from the ground up: a room may use its own floor and those below
FLOORS: list[tuple[str, ...]] = [
    ("errors",),
    ("runtime",),
    ("graph",),
    ("factors",),
    ("model", "canonical"),
    ("energy",),
    ("moves",),
    ("graphcut",),
    ("solvers",),
    ("result", "registry"),
    ("driver", "plans"),
    ("io", "problems", "view", "diagnostics", "reference", "scale"),
    ("testing", "bench", "compile_ahead", "demo", "many"),
    ("cli",),
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

# the few imports inside a function that may point upwards, and why
ALLOWED = {
    ("model", "view"): "a Model shows itself in a notebook",
    ("result", "view"): "so does a Result",
    ("solvers", "registry"): "auto and combilp run other methods by name",
}
WHOLE_FAMILIES = ("auto",)  # runs other methods, through the registry
SHARED = ("base", "capabilities", "engine", "stages", "start_labels")  # what all solvers have in common


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, type hints left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tightmap":
            base = node.module.removeprefix("tightmap").lstrip(".")
            for name in node.names:
                inner = f"{base}.{name.name}" if base else name.name
                is_module = (ROOT / (inner.replace(".", "/") + ".py")).exists() or (
                    ROOT / inner.replace(".", "/")
                ).is_dir()
                found.add(inner if is_module else base)
        elif isinstance(node, ast.Import):
            found |= {n.name.removeprefix("tightmap.") for n in node.names if n.name.startswith("tightmap.")}
        todo += ast.iter_child_nodes(node)
    return {name for name in found if name}


def modules() -> dict[str, set[str]]:
    """Every module with the modules it imports."""
    return {module_name(p): imports(p) for p in sorted(ROOT.rglob("*.py")) if module_name(p)}


def room(module: str) -> str:
    return module.split(".")[0]


def family(module: str) -> str:
    """The method or family of methods that a module of solvers/ belongs to."""
    return module.split(".")[1] if module.startswith("solvers.") else ""


def faults() -> list[str]:
    """What is wrong with the house, one sentence each."""
    out = []
    graph = modules()
    for name, used in graph.items():
        for other in sorted(used):
            here, there = room(name), room(other)
            if here not in FLOOR or there not in FLOOR:
                out.append(f"{name}: {here if here not in FLOOR else there} is not on the map")
            elif FLOOR[there] > FLOOR[here] and (here, there) not in ALLOWED:
                out.append(f"{name} imports {other}, which is above it")
            a, b = family(name), family(other)
            if a and b and a != b and b not in SHARED and a not in WHOLE_FAMILIES:
                out.append(f"{name} imports {other}: a solver must not use another one")
    for path in sorted(ROOT.rglob("*.py")):
        if room(module_name(path)) != "runtime" and "numba.core" in path.read_text(encoding="utf-8"):
            out.append(f"{module_name(path)} touches numba.core, which only runtime/ may")
    return out


def rooms() -> dict[str, set[str]]:
    """Every room with the rooms it uses."""
    out: dict[str, set[str]] = defaultdict(set)
    for name, used in modules().items():
        out[room(name)] |= {room(other) for other in used} - {room(name)}
    return out


def draw() -> str:
    """The rooms as boxes, floor by floor, and an arrow wherever one uses another, as SVG."""
    used = rooms()
    floors = [[r for r in floor if r in used] for floor in reversed(FLOORS)]
    floors = [floor for floor in floors if floor]
    width, step, box, high = 900, 74, 118, 34
    place: dict[str, tuple[float, float]] = {}
    for level, floor in enumerate(floors):
        for k, name in enumerate(floor):
            place[name] = (width * (k + 1) / (len(floor) + 1), 40 + step * level)
    height = 60 + step * (len(floors) - 1) + high
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for name, others in sorted(used.items()):
        x, y = place[name]
        for other in sorted(others):
            if other in ("errors", "runtime", "graph") or other not in place:
                continue  # used by nearly all: the arrows would only hide the others
            a, b = place[other]
            side = 40 if b - y > step else 0  # around the rooms in between
            bend = x + (side if a >= x else -side)
            lines.append(
                f'<path d="M{x:.0f},{y + high / 2:.0f} C{bend:.0f},{(y + b) / 2:.0f} {bend:.0f},{(y + b) / 2:.0f} '
                f'{a:.0f},{b - high / 2:.0f}" fill="none" stroke="#7a94b8" stroke-opacity="0.6"/>'
            )
    for name, (x, y) in place.items():
        lines.append(
            f'<rect x="{x - box / 2:.0f}" y="{y - high / 2:.0f}" width="{box}" height="{high}" rx="5" fill="#eef3fa" '
            f'stroke="#33557f"/><text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">{name}</text>'
        )
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--draw" in sys.argv:
        (ROOT.parents[1] / "docs" / "house.svg").write_text(draw(), encoding="utf-8")
    found = faults()
    print("\n".join(found) or f"{len(modules())} modules, every arrow points downwards")
    sys.exit(bool(found))
