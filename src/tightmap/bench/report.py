"""The report: one HTML file with sortable tables, convergence charts and pictures of the labellings.

Nothing is loaded from anywhere: pictures are data URIs, charts are SVG, the script is a few lines.
"""

from __future__ import annotations

import base64
import io
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tightmap.bench import published
from tightmap.bench.charts import Series, colour, convergence_svg
from tightmap.bench.duels import ratios
from tightmap.bench.instances import PAPER, SMOKE
from tightmap.bench.page import page
from tightmap.bench.records import Row
from tightmap.bench.tables import (
    BEST_TOLERANCE,
    PAPER_TOLERANCE,
    Entry,
    Group,
    best,
    collect,
    from_figure,
    number,
    statistics,
)

if TYPE_CHECKING:
    from tightmap.bench.suites import Suite

SMALL = 200  # pictures below this many pixels are enlarged with hard edges
RUN_COLUMNS = ("method", "value", "bound", "gap %", "time (s)", "memory (MiB)", "status")


def write_report(rows: list[Row], path: Path, suite: Suite | None = None) -> None:
    """Write the page of these rows; the file appears complete or not at all."""
    from tightmap.io.atomic import writing

    name, skipped = ("", []) if suite is None else (suite.name, suite.skipped)
    text = render_report(rows, name, skipped)
    with writing(path) as stream:
        stream.write(text.encode())


def render_report(rows: list[Row], name: str = "", skipped: list[str] | None = None) -> str:
    """The page as text."""
    groups = collect(rows)
    methods = list(dict.fromkeys(m for group in groups for m in group.methods))
    colours = {m: colour(k) for k, m in enumerate(methods)}
    title = f"tightmap benchmark {name}".strip()
    parts = [f"<h1>{escape(title)}</h1>", _introduction(rows, groups)]
    if skipped:
        items = "".join(f"<li>{escape(s)}</li>" for s in skipped)
        parts.append(f"<details><summary>{len(skipped)} models were left out</summary><ul>{items}</ul></details>")
    links = "".join(f'<a href="#{escape(g.family)}">{escape(g.family)}</a>' for g in groups)
    parts.append(f'<nav aria-label="families">{links}</nav><main>')
    parts.append(_ratios(rows))
    for group in groups:
        parts.append(_family(group, colours))
    parts.append("</main>")
    return page(escape(title), "\n".join(parts))


def _introduction(rows: list[Row], groups: list[Group]) -> str:
    machines = sorted({str(r["machine"]) for r in rows if r.get("machine")})
    limits = sorted({float(r["time_limit"]) for r in rows if r.get("time_limit") is not None})
    failed = sum(r.get("status") in ("FAILED", "KILLED") for r in rows)
    facts = [
        f"{len(rows)} runs on {sum(len(g.instances) for g in groups)} models, each in a process of its own",
        f"time limit {', '.join(f'{v:g}' for v in limits)} s" if limits else "no time limit",
        *machines,
        f"page made on {time.strftime('%Y-%m-%d')}",
    ]
    if failed:
        facts.append(f"{failed} runs failed or were killed: their rows say why")
    text = f"<p>{escape('; '.join(facts))}.</p>"
    text += (
        "<p class='soft'>Values are energies, lower is better; bounds are certified lower bounds, higher is better. "
        "A run is verified when its bound meets its value. The best of the measured runs is marked. "
        f"Rows tagged <span class='tag'>published</span> are quoted from {escape(published.SOURCE)}: "
        "another machine, other implementations, a limit of one hour; they are not measured here.</p>"
    )
    return text


# ---------------------------------------------------------------------- tables


def _cell(text: str, sort: float | str | None = None, mark: bool = False) -> str:
    key = "" if sort is None else f"{sort!r}" if isinstance(sort, float) else escape(str(sort))
    kind = ' class="best"' if mark else ""
    return f'<td data-sort="{key}"{kind}>{text}</td>'


def _line(cells: list[str], quoted: bool) -> str:
    return ('<tr class="published">' if quoted else "<tr>") + "".join(cells) + "</tr>"


