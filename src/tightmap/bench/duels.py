"""Ours beside every other program on the same model, in one run: how many times faster, how much smaller.

    time     seconds of the other program / our seconds        above 1: we are faster
    memory   its peak / our peak, each in a process of its own    above 1: we need less

A duel names a model, our methods and the peers that it is for.  What is compared is said by its ``about``: times of the
search on most models, of building and solving together on tiny ones, where that is what a caller waits for.

A ratio of times says nothing without the energies, so these stand beside it; where one of two ended without a proof or
with a worse labelling that can be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tightmap.bench.instances import Instance, Problem, data_folder
from tightmap.bench.records import Row
from tightmap.bench.tables import Cell, Table, number


@dataclass(frozen=True)
class Duel:
    """A model, and who solves it."""

    family: str
    instance: str
    ours: tuple[str, ...]
    peers: tuple[str, ...]
    about: str = "time"  # or "memory"


# ---------------------------------------------------------------------- models


def _binary(shape: tuple[int, ...]) -> Problem:
    """Noisy halves of an image or a volume, two labels, neighbours along every axis: submodular."""
    from tightmap.model.model import Model

    rng = np.random.default_rng(0)
    count = int(np.prod(shape))
    inside = np.indices(shape)[0].ravel() > shape[0] // 2
    noisy = np.where(inside, 0.7, 0.3) + 0.35 * rng.normal(size=count)
    model = Model.grid(*shape, 2) if len(shape) == 2 else Model(np.full(count, 2))
    model.add_unaries(np.stack([noisy**2, (1.0 - noisy) ** 2], axis=1))
    place = np.arange(count).reshape(shape)
    edges = []
    for axis in range(len(shape)):
        ends = [[slice(None)] * len(shape) for _ in range(2)]
        ends[0][axis], ends[1][axis] = slice(None, -1), slice(1, None)
        edges.append(np.stack([place[tuple(end)].ravel() for end in ends], axis=1))
    pairs = np.concatenate(edges)
    model.add_potts(pairs, np.full(len(pairs), 0.3))
    return Problem(model)


def _ring(labels: int) -> Problem:
    from tightmap.bench.tiny import build, numbers

    return Problem(build(*numbers(labels)))


def _file(name: str) -> Problem:
    from tightmap.io import read

    return Problem(read(str(data_folder() / name)))


WCSP = ("celar6sub0.wcsp", "404.wcsp.xz", "zebra.wcsp", "1aho.cfn.gz", "CELAR6SUB1.cfn.gz")

INSTANCES: tuple[Instance, ...] = (
    Instance("binary", "image-1000", partial(_binary, (1000, 1000))),
    Instance("binary", "volume-100", partial(_binary, (100, 100, 100))),
    Instance("tiny", "ring-10", partial(_ring, 3), repeat=3),
    Instance("tiny", "cut-10", partial(_ring, 2), repeat=2),
    *(Instance("wcsp", name.split(".")[0], partial(_file, f"wcsp/{name}"), needs=(f"wcsp/{name}",)) for name in WCSP),
)

EXPANSION, SWAP, CUT, TOULBAR2 = "peer:gco-expansion", "peer:gco-swap", "peer:maxflow", "peer:toulbar2"

DUELS: tuple[Duel, ...] = (
    Duel("binary", "image-1000", ("auto", "expansion", "qpbo"), (CUT,)),
    Duel("binary", "volume-100", ("auto", "expansion", "qpbo"), (CUT,)),
    Duel("inpainting-n4", "ring", ("expansion",), (CUT, EXPANSION)),
    Duel("inpainting-n4", "ring-inverse", ("expansion",), (CUT, EXPANSION)),
    Duel("inpainting-n8", "ring", ("expansion",), (EXPANSION,)),
    Duel("stereo", "tsukuba", ("expansion", "swap"), (EXPANSION, SWAP)),
    Duel("stereo", "teddy", ("expansion", "trws"), (EXPANSION,), "memory"),
    Duel("tiny", "ring-10", ("auto", "expansion", "bcd", "trws", "exact"), (EXPANSION, TOULBAR2)),
    Duel("tiny", "cut-10", ("auto", "qpbo"), (CUT, EXPANSION, TOULBAR2)),
    Duel("matching", "points-1", ("auto", "exact"), (TOULBAR2, "peer:highs")),
    *(Duel("wcsp", name.split(".")[0], ("exact", "auto"), (TOULBAR2,)) for name in WCSP),
)


# ---------------------------------------------------------------------- what comes out


def _ratio(theirs: float | None, ours: float | None) -> str:
    return "–" if not theirs or not ours else f"{theirs / ours:.2f}"


def _end(row: Row) -> str:
    if row.get("reason"):
        return str(row["status"]).lower()
    value = number(row.get("energy"), "infeasible")
    return f"{value} proven" if row.get("status") == "OPTIMAL" else value


def _seconds(row: Row) -> str:
    value = row.get("elapsed")
    return "–" if value is None else f"{value:.3g}"


def ratios(rows: list[Row]) -> Table | None:
    """A line for every pair of ours and a peer that was run; None without any."""
    found = {(r["family"], r["instance"], r["method"]): r for r in rows}
    header = ["model", "ours", "peer", "our time (s)", "its time (s)", "ratio", "our energy", "its energy"]
    header += ["our peak (MiB)", "its peak (MiB)", "ratio"]
    table = Table("ours beside other programs", header, fixed=3)
    for duel in DUELS:
        first = True
        for ours in duel.ours:
            for peer in duel.peers:
                a = found.get((duel.family, duel.instance, ours))
                b = found.get((duel.family, duel.instance, peer))
                if a is None or b is None:
                    continue
                if first:
                    table.rules.add(len(table.rows))
                    first = False
                memory = [None, None]
                if duel.about == "memory":
                    memory = [a.get("peak_memory_mb"), b.get("peak_memory_mb")]
                sizes = ["" if m is None else f"{m:.0f}" for m in memory]
                texts = [f"{duel.family}/{duel.instance}", ours, peer.removeprefix("peer:"), _seconds(a), _seconds(b)]
                texts += [_ratio(b.get("elapsed"), a.get("elapsed")), _end(a), _end(b), *sizes]
                texts.append(_ratio(memory[1], memory[0]) if duel.about == "memory" else "")
                table.rows.append([Cell(text, text == texts[5]) for text in texts])
    if not table.rows:
        return None
    table.notes = [
        "ratio: the other program's figure over ours, above 1 is better for us; times of the search alone, on tiny "
        "models of building and solving together (best of many); memory: peak of a process of its own, for GCO one "
        "without Numba and without our model.",
    ]
    return table
