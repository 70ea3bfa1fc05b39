"""What is in a model, in numbers and in words, for `tightmap info` and for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tightmap.factors.kinds import row_of

if TYPE_CHECKING:
    from tightmap.model.model import Model


def describe(model: Model) -> dict[str, Any]:
    """Facts about a model and its canonical form, ready for JSON."""
    graph = model.graph()
    g = graph.arrays
    sizes = np.diff(g.scope_start)
    groups = []
    for k in np.unique(sizes):
        for kind in np.unique(g.kind[sizes == k]):
            rows = np.flatnonzero((sizes == k) & (g.kind == kind))
            own = row_of(kind)
            tables = len(np.unique(g.param[rows])) if own.has_parameters else 1
            groups.append(
                {
                    "kind": own.block.name.lower(),
                    "words": own.words,
                    "order": int(k),
                    "factors": len(rows),
                    "tables": tables,
                    "weights": len(np.unique(g.weight[rows])),
                }
            )
    cards = model.cardinalities
    return {
        "variables": model.num_variables,
        "labels_min": int(cards.min()) if len(cards) else 0,
        "labels_max": int(cards.max(initial=0)),
        "factors": model.num_factors,
        "max_order": model.max_order,
        "free_variables": graph.n,
        "canonical_factors": graph.m,
        "groups": groups,
        "hard_constraints": graph.hard > 0.0,
        "quantum": graph.quantum,
        "grid": list(graph.grid_shape) if graph.grid_shape else None,
        "evidence": int((model.clamped >= 0).sum()),
        "bytes": graph.nbytes,
    }


def describe_text(facts: dict[str, Any]) -> str:
    """The same facts for people."""
    low, high = facts["labels_min"], facts["labels_max"]
    labels = f"{high} labels" if low == high else f"{low} to {high} labels"
    lines = [
        f"  {facts['variables']} variables, {labels}, {facts['factors']} factors of order up to {facts['max_order']}"
    ]
    if facts["grid"]:
        lines.append(f"  a grid of {facts['grid'][0]} x {facts['grid'][1]}")
    if facts["evidence"]:
        lines.append(f"  evidence on {facts['evidence']} variables")
    if facts["free_variables"] != facts["variables"]:
        lines.append(f"  {facts['free_variables']} variables are free; the others have one label or evidence")
    for group in facts["groups"]:
        shared = "one shared" if group["tables"] == 1 else f"{group['tables']} different"
        noun = "table" if group["tables"] == 1 else "tables"
        weights = "" if group["weights"] == 1 else f", {group['weights']} different weights"
        lines.append(
            f"  {group['factors']} factors of order {group['order']}: {shared} {group['words']} {noun}{weights}"
        )
    lines.append("  hard constraints: " + ("yes" if facts["hard_constraints"] else "none"))
    if facts["quantum"]:
        lines.append(f"  all costs are multiples of {facts['quantum']:g}")
    lines.append(f"  {facts['bytes'] / 2**20:.1f} MiB in memory")
    return "\n".join(lines)
