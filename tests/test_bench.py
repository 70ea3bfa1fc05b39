"""The benchmark: runs in processes of their own, resumption, tables, and the page."""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

import tightmap as tm
from bench_worker import RING, worker_that
from tightmap.bench import published, runner
from tightmap.bench.charts import Series, convergence_svg, ticks, time_ticks
from tightmap.bench.formats import render
from tightmap.bench.instances import FAMILIES, PAPER, SMOKE, find
from tightmap.bench.records import Run, append_row, read_rows
from tightmap.bench.report import render_report
from tightmap.bench.suites import built_in, from_file
from tightmap.bench.tables import Entry, collect, family_table, published_table, statistics
from tightmap.bench.worker import compilation, perform, thin


def fake(method, energy, bound=None, instance="ring", family="inpainting-n4", **more):
    """A row as a worker writes it."""
    run = Run(family, instance, method, 10.0)
    row = {"key": run.key(), "family": family, "instance": instance, "method": method, "time_limit": 10.0, "seed": 0}
    row |= {"status": "CONVERGED", "energy": energy, "lower_bound": bound, "feasible": energy is not None}
    row |= {
        "elapsed": 1.5,
        "iterations": 7,
        "peak_memory_mb": 100.0,
        "trace": [[0.1, energy, bound], [0.5, energy, bound]],
    }
    return row | more


# ---------------------------------------------------------------------- records


def test_rows_survive_a_torn_line(tmp_path):
    path = tmp_path / "r.jsonl"
    append_row(path, {"key": "a", "energy": math.inf, "n": np.int64(3), "x": np.float64("nan")})
    with open(path, "a") as file:
        file.write('{"key": "b", "ener')  # interrupted here
    assert [r["key"] for r in read_rows(path)] == ["a"]
    append_row(path, {"key": "c"})
    rows = read_rows(path)
    assert [r["key"] for r in rows] == ["a", "c"]
    assert rows[0] == {"key": "a", "energy": None, "n": 3, "x": None}
    assert read_rows(tmp_path / "none.jsonl") == []


def test_key_tells_runs_apart():
    assert RING.key() == Run("inpainting-n4", "ring-40", "bcd", time_limit=5.0).key()
    for other in (replace(RING, seed=1), replace(RING, time_limit=6.0), replace(RING, options={"a": 1})):
        assert other.key() != RING.key()


# ---------------------------------------------------------------------- runner


def test_run_in_a_process_and_resume(tmp_path):
    path = tmp_path / "r.jsonl"
    wrong = replace(RING, method="trws", family="segmentation", instance="seed-1-16")  # takes pairs, gets fours
    crash = replace(RING, source={"path": str(tmp_path / "missing.uai")})
    runs = [RING, wrong, crash]
    seen = []
    runner.execute(runs[:2], path, jobs=2, after=lambda run, row: seen.append(run))
    assert sorted(r.method for r in seen) == ["bcd", "trws"]
    assert runner.pending(runs, path) == [crash]  # what is finished is not repeated
    runner.execute(runner.pending(runs, path), path)
    rows = {r["key"]: r for r in read_rows(path)}
    good = rows[RING.key()]
    model = find("inpainting-n4", "ring-40").build().model
    result = tm.solve(model, "bcd")
    assert good["status"] == "CONVERGED" and good["energy"] == result.energy and good["lower_bound"] is None
    assert good["peak_memory_mb"] > 30 and good["variables"] == 1600 and good["picture"] and good["trace"]
    assert rows[wrong.key()]["status"] == "REFUSED" and "at most 2 variables" in rows[wrong.key()]["reason"]
    assert rows[crash.key()]["status"] == "REFUSED" and "missing.uai" in rows[crash.key()]["reason"]
    assert runner.pending(runs, path) == []


