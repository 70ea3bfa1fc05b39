"""What a notebook shows for a Model and a Result: small tables that follow the colours of the page."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tightmap.model.model import Model
    from tightmap.result import Result


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(k)}</th><td style="text-align:left">{html.escape(v)}</td></tr>'
        for k, v in rows
    )
    return f"<table><caption>{html.escape(title)}</caption><tbody>{cells}</tbody></table>"


def model_html(model: Model) -> str:
    """Sizes of a model and its factors by kind."""
    grid = f" on a grid of {model.grid_shape[0]} x {model.grid_shape[1]}" if model.grid_shape else ""
    rows = [("variables", f"{model.num_variables:,}{grid}"), ("labels", f"up to {model.max_labels}")]
    kinds: dict[tuple[str, int], int] = {}
    for block in model.blocks:
        key = (block.name.lower().replace("_", " "), block.arity)
        kinds[key] = kinds.get(key, 0) + len(block)
    rows += [(f"{kind} factors of order {arity}", f"{count:,}") for (kind, arity), count in kinds.items()]
    clamped = int((model.clamped >= 0).sum())
    if clamped:
        rows.append(("fixed by evidence", f"{clamped:,}"))
    return _table("tightmap model", rows)


def result_html(result: Result) -> str:
    """Energy, bound, gap and why the run ended."""
    energy = f"{result.energy:.9g}" + ("" if result.feasible else " (violates a hard constraint)")
    rows = [("method", result.method), ("energy", energy)]
    rows.append(("lower bound", f"{result.lower_bound:.9g}" if math.isfinite(result.lower_bound) else "none"))
    if math.isfinite(result.gap):
        rows.append(("gap", result._gap_text()))
    rows.append(("iterations", f"{result.iterations:,} in {result.elapsed:.2f} s"))
    rows.append(("status", f"{result.status.name.replace('_', ' ').lower()}: {result.status.value}"))
    if result.note:
        rows.append(("note", result.note))
    return _table("tightmap result", rows)
