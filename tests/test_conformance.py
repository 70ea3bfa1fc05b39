"""Every registered method, every promise: the suite that is shipped in tightmap.testing."""

import pytest

from gentle import gentle
from tightmap.registry import METHODS
from tightmap.testing import promises


@pytest.mark.parametrize(("name", "promise"), list(promises()), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("method", METHODS)
def test_promise(method, name, promise, monkeypatch):
    promise(gentle(method, monkeypatch))
