"""The figures that the paper published, as data: per instance value, bound and runtime of thirteen methods.

Source: D. K. Le-Huu and N. Paragios, "Continuous Relaxation of MAP Inference: A Nonconvex Perspective", CVPR 2018,
supplementary material, tables by instance (published.csv).  They were measured there, on another machine (3.4 GHz, one
hour per run, one thread for ADMM), and with other implementations; they are never mixed with what is measured here.
An empty bound means that the method gave none, an empty value that the run did not end.  In `matching` a value of
10^10 and more violates hard constraints, each of which the paper's files charge 10^10.

The models of inpainting, of stereo (tsu, ven, ted) and matching0 are the same as ours.  The published instances of
segmentation ("inclusion") and second-order stereo are not available, ours are in their manner.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

SOURCE = "Le-Huu and Paragios, CVPR 2018, supplementary material"

# how the paper writes the methods
NAMES = {
    "ad3": "ADDD",
    "admm": "ADMM",
    "bcd": "BCD",
    "bundle": "BUNDLE",
    "cqp": "CQP",
    "expansion": "α-Exp",
    "fastpd": "FastPD",
    "fusion": "α-Fusion",
    "fw": "FW",
    "mplp": "MPLP",
    "mplp-c": "MPLP-C",
    "pgd": "PGD",
    "srmp": "SRMP",
    "trbp": "TRBP",
    "trws": "TRWS",
}


@dataclass(frozen=True)
class Figure:
    """One published run."""

    family: str
    instance: str
    method: str
    value: float | None
    bound: float | None
    runtime: float | None


@cache
def figures() -> tuple[Figure, ...]:
    """All published runs."""
    text = files("tightmap.bench").joinpath("published.csv").read_text(encoding="utf-8")

    def number(cell: str) -> float | None:
        return float(cell) if cell else None

    return tuple(
        Figure(
            row["family"],
            row["instance"],
            row["method"],
            number(row["value"]),
            number(row["bound"]),
            number(row["runtime"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def of(family: str, instance: str | None = None) -> dict[tuple[str, str], Figure]:
    """{(instance, method): figure} of a family, or of one of its published instances."""
    return {
        (f.instance, f.method): f
        for f in figures()
        if f.family == family and (instance is None or f.instance == instance)
    }
