"""The recipes of the documentation run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tightmap as tm
from tightmap import driver

RECIPES = Path(__file__).parents[1] / "docs" / "recipes.md"


def test_recipes_run(monkeypatch, capsys):
    original = driver.solve

    def quick(model, *args, **kwargs):
        return original(model, *args, **{**kwargs, "time_limit": 1.0})

    monkeypatch.setattr(driver, "solve", quick)
    rng = np.random.default_rng(0)
    left = rng.integers(0, 255, (12, 20, 3)).astype(np.uint8)
    names = {"left": left, "right": np.roll(left, -3, axis=1), "np": np, "tm": tm}
    blocks = re.findall(r"```python\n(.*?)```", RECIPES.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        exec(compile(block, str(RECIPES), "exec"), names)
    assert "2.0" in capsys.readouterr().out  # the cut of a triangle


def test_every_method_is_on_the_chooser_page():
    page = (RECIPES.parent / "choosing.md").read_text()
    for row in tm.methods():
        assert f"`{row['name']}`" in page, row["name"]


@pytest.mark.parametrize(
    "name", ["README.md", "docs/recipes.md", "docs/maths.md", "docs/formats.md", "docs/choosing.md"]
)
def test_links_lead_somewhere(name):
    root = Path(__file__).parents[1]
    prose = re.sub(r"^ {4}.*$", "", (root / name).read_text(), flags=re.MULTILINE)  # formulas are no links
    for target in re.findall(r"\]\(([^)#]+)", prose):
        if "://" not in target:
            assert ((root / name).parent / target).exists(), target
