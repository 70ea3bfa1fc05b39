"""The rooms of the house: arrows point downwards, solvers do not use each other, Numba's insides stay in one room."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import house


def test_every_arrow_points_downwards():
    assert house.faults() == []


def test_the_checks_see_what_is_wrong(monkeypatch):
    """A solver that uses another one, an arrow upwards and a room that is not on the map are faults."""
    monkeypatch.setattr(
        house,
        "modules",
        lambda: {"solvers.trbp": {"solvers.bcd"}, "energy.energies": {"solvers.base"}, "attic.box": {"errors"}},
    )
    found = house.faults()
    assert any("must not use another" in f for f in found)
    assert any("above it" in f for f in found)
    assert any("not on the map" in f for f in found)


def test_the_picture_shows_every_room():
    picture = house.draw()
    assert picture.startswith("<svg") and all(f">{room}</text>" in picture for room in house.rooms())


def test_lazy_attributes_hold_no_lock():
    """`functools.cached_property` hangs in a child that is forked while another thread computes one (runtime/lazy)."""
    package = Path(__file__).parents[1] / "src" / "tightmap"
    users = [p for p in package.rglob("*.py") if p.name != "lazy.py" and "cached_property" in p.read_text()]
    assert users == []
