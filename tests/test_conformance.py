"""Every registered method, every promise: the suite that is shipped in tightmap.testing."""

import pytest

from engines import ALL
from gentle import gentle
from tightmap.testing import promises


@pytest.mark.parametrize(("name", "promise"), list(promises()), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("method", ALL)
def test_promise(method, name, promise, monkeypatch):
    promise(gentle(method, monkeypatch))
