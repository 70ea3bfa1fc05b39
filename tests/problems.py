"""Random models for the tests: those of tightmap.testing, and a Hypothesis strategy over them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tightmap.testing.models import KINDS, grid_model, random_model, tree_model

__all__ = ["KINDS", "grid_model", "models", "random_model", "tree_model"]


@st.composite
def models(draw, max_variables=5, max_labels=3, max_order=4, **kwargs):
    """Hypothesis strategy over random_model."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return random_model(
        rng,
        n=draw(st.integers(1, max_variables)),
        labels=draw(st.integers(2, max_labels)),
        factors=draw(st.integers(0, 7)),
        order=draw(st.integers(2, max_order)),
        integral=draw(st.booleans()),
        ragged=draw(st.booleans()),
        **kwargs,
    )
