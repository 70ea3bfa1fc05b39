"""The methods that other programs carry out, for tests that go through all methods: skipped where one is missing."""

from __future__ import annotations

from typing import Any

import pytest

from tightmap.registry import ENGINES, METHODS, installed


def engine(name: str) -> Any:
    """A parameter of a test: the method, or the reason why it is skipped."""
    missing = pytest.mark.skipif(not installed(name), reason=f"the program of method {name} is not installed")
    return pytest.param(name, marks=missing)


ALL = [*METHODS, *(engine(name) for name in ENGINES)]