STARTED = "print(flush=True)"


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("raise SystemExit('no such thing')", "FAILED", "no such thing"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "KILLED", "SIGSEGV"),
        (f"{STARTED}; import time; time.sleep(60)", "KILLED", "did not stop"),
        ("x = bytearray(300 << 20); import time; time.sleep(60)", "KILLED", "more than 200 MiB"),
    ],
    ids=["error", "signal", "endless", "memory"],
)
def test_what_goes_wrong_is_a_row(tmp_path, monkeypatch, code, status, reason):
    path = tmp_path / "r.jsonl"
    worker_that(monkeypatch, code)
    monkeypatch.setattr(runner, "GRACE", 0.2)
    runner.execute([replace(RING, time_limit=0.2)], path, memory_limit=200)
    (row,) = read_rows(path)
    assert row["status"] == status and reason in row["reason"]
    run = replace(RING, time_limit=0.2)
    assert runner.pending([run], path) == [] and runner.pending([run], path, retry=True) == [run]


def test_interruption_keeps_what_is_finished(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    worker_that(monkeypatch, """print('{"status": "CONVERGED"}')""")
    runs = [replace(RING, seed=k) for k in range(4)]

    def after(run, row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.execute(runs, path, after=after)
    done = len(read_rows(path))
    assert 1 <= done < 4
    left = runner.pending(runs, path)
    assert len(left) == 4 - done
    runner.execute(left, path)
    assert len(read_rows(path)) == 4 and runner.pending(runs, path) == []


# ---------------------------------------------------------------------- suites


def test_suites():
    assert FAMILIES == ("inpainting-n4", "inpainting-n8", "matching", "stereo", "segmentation", "second-order")
    names = [(i.family, i.name) for i in (*PAPER, *SMOKE)]
    assert len(set(names)) == len(names)
    paper = built_in("paper", families=["inpainting"], methods=["bcd"], time_limit=3.0)
    assert [(r.family, r.instance, r.time_limit) for r in paper.runs] == [
        (f"inpainting-n{n}", name, 3.0) for n in (4, 8) for name in ("ring", "ring-inverse")
    ]
    assert {r.method for r in built_in("smoke").runs} <= {m["name"] for m in tm.methods()}
    one = built_in("paper", families=["segmentation/seed-3"], methods=["bcd", "trws", "admm"])
    assert [(r.instance, r.method) for r in one.runs] == [("seed-3", "bcd"), ("seed-3", "admm")]  # TRW-S takes pairs
    with pytest.raises(tm.OptionError, match="families are"):
        built_in("paper", families=["nothing"])
    with pytest.raises(tm.OptionError, match="unknown method"):
        built_in("smoke", methods=["nothing"])
    with pytest.raises(tm.OptionError, match="unknown suite"):
        built_in("nothing")


def test_missing_data_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("TIGHTMAP_DATA", str(tmp_path))
    suite = built_in("paper", methods=["bcd"])
    left_out = [line.split(":")[0] for line in suite.skipped]
    assert "matching/matching0" in left_out and "stereo/tsukuba" in left_out
    assert all(r.instance != "tsukuba" for r in suite.runs) and any(r.family == "inpainting-n4" for r in suite.runs)


def test_suite_file(tmp_path):
    model = tm.Model([2, 2])
    model.add_potts([[0, 1]], [1.0])
    tm.write(model, tmp_path / "pair.uai")
    file = tmp_path / "mine.toml"
    file.write_text(
        'time_limit = 2\nmethods = ["bcd"]\nseeds = [0, 1]\n[[model]]\npath = "pair.uai"\n'
        '[[model]]\nname = "small"\nproblem = "inpainting"\narguments = {size = 10}\n'
    )
    suite = from_file(str(file))
    assert [(r.instance, r.seed) for r in suite.runs] == [("pair.uai", 0), ("pair.uai", 1), ("small", 0), ("small", 1)]
    assert perform(suite.runs[0])["energy"] == pytest.approx(0.0)
    assert perform(suite.runs[2])["variables"] == 100
    for text, message in [
        ("nonsense = 1\n[[model]]\npath='pair.uai'", "unknown key 'nonsense'"),
        ("time_limit = 1", "at least one"),
        ("[[model]]\npath = 'none.uai'", "does not exist"),
        ("[[model]]\nname = 'x'", "either path or problem"),
        ("[[model]]\nproblem = 'os'", "unknown problem"),
        ("= =", "not a TOML file"),
    ]:
        file.write_text(text)
        with pytest.raises(tm.ModelError, match=message):
            from_file(str(file))


# ---------------------------------------------------------------------- published figures and tables


def test_published_figures():
    assert len(published.figures()) == 289
    ring = published.of("inpainting-n4", "triplepoint4-plain-ring")
    assert ring["triplepoint4-plain-ring", "trws"].value == 484.59
    admm = published.of("stereo", "tsu-gm")["tsu-gm", "admm"]
    assert (admm.value, admm.bound, admm.runtime) == (375954.0, None, 807.70)
    assert {f.method for f in published.figures()} == set(published.NAMES)
    # the means of the supplement, and of SRMP, which proves all ten instances
    entries = published_table("segmentation")
    header = entries.header.index("SRMP")
    last = {row[0].text: row[header].text for row in entries.rows}
    assert (last["mean value"], last["mean bound"], last["verified opt %"]) == ("1400.57", "1400.57", "100.00")


def test_statistics():
    entries = {
        ("a", "x"): Entry(1.0, 0.5, 1.0),
        ("a", "y"): Entry(2.0, 1.0, 3.0),
        ("b", "x"): Entry(5.0, 5.0, 1.0, verified=True),
        ("b", "y"): Entry(5.0, None, 1.0),
    }
    x, y = (statistics(entries, ["a", "b"], m, 1e-6) for m in "xy")
    assert (x.value, x.bound, x.runtime) == (3.0, 2.75, 1.0)
    assert (x.best_value, x.best_bound, x.verified) == (100.0, 50.0, 50.0)
    assert (y.value, y.bound, y.best_value, y.best_bound, y.verified) == (3.5, None, 50.0, 50.0, 0.0)


@pytest.fixture
def rows():
    return [
        fake("trws", 484.5906674, 484.59, status="OPTIMAL"),
        fake("bcd", 528.1),
        fake("auto", 424.2, 411.0, instance="ring-inverse"),
        fake("trws", None, instance="ring-inverse", status="KILLED", reason="used more <than> 1 & 2"),
        fake("srmp", 153.25, 153.25, "seed-1", "segmentation", status="OPTIMAL"),
        fake("bcd", None, None, "own|model", "my_family", status="TIME_LIMIT"),
    ]


def test_family_table(rows):
    group = collect(rows)[0]
    assert group.family == "inpainting-n4" and group.instances == ["ring", "ring-inverse"]
    table = family_table(group)
    column = table.header.index("trws")
    cells = {(i, row[1].text): row[column] for i, row in enumerate(table.rows)}
    assert cells[0, "value"].text == "484.59" and cells[0, "value"].bold and not cells[0, "value"].published
    assert table.rows[3][0].text == "published" and cells[3, "value"].text == "484.59" and cells[3, "value"].published
    assert cells[6, "value"].text == "killed"
    assert any("used more" in note for note in table.notes)
    assert "fastpd" in table.header  # published only
    assert table.rows[0][table.header.index("fastpd")].text == ""
    means = {row[0].text: row[column].text for row in table.rows}
    assert means["mean value"] == "" and means["published, mean value"] == "490.48"


def test_formats(rows):
    text = render(rows, "markdown")
    assert "| ring | value |" in text and "**484.59**" in text and "own\\|model" in text
    lines = list(csv.DictReader(render(rows, "csv").splitlines()))
    ours = [r for r in lines if r["source"] == "measured"]
    assert len(ours) == len(rows) and float(ours[0]["value"]) == 484.5906674
    assert {r["source"] for r in lines} == {"measured", "published"}
    latex = render(rows, "latex")
    assert latex.count("\\begin{longtable}") == latex.count("\\end{longtable}") > 0
    assert "my\\_family" in latex and "\\&" in latex and "<than>" in latex
    assert latex.count("{") - latex.count("\\{") == latex.count("}") - latex.count("\\}")
    shown = render(rows, "terminal")
    assert "ring-inverse" in shown and "published" in shown
    assert "[/b]" in render([fake("bcd", 1.0, None, "[red]", "[/b]")], "terminal")  # brackets in names are no markup


# ---------------------------------------------------------------------- the page


def test_trace_is_thinned():
    trace = [{"elapsed": 0.01 * (k + 1), "energy": 1e6 - k, "lower_bound": -math.inf} for k in range(5000)]
    points = thin(trace, 100)
    assert len(points) <= 102 and points[0][0] == 0.01 and points[-1][1] == 1e6 - 4999
    flat = thin([{"elapsed": float(k), "energy": 1.0, "lower_bound": 0.0} for k in range(10)])
    assert flat == [[0.0, 1.0, 0.0]]


def test_chart_ticks():
    assert ticks(0.0, 10.0, 5) == [0, 2, 4, 6, 8, 10]
    assert ticks(3.0, 3.0) == [3.0]
    assert time_ticks(0.9, 1100) == [1, 10, 100, 1000]
    svg = convergence_svg("t <&>", [Series("a", "#123456", [(0.1, 5.0, None), (1.0, 4.0, 3.5)])], "c")
    tree = ET.fromstring(svg)
    paths = [p for p in tree.iter() if p.tag.endswith("path")]
    assert len(paths) == 2 and tree.find("title").text == "t <&>"
    assert convergence_svg("t", [Series("a", "#123456", [(0.1, None, None)])], "c") == ""


def page_of(rows):
    picture = perform(RING)["picture"]
    return render_report(
        [r | {"picture": picture} if r["energy"] is not None else r for r in rows], "test", ["x/y: gone"]
    )


def test_page_is_well_formed_and_self_contained(rows):
    text = page_of(rows)
    tree = ET.fromstring(text)
    images = list(tree.iter("img"))
    assert images and all(i.get("alt") and i.get("src").startswith("data:image/png") for i in images)
    assert all(e.get("href", "#").startswith(("#", "data:")) for e in tree.iter() if e.tag in ("a", "link"))
    assert not [e for e in tree.iter() if e.tag == "script" and e.get("src")]
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(set(ids)) == len(ids)
    assert "used more &lt;than&gt; 1 &amp; 2" in text and "prefers-color-scheme: dark" in text
    tables = list(tree.iter("table"))
    # two summaries (the third family has one instance and nothing published), a table of runs per instance
    assert len(tables) == 2 + 4 and all(t.find("caption").text for t in tables)


CHECK = """<script>
window.addEventListener("error", e => { document.documentElement.dataset.error = e.message || "resource"; }, true);
window.addEventListener("load", () => {
  const table = document.querySelectorAll("table.sortable")[1];
  const column = () => [...table.tBodies[0].rows].map(r => r.cells[1].dataset.sort).filter(v => v !== "").map(Number);
  const button = table.tHead.rows[0].cells[1].querySelector("button");
  button.click(); const up = column(); button.click(); const down = column();
  const sorted = a => a.every((v, i) => i === 0 || a[i - 1] <= v);
  document.documentElement.dataset.sorted = up.length > 3 && sorted(up) && sorted([...down].reverse());
  document.documentElement.dataset.drawn = [...document.images].every(i => i.complete && i.naturalWidth > 0);
  document.documentElement.dataset.wide = document.documentElement.scrollWidth > innerWidth;
});
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1280])
def test_page_in_a_browser(rows, tmp_path, width):
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    if browser is None:
        pytest.skip("no Chromium is installed: the page is not opened in a browser")
    file = tmp_path / "page.html"
    file.write_text(page_of(rows).replace("<head>", "<head>" + CHECK))
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},900",
        "--virtual-time-budget=5000",
    ]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run([browser, *options], capture_output=True, text=True, timeout=120, check=False)
    if not done.stdout.strip():
        pytest.skip(f"{browser} does not start here: {done.stderr.strip()[-200:]}")
    start = done.stdout[: done.stdout.index("<head>")]
    assert "data-error" not in start
    assert 'data-sorted="true"' in start and 'data-drawn="true"' in start and 'data-wide="false"' in start


# ---------------------------------------------------------------------- peers and the command


def test_peers_agree_with_brute_force():
    from problems import random_model
    from tightmap.bench.peers import installed, solve_with

    rng = np.random.default_rng(0)
    exact = [p for p in ("peer:toulbar2", "peer:highs") if p in installed()]
    assert "peer:highs" in exact
    for hard in (0.0, 0.1):
        model = random_model(rng, n=5, labels=3, factors=6, order=3, hard=hard, tidy=True)
        lowest = min(model.energy(np.array(x)) for x in np.ndindex(*model.cardinalities))
        for peer in exact:
            found = solve_with(peer, model, 20.0)
            assert model.energy(found["labels"]) == pytest.approx(lowest, abs=1e-5)
            assert found["lower_bound"] <= lowest + 1e-6 and found["status"] == "OPTIMAL"
    ring = find("inpainting-n4", "ring-40").build().model
    for peer in ("peer:gco-expansion", "peer:gco-swap", "peer:maxflow"):
        if peer in installed():
            assert ring.energy(solve_with(peer, ring, None)["labels"]) == pytest.approx(159.435827, abs=1e-5)


def test_maxflow_peer_is_exact_on_binary_models():
    pytest.importorskip("maxflow", reason="PyMaxflow is not installed")
    from tightmap.bench.peers import solve_with

    rng = np.random.default_rng(1)
    model = tm.Model(np.full(6, 2))
    model.add_unaries(rng.normal(size=(6, 2)))
    scopes = np.array([[0, 1], [2, 1], [2, 3], [4, 3], [5, 0], [5, 4]])
    tables = rng.normal(size=(6, 2, 2))
    tables[:, 0, 1] += np.maximum(0, tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0])
    model.add_factors(scopes, tables)
    lowest = min(model.energy(np.array(x)) for x in np.ndindex(*model.cardinalities))
    assert model.energy(solve_with("peer:maxflow", model, None)["labels"]) == pytest.approx(lowest, abs=1e-9)


def test_command(tmp_path):
    """One small suite from the command line, twice: the second time nothing is run."""
    file = tmp_path / "mine.toml"
    file.write_text('methods = ["bcd"]\n[[model]]\nproblem = "inpainting"\narguments = {size = 8}\n')
    command = [sys.executable, "-m", "tightmap.cli.main", "bench", str(file), "--out", str(tmp_path / "r.jsonl")]
    command += ["--report", str(tmp_path / "r.html"), "--format", "csv"]
    code = "import sys; sys.argv = sys.argv[1:]; from tightmap.cli.main import main; main()"
    command[1:3] = ["-c", code, "tightmap"]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1 of 1 runs are already" in again.stderr and first.stdout == again.stdout
    assert len(read_rows(tmp_path / "r.jsonl")) == 1 and (tmp_path / "r.html").stat().st_size > 2000
    assert json.loads((tmp_path / "r.jsonl").read_text())["status"] in ("CONVERGED", "OPTIMAL")
    command[command.index("csv")] = "doc"
    bad = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and "--format takes" in bad.stderr and "Traceback" not in bad.stderr


def test_compilation_is_noticed():
    """A kernel that is compiled inside of the block counts once, with those that it calls; the clock is renewed."""
    import numba

    @numba.njit
    def inner(x):
        return x + 1

    @numba.njit
    def outer(x):
        return inner(x) * 2

    with compilation() as seconds:
        outer(3)
    assert len(seconds) == 1 and seconds[0] > 0
    with compilation() as seconds:
        outer(4)
    assert seconds == []


# ---------------------------------------------------------------------- ours beside other programs


def duel_rows():
    cut = {"family": "binary", "instance": "image-1000"}
    return [
        fake("auto", -5.0, -5.0, **cut, status="OPTIMAL", elapsed=2.0),
        fake("peer:maxflow", -5.0, -5.0, **cut, status="OPTIMAL", elapsed=3.0),
        fake("expansion", 10.0, family="stereo", instance="teddy", elapsed=4.0, peak_memory_mb=200.0),
        fake("peer:gco-expansion", 11.0, family="stereo", instance="teddy", elapsed=2.0, peak_memory_mb=300.0),
        fake("trws", 9.0, family="stereo", instance="venus"),
    ]


def test_ratios_are_theirs_over_ours():
    from tightmap.bench.duels import ratios

    table = ratios(duel_rows())
    lines = [[cell.text for cell in row] for row in table.rows]
    assert [line[:3] for line in lines] == [
        ["binary/image-1000", "auto", "maxflow"],
        ["stereo/teddy", "expansion", "gco-expansion"],
    ]
    assert lines[0][5] == "1.50" and lines[0][-1] == ""  # times only
    assert lines[1][5] == "0.50" and lines[1][-3:] == ["200", "300", "1.50"]
    assert "proven" in lines[0][6] and "proven" not in lines[1][6]
    assert ratios([fake("trws", 9.0)]) is None


def test_ratios_are_in_every_format_and_in_the_report():
    rows = duel_rows()
    for kind in ("terminal", "markdown", "latex"):
        text = render(rows, kind)
        assert "ours beside other programs" in text and "1.50" in text
    page = render_report(rows)
    assert 'id="ratios"' in page and "<b>1.50</b>" in page
    assert 'id="ratios"' not in render_report([fake("trws", 9.0)])


def test_every_duel_has_its_model_and_its_programs():
    from tightmap.bench.duels import DUELS
    from tightmap.bench.peers import PEERS

    known = {m["name"] for m in tm.methods()}
    for duel in DUELS:
        assert find(duel.family, duel.instance).name == duel.instance
        assert set(duel.ours) <= known and set(duel.peers) <= set(PEERS)
    assert len({(d.family, d.instance) for d in DUELS}) == len(DUELS)


def test_the_suite_of_peers():
    runs = built_in("peers", families=["binary"]).runs
    assert {r.instance for r in runs} == {"image-1000", "volume-100"} and {r.threads for r in runs} == {1}
    assert {r.method for r in runs} >= {"auto"}
    asked = built_in("peers", families=["tiny/ring-10"], methods=["bcd"]).runs
    assert [(r.instance, r.method) for r in asked] == [("ring-10", "bcd")]
    with pytest.raises(tm.OptionError, match=r"families are .*binary"):
        built_in("peers", families=["nothing"])


def test_tiny_models_are_built_and_solved_together(monkeypatch):
    from tightmap.bench import worker

    monkeypatch.setattr(worker, "REPEATING", 0.05)
    row = worker.perform(Run("tiny", "cut-10", "qpbo", 10.0, threads=1))
    assert row["status"] == "OPTIMAL" and 0.0 < row["elapsed"] < 1.0


def test_gco_has_a_process_of_its_own():
    pytest.importorskip("gco", reason="gco-wrapper is not installed")
    from tightmap.bench.peers import solve_with

    ring = find("inpainting-n4", "ring-40").build().model
    found = solve_with("peer:gco-expansion", ring, None)
    assert ring.energy(found["labels"]) == pytest.approx(159.435827, abs=1e-5)
    assert 10.0 < found["peak_memory_mb"] < 200.0  # Python with NumPy, and a small model
    whole = tm.Model.grid(40, 40, 4)
    rng = np.random.default_rng(0)
    whole.add_unaries(rng.integers(0, 30, size=(1600, 4)).astype(float))
    whole.add_truncated_linear(whole.edges(), rng.integers(1, 9, size=len(whole.edges())).astype(float), 2.0)
    theirs = whole.energy(solve_with("peer:gco-expansion", whole, None)["labels"])
    assert theirs <= 1.05 * tm.solve(whole, "expansion", time_limit=20.0).energy
