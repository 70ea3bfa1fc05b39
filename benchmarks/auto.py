"""The default call on every family of models: energy, bound, status and wall time beside what is known.

    python benchmarks/auto.py [--groups paper families ...] [--only NAME ...] [--limit S] [--threads N]
    python benchmarks/auto.py --singles            every single method at the same limit as well: who was ahead
    python benchmarks/auto.py --strongest          the same with those only that were ever the best on such a family
    python benchmarks/auto.py --anytime            the energy after 1, 3, 10 and 30 seconds
    python benchmarks/auto.py --toulbar2           pytoulbar2 beside it, where it is installed

Groups: paper, families, uai, wcsp, maxcut, second-order, generated.  Models come from TIGHTMAP_DATA (default
../shared/data); what is missing is left out with a message.  Generated models use seeds that nothing was chosen by.
Kernels are compiled before the clock starts, by a short call.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tightmap as tm
from image_lookalikes import IMAGES
from lookalikes import FAMILIES as IMAGES_AND_NETS
from lookalikes_csp import FAMILIES as CONSTRAINTS
from lookalikes_large import FAMILIES as LARGE
from lookalikes_wcsp import FAMILIES as WEIGHTED
from tightmap.bench.instances import PAPER
from tightmap.errors import ModelError
from tightmap.problems import read_image

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
FAMILIES = IMAGES_AND_NETS | IMAGES | CONSTRAINTS | WEIGHTED | LARGE
# the single methods that were ahead of the others somewhere in a family, in 3 s; elsewhere the usual ones
STRONGEST = {
    "photomontage": ("expansion", "trws"),
    "large photomontage": ("expansion", "trws"),
    "large grid of pairs": ("trws", "lns"),
    "grid of pairs": ("lns", "trws"),
    "surfaces": ("fusion", "lns", "srmp"),
    "dense QUBO": ("tabu", "annealing"),
    "spin glass": ("tabu", "annealing"),
    "fields": ("tabu", "annealing"),
    "belief net": ("tabu", "annealing"),
    "characters": ("tabu", "annealing"),
    "pairs of clauses": ("exact", "annealing", "tabu"),
    "auctions": ("exact", "annealing", "tabu"),
    "cliques": ("exact", "annealing", "tabu"),
    "matching": ("exact", "annealing", "mplp-c"),
    "object parts": ("exact", "annealing", "tabu"),
    "tree field": ("tabu", "annealing"),
    "large characters": ("tabu", "annealing"),
    "large proteins": ("tabu", "annealing", "mplp-c"),
    "tracking": ("lns", "srmp", "chains"),
    "cell tracking": ("lns", "srmp", "exact", "chains"),
    "filling by P^n": ("srmp", "fusion", "lns"),
    "scene": ("exact", "srmp", "mplp-c"),
    "layouts 3": ("exact", "srmp", "mplp-c"),
    "layouts 7": ("exact", "srmp", "mplp-c"),
    **dict.fromkeys(("colours 4", "colours 8", "objects", "brain", "grey values"), ("trws", "expansion", "combilp")),
    **dict.fromkeys(("superpixels", "superpixel triples", "neurons", "regions"), ("multicut", "annealing")),
    **dict.fromkeys(("communities", "communities 34", "communities 62", "communities 105"), ("multicut", "tabu")),
}
USUAL = ("exact", "lns", "annealing", "chains")
SINGLES = ("trws", "srmp", "expansion", "fusion", "admm", *USUAL, "tabu", "combilp", "mplp-c", "qpbo")


@dataclass(frozen=True)
class Case:
    """A model, its time limit, and what is known of it: an energy to reach, and whether to prove it."""

    group: str
    name: str
    build: Callable[[], tm.Model]
    limit: float = 20.0
    known: float = math.inf
    prove: bool = False
    path: Path | None = None


def from_file(group: str, name: str, limit: float = 20.0, known: float = math.inf, prove: bool = False) -> Case:
    path = DATA / name
    evidence = path.with_name(path.name.removesuffix(".xz") + ".evid")

    def build() -> tm.Model:
        return tm.read(path, evidence=evidence) if evidence.exists() else tm.read(path)

    return Case(group, path.name, build, limit, known, prove, path)


def penguin() -> tm.Model:
    """Denoising with 256 grey values; pixels in the hole of the mask have no data term."""
    image = read_image(DATA / "families/penguin-input.png", grey=True).astype(float)
    seen = read_image(DATA / "families/penguin-mask.png", grey=True) > 0
    model = tm.Model.grid(*image.shape, 256)
    levels = np.arange(256.0)
    model.add_unaries(np.where(seen[..., None], (image[..., None] - levels) ** 2, 0.0).reshape(-1, 256))
    index = np.arange(image.size).reshape(image.shape)
    across = np.column_stack((index[:, :-1].reshape(-1), index[:, 1:].reshape(-1)))
    down = np.column_stack((index[:-1].reshape(-1), index[1:].reshape(-1)))
    edges = np.concatenate((across, down))
    model.add_truncated_quadratic(edges, np.full(len(edges), 25.0), 200.0)
    return model


def real_models() -> Iterator[Case]:
    reach = {  # seconds, energy, and whether it is to be proven
        "inpainting-n4/ring": (0.3, 484.590667, True),
        "inpainting-n8/ring": (10, 495.197990, True),
        "inpainting-n4/ring-inverse": (30, 424.115008, False),
        "inpainting-n8/ring-inverse": (30, 434.316670, False),
        "matching/matching0": (2, 19.3629029, True),
        "stereo/tsukuba": (30, 369218, True),
        "stereo/venus": (60, 3048100, False),
        "stereo/teddy": (60, 1338300, False),
    }
    for instance in PAPER:
        name = f"{instance.family}/{instance.name}"
        if name in reach or instance.family == "second-order":
            group = "paper" if name in reach else "second-order"
            if instance.missing:
                print(f"{name}: {instance.missing}, left out")
                continue
            yield Case(group, name, lambda i=instance: i.build().model, *reach.get(name, (12.0,)))
    for name, known, prove in (
        ("75-26-5.uai", 50.738856, False),
        ("pedigree40.uai.xz", 300.530750, False),
        ("54.uai", 3.1554, True),
        ("wcsp_13.uai", 0.489001, True),
        ("bw_p34_10.uai.xz", 1.43841, True),
        ("comm_p01_10.uai.xz", 1.386294, True),
        ("sg_p01_20.uai", math.inf, True),
        ("ra.cnf.uai", 0.0, True),
        ("log-1.cnf.uai", 0.0, True),
        ("Alchemy_11.uai", -1344.0, True),
        ("relational_3.uai.xz", math.inf, True),
        ("GEOM40_6.wcsp.xz", 0.0, True),
        ("maximization.cfn", -0.5, True),
        ("hotel_02.dd", math.inf, True),
        ("G14.txt", -3064, False),
        ("g05_80.0.mc", -929, True),
        ("QPLIB_3822.qubo", -1402, False),
        ("QPLIB_5882.qubo", -50321, False),
    ):
        yield from_file("families", f"families/{name}", 20, known, prove)
    yield Case("families", "penguin", penguin, 20)
    for name in ("Grids_18", "ObjectDetection_11", "Promedas_11", "Promedas_24", "ProteinFolding_11"):
        yield reference_case(name)
    for name in ("Segmentation_11", "Segmentation_12", "wcsp_11"):
        yield reference_case(name)
    for name, known in (
        ("celar6sub0.wcsp", 159),
        ("zebra.wcsp", 0),
        ("example.wcsp", 27),
        ("404.wcsp.xz", 114),
        ("1aho.cfn.gz", -33.729920),
        ("CELAR6SUB1.cfn.gz", 2669),
        ("bqp100-1.qpbo", -7970),
    ):
        yield from_file("wcsp", f"wcsp/{name}", 20, known, True)
    yield from_file("maxcut", "maxcut/G1.txt", 60, -11624)
    yield from_file("maxcut", "maxcut/G11.txt", 60, -564)
    yield from_file("maxcut", "families/G14.txt", 60, -3064)


def reference_case(name: str) -> Case:
    """A UAI model with the energy of the solution beside it."""
    case = from_file("uai", f"uai/{name}.uai")
    solution = DATA / f"uai/{name}.uai.MAP"
    known = math.inf
    if solution.exists():
        numbers = [int(w) for w in solution.read_text().split()[1:]]
        known = tm.read(DATA / f"uai/{name}.uai").energy(numbers[1:])
    return Case("uai", name, case.build, 20.0, known, False, case.path)


def generated(seed: int) -> Iterator[Case]:
    """Look-alikes of kinds of models that nothing was chosen by."""
    for name, build in FAMILIES.items():
        yield Case("generated", f"{name} {seed}", lambda build=build: build(seed))


SOLVE = """
import sys, json, pytoulbar2
network = pytoulbar2.CFN(verbose=-1)
network.Read(sys.argv[1])
found = network.Solve(timeLimit=int(sys.argv[2]))
print("\\n" + json.dumps(found and [int(v) for v in found[0]]), network.GetNbNodes())
"""


def toulbar2(case: Case, limit: float) -> str:
    """The energy that pytoulbar2 ends with, and the wall time; it is given the model as a file of decimal costs.

    A process of its own: it has no other way to be stopped while it prepares a large model.
    """
    if importlib.util.find_spec("pytoulbar2") is None:
        return "is not installed"
    model = case.build()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.cfn"
        try:
            tm.write(model, path, digits=6)
        except ModelError as problem:
            return f"cannot have it: {str(problem)[:80]}"
        begin = time.perf_counter()
        call = [sys.executable, "-c", SOLVE, str(path), str(max(1, round(limit)))]
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=3 * limit + 10, check=False)
        except subprocess.TimeoutExpired:
            return "did not stop"
        wall = time.perf_counter() - begin
    lines = [line for line in done.stdout.splitlines() if line.startswith(("[", "null"))]
    if done.returncode or not lines:
        return f"failed: {done.stderr.strip()[-80:]}"
    labels = json.loads(lines[-1].rsplit(" ", 1)[0])
    return f"{wall:7.2f}{'none' if labels is None else format(model.energy(labels), '.9g'):>16}"


def run(case: Case, method: str, limit: float, threads: int | None) -> tuple[tm.Result | None, float]:
    model = case.build()
    begin = time.perf_counter()
    try:
        result = tm.solve(model, method, time_limit=limit, threads=threads)
    except ModelError as problem:
        print(f"    {method}: {str(problem)[:100]}")
        return None, 0.0
    return result, time.perf_counter() - begin


def beside_singles(rivals: list[tuple[str, float, float, str, bool, bool]]) -> None:
    """A line for every family: how often auto was ahead of the best single method, behind it, and by how much."""
    families: dict[str, list[tuple[float, str, bool, bool]]] = {}
    for name, own, best, who, mine, theirs in rivals:
        family, seed = name.rsplit(" ", 1) if " " in name else (name, "")
        same = own == best or (math.isinf(own) and math.isinf(best))
        behind = 0.0 if same else 100.0 * (own - best) / max(abs(best), 1e-9)
        families.setdefault(family, []).append((behind, f"{who}, seed {seed}", mine, theirs))
    print(f"{'family':22}{'models':>7}{'ahead':>7}{'behind':>7}{'proven':>8}{'by one':>8}{'worst %':>9}  by")
    for family, rows in families.items():
        worst = max(rows)
        ahead, behind = sum(r[0] < -1e-4 for r in rows), sum(r[0] > 1e-4 for r in rows)
        proofs = f"{sum(r[2] for r in rows):8}{sum(r[3] for r in rows):8}"
        print(f"{family:22}{len(rows):7}{ahead:7}{behind:7}{proofs}{worst[0]:9.3g}  {worst[1] if worst[0] > 0 else ''}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="*")
    parser.add_argument("--only", nargs="*", help="part of a model's name")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--seeds", type=int, nargs="*", default=[101])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--singles", action="store_true")
    parser.add_argument("--strongest", action="store_true")
    parser.add_argument("--methods", nargs="*", default=["auto"])
    parser.add_argument("--anytime", action="store_true")
    parser.add_argument("--toulbar2", action="store_true")
    parser.add_argument("--notes", action="store_true", help="what each method of auto did")
    given = parser.parse_args()
    methods = given.methods + [m for m in SINGLES if given.singles]
    cases = [*real_models(), *(c for s in given.seeds for c in generated(s))]
    missed = 0
    rivals: list[tuple[str, float, float, str, bool, bool]] = []  # beside the best of several single methods
    print(f"{'model':28}{'method':12}{'limit':>6}{'wall':>7}{'energy':>16}{'bound':>16}{'known':>14}  status")
    for case in cases:
        if given.groups and case.group not in given.groups:
            continue
        if given.only and not any(part in case.name for part in given.only):
            continue
        if case.path is not None and not case.path.exists():
            print(f"{case.name}: not here, left out")
            continue
        limits = [1.0, 3.0, 10.0, 30.0] if given.anytime else [given.limit or case.limit]
        family = case.name.rsplit(" ", 1)[0]
        if len(methods) > 1 or given.strongest:  # memory that no method has touched yet is slow, for the first of them
            case.build().graph()
        here = methods + [m for m in STRONGEST.get(family, USUAL) if given.strongest and case.group == "generated"]
        for limit in limits:
            found: dict[str, tm.Result] = {}
            for method in here:
                result, wall = run(case, method, limit, given.threads)
                if result is None:
                    continue
                found[method] = result
                proven = result.status.name in ("OPTIMAL", "INFEASIBLE")
                size = max(abs(case.known), 1e-9) if math.isfinite(case.known) else 1.0
                remarks = []
                if math.isfinite(case.known) and result.energy > case.known + 1e-6 * size + 1e-6:
                    remarks.append(f"MISSED by {100 * (result.energy - case.known) / size:.3g} %")
                if case.prove and not proven:
                    remarks.append("NOT PROVEN")
                if wall > limit + max(0.5, 0.03 * limit):
                    remarks.append("LATE")
                missed += method == "auto" and bool(remarks)
                print(
                    f"{case.name[:27]:28}{method:12}{limit:6.3g}{wall:7.2f}{result.energy:16.9g}"
                    f"{result.lower_bound:16.9g}{case.known:14.9g}  {result.status.name} {', '.join(remarks)}",
                    flush=True,
                )
                if given.notes:
                    print("    " + str(result).replace("\n", "\n    "))
            if "auto" in found and len(found) > 1:
                own, proofs = found.pop("auto"), [r.status.name in ("OPTIMAL", "INFEASIBLE") for r in found.values()]
                best = min(found, key=lambda m: found[m].energy)
                mine = own.status.name in ("OPTIMAL", "INFEASIBLE")
                rivals.append((case.name, own.energy, found[best].energy, best, mine, any(proofs)))
        if given.toulbar2:
            print(f"{case.name[:27]:28}{'toulbar2':12}{limits[-1]:6.3g}{toulbar2(case, limits[-1])}", flush=True)
    print(f"{missed} rows of auto with a remark")
    if rivals:
        beside_singles(rivals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
