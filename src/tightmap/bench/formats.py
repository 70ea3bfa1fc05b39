"""Tables as text: for a terminal, as Markdown, as LaTeX, and the runs behind them as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from tightmap.bench.duels import ratios
from tightmap.bench.records import Row
from tightmap.bench.tables import Cell, Group, Table, collect
from tightmap.bench.tables import tables as family_tables

COLUMNS = 8  # methods side by side before a table continues below, as in the paper


def split(table: Table, columns: int = COLUMNS) -> list[Table]:
    """A wide table as several with at most ``columns`` methods each."""
    width = len(table.header) - table.fixed
    if width <= columns:
        return [table]
    parts = []
    for start in range(0, width, columns):
        stop = min(start + columns, width)
        pick = [*range(table.fixed), *range(table.fixed + start, table.fixed + stop)]
        last = stop == width
        parts.append(
            Table(
                table.title + (", continued" if start else ""),
                [table.header[k] for k in pick],
                [[row[k] for k in pick] for row in table.rows],
                table.rules,
                table.notes if last else [],
                table.fixed,
            )
        )
    return parts


def tables(groups: list[Group], brief: bool = False) -> list[Table]:
    """The tables of all families, and where other programs were run beside ours, the ratios."""
    compared = ratios([row for group in groups for row in group.rows.values()])
    return family_tables(groups, brief) + ([] if compared is None else [compared])


def terminal(groups: list[Group], width: int | None = None) -> str:
    """Tables drawn with rich, as wide as the terminal."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    stream = io.StringIO()
    console = Console(file=stream, width=width or Console().width, highlight=False)
    for table in tables(groups, brief=True):
        lines = [[Cell(h) for h in table.header], *table.rows]
        widths = [2 + max(len(line[k].text) for line in lines) for k in range(len(table.header))]
        room = console.width - sum(widths[: table.fixed]) - 2
        for part in split(table, max(1, min(COLUMNS, room // max(widths[table.fixed :], default=1)))):
            drawn = RichTable(title=Text(part.title), box=SIMPLE, title_justify="left", pad_edge=False)
            for k, name in enumerate(part.header):
                drawn.add_column(Text(name), justify="left" if k < part.fixed else "right", no_wrap=True)
            for k, row in enumerate(part.rows):
                if k in part.rules and k:
                    drawn.add_section()
                drawn.add_row(*(Text(c.text, "bold" if c.bold else "dim" if c.published else "") for c in row))
            console.print(drawn)
            for note in part.notes:
                console.print(Text(note, "dim"))
    return stream.getvalue()


def markdown(groups: list[Group]) -> str:
    """Tables in GitHub's Markdown; published figures are in italics, the best in bold."""
    lines: list[str] = []
    for table in tables(groups):
        lines += [f"### {table.title}", ""]
        lines.append("| " + " | ".join(table.header) + " |")
        lines.append("|" + "|".join(":--" if k < table.fixed else "--:" for k in range(len(table.header))) + "|")
        for row in table.rows:
            cells = []
            for cell in row:
                text = cell.text.replace("|", "\\|")
                text = f"**{text}**" if cell.bold and text else text
                cells.append(f"*{text}*" if cell.published and text else text)
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
        lines += [f"{note}  " for note in table.notes]
        lines.append("")
    return "\n".join(lines)


_SPECIAL = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "α": r"$\alpha$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_SPECIAL.get(c, c) for c in text)


def latex(groups: list[Group]) -> str:
    """Tables as in the paper's supplement; needs the packages longtable and booktabs."""
    lines = ["% \\usepackage{longtable,booktabs}"]
    for table in tables(groups):
        for part in split(table):
            align = "l" * part.fixed + "r" * (len(part.header) - part.fixed)
            lines += [
                f"{{\\scriptsize\\begin{{longtable}}{{{align}}}",
                f"\\caption[]{{{_latex(part.title)}}}\\\\",
                "\\toprule",
            ]
            lines.append(" & ".join(_latex(h) for h in part.header) + " \\\\ \\midrule \\endhead")
            for k, row in enumerate(part.rows):
                if k in part.rules and k:
                    lines.append("\\midrule")
                cells = []
                for cell in row:
                    text = _latex(cell.text)
                    text = f"\\textbf{{{text}}}" if cell.bold and text else text
                    cells.append(f"\\textit{{{text}}}" if cell.published and text else text)
                lines.append(" & ".join(cells) + " \\\\")
            lines += ["\\bottomrule", "\\end{longtable}"]
            lines += [f"{_latex(note)}\\\\" for note in part.notes]
            lines += ["}", ""]
    return "\n".join(lines)


CSV_HEADER = (
    "family", "instance", "method", "source", "value", "bound", "runtime", "status", "iterations", "peak_memory_mb",
    "seed", "time_limit", "reason",
)  # fmt: skip


def comma_separated(groups: list[Group]) -> str:
    """One line per run with all digits, measured and published, told apart by the column ``source``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_HEADER)

    def cell(value: object) -> object:
        return "" if value is None else repr(value) if isinstance(value, float) else value

    for group in groups:
        for (instance, method), item in group.measured.items():
            row = group.rows[instance, method]
            line = [group.family, instance, method, "measured", item.value, item.bound, item.runtime, item.status]
            line += [row.get(k) for k in ("iterations", "peak_memory_mb", "seed", "time_limit", "reason")]
            writer.writerow([cell(v) for v in line])
        for (instance, method), item in group.published.items():
            line = [group.family, instance, method, "published", item.value, item.bound, item.runtime, ""]
            writer.writerow([cell(v) for v in [*line, *([None] * 5)]])
    return stream.getvalue()


FORMATS: dict[str, Callable[[list[Group]], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}


def render(rows: list[Row], kind: str) -> str:
    """The tables of these rows in one of the formats."""
    return FORMATS[kind](collect(rows))
