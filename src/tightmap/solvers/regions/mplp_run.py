"""Iterations of MPLP on a region graph: beliefs are kept, blocks are updated in turn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tightmap.runtime.pace import SLICE, time_left
from tightmap.solvers.regions.kernels import reparametrised
from tightmap.solvers.regions.mplp_kernels import belief_offsets, block_entries, mplp_pass
from tightmap.solvers.regions.regions import Regions
from tightmap.solvers.regions.run import Run
from tightmap.solvers.regions.sweeps import AHEAD, BACK

REFRESH = 10  # iterations after which beliefs are computed from the messages again: rounding errors add up


class MplpRun(Run):
    """Block updates of all regions in turn."""

    made_for: Regions | None = None

    def _prepare(self) -> None:
        regions = self.regions
        g, d = regions.graph.arrays, regions.dag
        if self.made_for is not regions:
            self.belief_at = belief_offsets(regions)
            self.belief = np.empty(int(self.belief_at[-1]))
            self.pulled = np.empty(block_entries(regions))
            self.starts = np.empty(int(np.diff(d.out_start).max(initial=1)), np.int64)
        if self.made_for is not regions or self.iterations % REFRESH == 0:
            parts = d.sequence.astype(np.int64)
            reparametrised(g, d, self.neg, parts, self.belief_at[parts], self.belief, self.buffers.table)
        self.made_for = regions

    def iteration(self, rounding: bool, polish: bool) -> Iterator[None]:
        self._prepare()
        g, d = self.regions.graph.arrays, self.regions.dag
        at, end = len(g.cards), len(d.mode)
        while at < end:
            at = mplp_pass(
                g, d, self.neg, self.belief, self.belief_at, at, end, self.buffers, self.pulled, self.starts,
                time_left(self.context, SLICE),
            )  # fmt: skip
            yield
        if rounding:
            yield from self.rounded(AHEAD if self.iterations % 2 == 0 else BACK, polish)
            self.certificate()