def _table(caption: str, header: tuple[str, ...], rows: list[str]) -> str:
    heads = "".join(f'<th scope="col"><button type="button">{escape(h)}</button></th>' for h in header)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="sortable">'
        f"<caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _name(method: str, quoted: bool) -> str:
    text = escape(published.NAMES.get(method, method) if quoted else method)
    return f'{text} <span class="tag">published</span>' if quoted else text


def _summary(group: Group) -> str:
    """Means and shares per method, measured first; nothing where the runs of a single instance say it all."""
    elsewhere = not group.published and any(i.family == group.family and i.name in group.instances for i in PAPER)
    if len(group.instances) == 1 and not (elsewhere and published.of(group.family)):
        return ""
    header = ("method", "mean value", "mean bound", "mean time (s)", "best value %", "best bound %", "verified %")
    rows = []
    common = [i for i in group.instances if any(k[0] == i for k in group.published)]
    sources: list[tuple[dict[tuple[str, str], Entry], list[str], float, bool]] = [
        (group.measured, group.instances, BEST_TOLERANCE, False)
    ]
    theirs, instances = group.published, common
    note = ""
    if elsewhere:
        theirs = {key: from_figure(f) for key, f in published.of(group.family).items()}
        instances = list(dict.fromkeys(i for i, _ in theirs))
        note = "; the published means are over other instances of the family"
    if theirs:
        sources.append((theirs, instances, PAPER_TOLERANCE, True))
        if not note and len(instances) < len(group.instances):
            note = f"; the published means are over {', '.join(instances)}"
    for entries, over, tolerance, quoted in sources:
        known = dict.fromkeys(m for _, m in entries)
        for method in [m for m in (published.NAMES if quoted else group.methods) if m in known]:
            s = statistics(entries, over, method, tolerance)
            cells = [_cell(_name(method, quoted), method)]
            cells += [_cell(number(v, "–"), v) for v in (s.value, s.bound, s.runtime)]
            cells += [_cell(f"{v:.0f}", v) for v in (s.best_value, s.best_bound, s.verified)]
            rows.append(_line(cells, quoted))
    size = f"all {len(group.instances)} instances" if len(group.instances) > 1 else group.instances[0]
    return _table(f"{group.family}: {size}{note}", header, rows)


def _runs(group: Group, instance: str) -> str:
    """All runs of one instance."""
    rows = []
    low, high = best(group.measured, instance)
    for entries, names, quoted in ((group.measured, group.methods, False), (group.published, published.NAMES, True)):
        for method in names:
            if (instance, method) in entries:
                rows.append(_run_row(method, entries[instance, method], quoted, low, high))
    return _table(f"runs on {instance}", RUN_COLUMNS, rows)


def _run_row(method: str, item: Entry, quoted: bool, low: float | None, high: float | None) -> str:
    gap = None
    if item.value is not None and item.bound is not None:
        gap = 0.0 if item.verified else 100.0 * max(0.0, item.value - item.bound) / max(1.0, abs(item.value))
    top = not quoted and item.value is not None and item.feasible and low is not None
    sharp = not quoted and item.bound is not None and high is not None
    close = BEST_TOLERANCE
    status = "" if quoted else item.status.replace("_", " ").lower()
    if item.reason:
        status += f": {item.reason}"
    value = number(item.value, "–" if quoted or item.reason else "infeasible")
    cells = [
        _cell(_name(method, quoted), method),
        _cell(value, item.value, bool(top and item.value - low <= close * max(1.0, abs(low)))),  # type: ignore[operator,arg-type]
        _cell(
            number(item.bound, "–"),
            item.bound,
            bool(sharp and high - item.bound <= close * max(1.0, abs(high))),  # type: ignore[operator,arg-type]
        ),
        _cell("–" if gap is None else f"{gap:.3g}", gap),
        _cell(number(item.runtime, "–"), item.runtime),
        _cell("–" if item.memory is None else f"{item.memory:.0f}", item.memory),
        f'<td class="words" data-sort="{escape(status)}">{escape(status[:160])}</td>',
    ]
    return _line(cells, quoted)


