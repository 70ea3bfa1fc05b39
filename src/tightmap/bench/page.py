"""The frame of the report page: styles for light and dark, narrow and wide, and the script that sorts tables."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --back: #ffffff; --panel: #f6f8fa;
  --line: #d0d7de; --accent: #0b62c4; --mark: #fff4cc; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --soft: #9aa4af; --back: #0d1117; --panel: #161b22; --line: #30363d; --accent: #6cb0ff;
    --mark: #3a3110; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { margin: 2rem 0 .5rem; }
a { color: var(--accent); } p.soft, figcaption, caption, .notes { color: var(--soft); font-size: .9rem; }
nav { display: flex; flex-wrap: wrap; gap: .4rem 1rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; padding: .4rem .6rem; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
td.words { text-align: left; white-space: normal; min-width: 16rem; }
thead th { background: var(--panel); border-top: 0; padding: 0; }
thead th button { all: unset; box-sizing: border-box; width: 100%; padding: .4rem .6rem; cursor: pointer;
  font-weight: 600; }
thead th button:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
thead th[aria-sort=ascending] button::after { content: " \\2191"; }
thead th[aria-sort=descending] button::after { content: " \\2193"; }
td.best { font-weight: 700; background: var(--mark); }
tr.published td { color: var(--soft); font-style: italic; }
.tag { font-size: .75rem; border: 1px solid var(--line); border-radius: 9px; padding: 0 .45rem; font-style: normal; }
.chart { width: 100%; max-width: 46rem; height: auto; display: block; }
.chart text { fill: var(--soft); font: 12px system-ui, sans-serif; } .chart .grid { stroke: var(--line); }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: .3rem 0 1rem;
  font-size: .9rem; }
ul.legend i { display: inline-block; width: 1.4rem; height: 0; border-top: 3px solid; vertical-align: middle;
  margin-right: .4rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 11.5rem), 1fr)); gap: .8rem; }
@media (max-width: 34rem) { .gallery { grid-template-columns: 1fr 1fr; } body { padding: .7rem; }
  .chart text { font-size: 19px; } .chart text.minor { display: none; } }
figure { margin: 0; } figure img { width: 100%; height: auto; border: 1px solid var(--line); border-radius: 4px;
  display: block; } img.small { image-rendering: pixelated; }
figcaption b { color: var(--text); }
details summary { cursor: pointer; color: var(--accent); margin: .5rem 0; }
"""

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = table.tBodies[0];
    const key = row => row.cells[column].dataset.sort ?? row.cells[column].textContent;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");   // what is missing stays at the end
      const [p, q] = [Number(x), Number(y)];
      const order = Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y) : p - q;
      return up ? order : -order;
    });
    body.append(...rows);
  }));
}
"""

# an empty icon, so that no browser asks a server for one
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E"
    "%3Crect width='8' height='8' fill='%232b83ba'/%3E%3C/svg%3E"
)


def page(title: str, body: str) -> str:
    """A complete document in one file, without anything to load."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f'<title>{title}</title>\n<link rel="icon" href="{ICON}"/>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n<script>/*<![CDATA[*/{SCRIPT}/*]]>*/</script>\n</body>\n</html>\n"
    )
