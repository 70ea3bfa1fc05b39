"""Whole runs of ``auto``'s scheduler with scripted methods: no models, no solvers, no clock.

    python -m tests.scripted_methods [--runs 200] [--hands 2]

prints the regret on random line-ups: how much of what the best single method reaches within the same limit is missed by
the methods together, and how long a proof takes beside the time that the proving method needs alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tightmap.solvers.auto.scheduler import Scheduler, Share

START, OPTIMUM = 100.0, 0.0


@dataclass
class Script:
    """A method that moves the energy towards ``floor`` and its bound towards ``ceiling``, both at a pace of its own.

    energy' = -pace (energy - floor) while the energy is above the floor;  bound' = climb (ceiling - bound);
    after ``proof`` seconds of work it has the optimum and its proof.
    """

    name: str
    plan: float = 1.0
    floor: float = math.inf
    pace: float = 1.0
    ceiling: float = -math.inf
    climb: float = 1.0
    proof: float = math.inf
    step: float = 0.01  # seconds
    follows: str = ""
    proves: bool = False  # a search for the proof
    closes: bool = False  # the same of a small model
    work: float = field(default=0.0, init=False)
    bound: float = field(default=-math.inf, init=False)

    @property
    def bounds(self) -> bool:
        return math.isfinite(self.ceiling) or self.proves

    def run(self, seconds: float, energy: float) -> float:
        """Work for so long from this energy; the energy after it."""
        self.work += seconds
        if math.isfinite(self.ceiling):
            low = self.bound if math.isfinite(self.bound) else self.ceiling - 100.0
            self.bound = self.ceiling - (self.ceiling - low) * math.exp(-self.climb * seconds)
        if energy > self.floor:
            energy = self.floor + (energy - self.floor) * math.exp(-self.pace * seconds)
        if self.work >= self.proof:
            self.bound = energy = OPTIMUM
        return energy


@dataclass
class Played:
    """What a run came to."""

    energy: float
    bound: float
    seconds: float
    used: dict[str, float]
    first: dict[str, float]  # when each method had its first turn


def _share(s: Script) -> Share:
    return Share(s.name, s.plan, s.bounds, s.follows, proves=s.proves or s.closes, closes=s.closes)


def play(scripts: Sequence[Script], limit: float, hands: int = 1) -> Played:
    """A run with these methods, as auto makes it with so many turns at once."""
    shares = {s.name: _share(s) for s in scripts}
    by_name = {s.name: s for s in scripts}
    scheduler = Scheduler(limit, list(shares.values()))
    scheduler.hands = hands
    energy, bound, now = START, -math.inf, 0.0
    first: dict[str, float] = {}
    ends: dict[str, tuple[float, float]] = {}  # of the turns under way, and how long they are
    while now < limit and bound < energy:
        while len(ends) < hands:
            share = scheduler.next(now, shares.values(), busy=[shares[name] for name in ends])
            if share is None:
                break
            first.setdefault(share.name, now)
            scheduler.begin(share, energy, bound)
            turn = max(scheduler.turn(share), by_name[share.name].step)
            ends[share.name] = (now + turn, turn)
        name = min(ends, key=lambda n: ends[n])
        now, turn = ends.pop(name)
        script, share = by_name[name], shares[name]
        lower = script.run(turn, energy)
        scheduler.used(share, turn)
        share.bound = script.bound
        higher = max(bound, script.bound)
        raised = higher - bound if math.isfinite(bound) else 0.0
        scheduler.meanwhile([shares[n] for n in ends], fell=energy - lower, raised=raised)
        energy, bound = lower, higher
        scheduler.end(share, now, energy, bound)
    return Played(energy, bound, now, {s.name: s.work for s in scripts}, first)


def alone(script: Script, limit: float) -> float:
    """The energy that a method reaches by itself."""
    energy = START
    for _ in range(50):
        energy = script.run(limit / 50, energy)
    return energy


def line_up(seed: int) -> list[Script]:
    """Eight methods, of which any may be the best one, the one with the bound and the one with the proof."""
    rng = np.random.default_rng(seed)
    scripts = []
    for k in range(8):
        script = Script(f"method {k}", plan=float(rng.choice([1.0, 2.0, 4.0])))
        if rng.random() < 0.7:
            script.floor, script.pace = float(rng.uniform(0.0, 50.0)), float(10.0 ** rng.uniform(-2.0, 1.0))
        if rng.random() < 0.4:
            script.ceiling, script.climb = float(rng.uniform(-50.0, 0.0)), float(10.0 ** rng.uniform(-2.0, 1.0))
        scripts.append(script)
    proven = rng.random() < 0.5
    search = scripts[int(rng.integers(8))]
    search.proves = True
    if proven:
        search.proof = float(rng.uniform(0.5, 4.0))
    return scripts


def regret(seed: int, limit: float, hands: int = 1) -> tuple[float, float]:
    """Part of the best single method's descent that is missed; seconds to the proof over the prover's own (or nan)."""
    together = play(line_up(seed), limit, hands)
    best = min(alone(script, limit) for script in line_up(seed))
    missed = max(0.0, together.energy - best) / (START - best) if best < START else 0.0
    proof = min(script.proof for script in line_up(seed))
    if not math.isfinite(proof):
        return missed, math.nan
    return missed, together.seconds / proof if together.bound >= together.energy else math.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hands", type=int, default=1)
    given = parser.parse_args()
    print(f"{'limit':>6}{'mean regret':>13}{'worst':>8}{'proven':>16}{'median slowdown':>17}")
    for limit in (3.0, 10.0, 30.0):
        pairs = [regret(seed, limit, given.hands) for seed in range(given.first, given.first + given.runs)]
        missed = np.array([a for a, _ in pairs])
        slow = np.array([b for _, b in pairs if not math.isnan(b)])
        proven = f"{int(np.isfinite(slow).sum())} of {len(slow)}"
        print(f"{limit:6.0f}{missed.mean():13.4f}{missed.max():8.3f}{proven:>16}{np.median(slow):17.2f}")


if __name__ == "__main__":
    main()