def _ratios(rows: list[Row]) -> str:
    """Ours beside other programs, where some were run."""
    table = ratios(rows)
    if table is None:
        return ""
    lines = [
        _line([_cell(f"<b>{escape(c.text)}</b>" if c.bold else escape(c.text), _sortable(c.text)) for c in row], False)
        for row in table.rows
    ]
    notes = "".join(f"<p class='soft'>{escape(note)}</p>" for note in table.notes)
    return f'<section id="ratios"><h2>Ratios</h2>{notes}{_table(table.title, tuple(table.header), lines)}</section>'


def _sortable(text: str) -> float | str:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return text


# ---------------------------------------------------------------------- charts and pictures


def _family(group: Group, colours: dict[str, str]) -> str:
    parts = [f'<section id="{escape(group.family)}"><h2>{escape(group.family)}</h2>', _summary(group)]
    for k, instance in enumerate(group.instances):
        parts.append(f"<h3>{escape(instance)}</h3>")
        sizes = next((r for (i, _), r in group.rows.items() if i == instance and r.get("variables")), None)
        if sizes is not None:
            parts.append(
                f"<p class='soft'>{sizes['variables']} variables, up to {sizes['max_labels']} labels, "
                f"{sizes['factors']} factors of order up to {sizes['max_order']}</p>"
            )
        parts.append(_chart(group, instance, colours, f"{group.family}-{k}"))
        parts.append(_runs(group, instance))
        parts.append(_gallery(group, instance))
    parts.append("</section>")
    return "\n".join(parts)


def _chart(group: Group, instance: str, colours: dict[str, str], identity: str) -> str:
    series = []
    for method in group.methods:
        row = group.rows.get((instance, method))
        if row is None or row.get("elapsed") is None:
            continue
        points = [(float(t), e, b) for t, e, b in row.get("trace") or []]
        points.append((float(row["elapsed"]), row.get("energy"), row.get("lower_bound")))
        series.append(Series(method, colours[method], points))
    svg = convergence_svg(f"Energy and lower bound against time, {instance}", series, escape(identity))
    if not svg:
        return ""
    items = "".join(f'<li><i style="border-color:{s.colour}"></i>{escape(s.name)}</li>' for s in series)
    note = "<li>solid: energy, dashed: lower bound</li>"
    return f'<figure>{svg}<ul class="legend">{items}{note}</ul></figure>'


def _gallery(group: Group, instance: str) -> str:
    """Reference pictures first, then the labelling of every method with its energy."""
    figures = [_figure(data, f"{title} of {instance}", escape(title)) for title, data in _references(group, instance)]
    low, _ = best(group.measured, instance)
    for method in group.methods:
        row = group.rows.get((instance, method))
        if row is None or not row.get("picture"):
            continue
        energy = row.get("energy")
        text = number(energy, "infeasible")
        alternative = f"labelling of {instance} by {method}, energy {text}"
        first = energy is not None and low is not None and energy - low <= BEST_TOLERANCE * max(1.0, abs(low))
        caption = f"{escape(method)}<br/>" + (f"<b>{text}</b>" if first else text)
        figures.append(_figure(base64.b64decode(row["picture"]), alternative, caption))
    return f'<div class="gallery">{"".join(figures)}</div>' if figures else ""


def _references(group: Group, instance: str) -> list[tuple[str, bytes]]:
    for known in (*PAPER, *SMOKE):
        if (known.family, known.name) == (group.family, instance) and known.reference is not None and not known.missing:
            return [(title, _png(array)) for title, array in known.reference().items()]
    return []


def _png(array: Any) -> bytes:
    from PIL import Image

    step = -(-max(array.shape[:2]) // 640)
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array[::step, ::step])).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _figure(png: bytes, alternative: str, caption: str) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        width, height = image.size
    small = ' class="small"' if max(width, height) < SMALL else ""
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img{small} src="data:image/png;base64,{data}" alt="{escape(alternative)}" width="{width}" '
        f'height="{height}"/><figcaption>{caption}</figcaption></figure>'
    )
