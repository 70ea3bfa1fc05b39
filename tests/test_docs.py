"""The documentation is true: snippets run, commands exist, links lead somewhere, every method is described."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
import types
from pathlib import Path

import pytest
import typer

from tightmap.cli.commands import app
from tightmap.registry import ENGINES, METHODS, make_solver, solver_class
from tightmap.runtime import background

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import house

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tightmap"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
]
COMMANDS = typer.main.get_command(app).commands


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    """(line, text) of the fenced blocks in a language."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [(text[: m.start()].count("\n") + 2, m[1]) for m in found]


def spans(page):
    """Texts between single backquotes, outside of code blocks."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", re.sub(r"^ {4}.*$", "", prose, flags=re.MULTILINE))


def shell_lines(page, program):
    """Lines of shell blocks, fenced or indented, that run a program; without the prompt."""
    text = re.sub(r"^```python\n.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"^(?: {{4}}|\$ )({program} .*)$", text, flags=re.MULTILINE)


SNIPPETS = [
    pytest.param(page, line, text, id=f"{name_of(page)}:{line}")
    for page in PAGES
    for line, text in blocks(page, "python")
]


@pytest.mark.parametrize(("page", "line", "text"), SNIPPETS)
def test_python_snippets_run_alone(page, line, text, tmp_path, monkeypatch):
    """Each one in a module of its own, in an empty folder: nothing of the snippets before it is there."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("snippet")
    monkeypatch.setitem(sys.modules, "snippet", module)
    try:
        exec(compile("\n" * (line - 1) + text, str(page), "exec"), module.__dict__)
    finally:
        background.end_all()  # a snippet that starts helpers ends before them: they would compile beside other tests


def test_no_snippet_is_overlooked():
    """A block that is fenced in another way (indented, in capitals) would not be run."""
    fences = sum(page.read_text(encoding="utf-8").lower().count("```py") for page in PAGES)
    assert fences == len(SNIPPETS) >= 8


SHELL = [(page, line) for page in PAGES for line in shell_lines(page, "tightmap")]
INLINE = [(page, span) for page in PAGES for span in spans(page) if re.match(r"tightmap [a-z]", span)]


@pytest.mark.parametrize(("page", "line"), SHELL + INLINE, ids=lambda x: name_of(x) if isinstance(x, Path) else x)
def test_commands_and_their_options_exist(page, line):
    name, *arguments = shlex.split(line, comments=True)[1:]
    assert name in COMMANDS, f"{name_of(page)}: tightmap has no command {name!r}"
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts} | {"--help"}
    assert {a.partition("=")[0] for a in arguments if a.startswith("-") and a != "-"} <= known, (
        f"{name_of(page)}: {line}"
    )


@pytest.mark.parametrize(("page", "line"), SHELL, ids=lambda x: name_of(x) if isinstance(x, Path) else x)
def test_command_lines_parse(page, line):
    """As they are printed, with their arguments; methods and options of methods are real ones."""
    name, *arguments = shlex.split(line, comments=True)[1:]
    values = COMMANDS[name].make_context(name, list(arguments)).params
    if name == "solve":
        make_solver(values["method"], dict(pair.split("=") for pair in values["option"] or []))
    if name == "bench" and values["methods"]:
        assert set(values["methods"].split(",")) <= set(METHODS)


def test_shell_snippets_are_found():
    assert {name_of(page) for page, _ in SHELL} >= {"README.md", "docs/benchmarks.md"} and len(SHELL) >= 10


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for line in [*shell_lines(page, "make"), *(span for span in spans(page) if span.startswith("make "))]:
        assert line.split()[1] in targets, line


def test_the_suite_in_the_documentation_is_valid(tmp_path):
    ((_, text),) = blocks(ROOT / "docs" / "benchmarks.md", "toml")
    suite = tomllib.loads(text)
    assert set(suite["methods"]) <= set(METHODS) and set(suite["options"]) <= set(METHODS)
    from tightmap import problems

    assert all(hasattr(problems, model["problem"]) for model in suite["model"] if "problem" in model)


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    prose = re.sub(r"^ {4}.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)  # formulas are no links
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose):
        if "://" in target:
            continue
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in map(slug, headings), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page):
    for span in spans(page):
        for file in re.findall(r"[\w./-]+\.(?:py|md|svg)\b", span):
            assert any((folder / file).exists() for folder in (page.parent, ROOT, PACKAGE, ROOT / "tests")), file


def test_files_that_the_sources_name_exist():
    """Comments and docstrings name a file relative to their own folder, to the package or to the repository."""
    missing = [
        f"{name_of(path)}: {file}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for file in set(re.findall(r"(?<![\w/.])[\w/]+\.py\b", path.read_text(encoding="utf-8")))
        if not any((folder / file).exists() for folder in (path.parent, PACKAGE, ROOT))
    ]
    assert missing == []


def test_every_method_has_its_line_on_the_chooser_page():
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\* `([a-z0-9-]+)` – ", page, flags=re.MULTILINE)
    assert sorted(lines) == sorted([*METHODS, *ENGINES])


@pytest.mark.parametrize("method", [*METHODS, *ENGINES])
def test_every_method_begins_with_its_formulas(method):
    """The module states the update as an indented formula: an assignment, an equation or a probability."""
    about = sys.modules[solver_class(method).__module__].__doc__
    formulas = [
        line for line in about.splitlines() if re.match(r" {4,}\S", line) and re.search(r"<-| [-+]?= |>=", line)
    ]
    assert formulas, about


def test_the_map_of_the_house_names_every_room():
    """From the roof to the ground, as the arrows point."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## The house")[2].partition("\n## ")[0]
    rooms = [name for line in re.findall(r"^ {4}(.{20})", section, flags=re.MULTILINE) for name in line.split()]
    assert sorted(rooms) == sorted(house.FLOOR)
    floors = [house.FLOOR[name] for name in rooms]
    assert floors == sorted(floors, reverse=True)


def test_the_picture_of_the_house_is_up_to_date():
    picture = (ROOT / "docs" / "house.svg").read_text(encoding="utf-8")
    assert picture == house.draw(), "python tools/house.py --draw"


def test_exit_codes_in_the_readme_are_those_of_the_command_line():
    from tightmap.cli import main

    stated = set(re.findall(r"^ {4}(\d+) ", main.__doc__, flags=re.MULTILINE)) | set(
        re.findall(r"(\d+): SIG", main.__doc__)
    )
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| exit code |")[2].partition("\n\n")[0]
    assert set(re.findall(r"\b\d+\b", table)) == stated
