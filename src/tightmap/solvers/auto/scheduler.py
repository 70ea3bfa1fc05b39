"""Who works next: how several methods share a time limit, by what each of them has done for this model.

    next turn <- argmax over the methods of credit_r
    after every turn of t seconds:   credit_r <- credit_r + t weight_r for all that wait,   less t for whom it was
    weight_r = FLOOR plan_r + (1 - FLOOR) (p E_r + (1 - p) B_r),     the sums of plan, E and B over the methods are 1

    E_r   proportional to how fast the method lowered the best energy in the turns of the last WINDOW of the limit, or
          half of the time so far if that is less; where nobody did, E = plan, methods that make bounds counting less
    B_r   the same for raising the best bound; where nobody did, B = plan of those that make bounds.  A search whose own
          bound is behind the best one may still end with the proof: when it keeps closing CLOSED of its own gap in a
          turn, and would overtake the best bound before the end, slowing down from turn to turn as it does now, it
          counts as much as the fastest.  Where nobody lowers the energy, so does the search for the proof of a small
          model (``closes``), and any whose last turns promised to meet the energy, and then others count only if theirs
          did

    p     1/2; 1/4 while bounds rise and nobody lowers the energy, 3/4 the other way round, and where none of the bounds
          that rise would meet the energy before the end, slowing down likewise, if its method had all the time

So half of the time goes to those who lower the energy now, half to those who raise the bound now: whoever found the
best labelling at the beginning has no claim when it finds no better one, and a relaxation that has converged makes room
for the others.  Credit is earned at the weight of the day and spent at its full price, so a change of the weights acts
on what follows only.  No weight is below FLOOR of its plan, so no method is ever given up; and whatever the weights
are, every method has had a turn when PROBES of the limit is over, unless first turns are long, as on a large model with
a short limit: where the median of those so far is above ``long`` of the limit, a method must have earned DEAR times
that, or a quarter of the limit, before it has its own, and begins in the first half of the limit or not at all while
others have work.  Methods that follow another one wait until that one's bound has stopped rising.

This file knows nothing of models and solvers: the tests play whole runs with scripted methods.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

TURN = 0.02  # length of a turn, as a part of the time limit
SHORT = 16  # the first turn of a method is so many times shorter, the next ones twice as long each
PROBES = 0.1  # part of the time limit within which every method has its first turn
LONG = 0.05  # part of the time limit: where first turns on a large model take longer, not everybody can be heard
# The same on a small model, where it is one method that is slow to begin, not all of them.  Random CSPs of 120
# variables in 3 s: one run in six had nothing but exact, whose first step took 0.16 s, and ended 9 % above annealing
LONG_SMALL = 0.2
DEAR = 4.0  # what a method has to earn then, in first turns of the others: cuts take longer to start than messages
WINDOW = 0.3  # part of the time limit: what happened longer ago is no merit
HANDICAP = 0.001  # each place in the plan starts so much of the time limit behind the one before it
CLOSED = 0.05  # part of the gap to its own bound that a method must close in a turn for the turn to be a success
ASIDE = 0.25  # weight of methods that make bounds where a lower energy is looked for and nobody finds any
FLOOR = 0.2  # part of the time that is shared by the plan alone
HOPE = 0.25  # one of the last two turns of a bound that is to meet the energy has to promise that
NOISE = 1e-9  # part of the energy: a smaller change is rounding
PATIENT = 0.08  # a method in the middle of something is judged at the latest after this part of the time limit


class Turn(NamedTuple):
    """What a method did in a turn."""

    moment: float  # when it ended
    seconds: float
    lowered: float  # the best energy, by so much
    raised: float  # the best bound


@dataclass(eq=False)
class Share:
    """One method's share of the time: its place in the plan, what it has used and what it has brought."""

    name: str
    plan: float = 1.0  # weight in the plan
    bounds: bool = False  # makes bounds
    follows: str = ""  # does not begin while the bound of that method rises
    early: bool = False  # the very first turn is its own
    proves: bool = False  # a search that ends with the proof: how fast its bound rises does not tell when
    closes: bool = False  # the same of a small model: it has a good share where nobody finds a better labelling
    ended: bool = False  # it will have no more turns: what it did once says nothing about the others
    made: int = 0  # turns
    weight: float = 1.0
    credit: float = 0.0  # seconds
    seconds: float = 0.0
    first: float = 0.0  # seconds of its first turn
    shown: float = 0.0  # seconds that it had before all others, which are no part of that
    judged: float = 0.0  # seconds when it was last judged
    energy: float = math.inf  # the best energy of all when its turn began
    ahead: float = -math.inf  # the best bound of all then
    bound: float = -math.inf  # its own best bound
    before: float = -math.inf  # the same when its turn, or what it is in the middle of, began
    lifted: float = 0.0  # the best bound, by so much, since that began and before this turn
    raising: float = 0.0
    pace: float = 0.0  # of its bound in the last turn that counted
    hope: float = 1.0  # how often, lately, its bound would have met the energy in time had it gone on like that
    turns: deque[Turn] = field(default_factory=deque)  # the last ones


class Scheduler:
    """Shares of a limit; ``elapsed`` is always the part of the limit in seconds that is over."""

    def __init__(self, limit: float, shares: Sequence[Share], long: float = LONG) -> None:
        self.limit, self.shares, self.long = limit, list(shares), long
        self.begun = False
        self.hands = 1  # turns at once
        total = sum(share.plan for share in self.shares)
        self._ready: list[Share] = list(self.shares)  # those that had something to do when last asked
        for place, share in enumerate(self.shares):
            share.plan /= total
            share.weight, share.credit = share.plan, self._behind(place)

    def next(
        self,
        elapsed: float,
        waiting: Iterable[Share],
        first: Callable[[Share], bool] | None = None,
        busy: Sequence[Share] = (),
    ) -> Share | None:
        """Whose turn it is of those that have something to do; ``first`` chooses who has the very first one.

        None where all of them are ``busy``: they have their turns now, or have to wait for one that has.
        """
        ready = list(waiting)
        # a method that follows another one goes on from where that one has got to
        rising = [r.name for r in ready if r.raising >= 0.5 or r.seconds == 0.0]
        ready = [r for r in ready if r.follows not in rising] or ready
        self._ready = ready
        names = [r.name for r in busy]
        ready = [r for r in ready if r not in busy and r.follows not in names]
        if not ready:
            return None
        heard = [r.first for r in self.shares if r.first > 0.0]
        usual = statistics.median_low(heard) if heard else 0.0
        if usual > self.long * self.limit:
            earned = math.inf if elapsed > self.limit / 2.0 else min(DEAR * usual, self.limit / 4.0)
            ready = [r for r in ready if r.seconds > 0.0 or r.credit >= earned] or ready
        if not self.begun:
            self.begun = True
            mine = [r for r in ready if (r.early if first is None else first(r))]
            return mine[0] if mine else max(ready, key=lambda r: r.credit)
        return self._unheard(elapsed, ready) or max(ready, key=lambda r: r.credit)

    def _unheard(self, elapsed: float, ready: list[Share]) -> Share | None:
        """The next method that has not had a turn although it should have: their first turns are spread evenly."""
        fresh = [r for r in self.shares if not r.follows] + [r for r in self.shares if r.follows]
        for place, share in enumerate(fresh):
            if share.seconds == 0.0 and share in ready and elapsed >= PROBES * self.limit * place / len(fresh):
                return share
        return None

    def turn(self, share: Share) -> float:
        """The length of a method's next turn in seconds: easy models are proven before anybody has had a long one."""
        return TURN * self.limit * min(1.0, 2.0**share.made / SHORT)

    def begin(self, share: Share, energy: float, best_bound: float) -> None:
        """A turn begins; these are the best energy and bound of all."""
        share.energy, share.ahead = energy, best_bound  # what others have done since its last turn is not its merit
        if share.seconds == share.judged:  # not in the middle of something
            share.before, share.lifted = share.bound, 0.0

    def meanwhile(self, others: Iterable[Share], fell: float = 0.0, raised: float = 0.0) -> None:
        """Somebody else lowered the best energy or raised the best bound by so much: no merit of these."""
        for other in others:
            other.energy -= fell
            other.ahead += raised

    def used(self, share: Share, seconds: float) -> None:
        share.seconds += seconds
        left, total = 1.0, sum(r.weight for r in self._ready)
        for other in sorted(self._ready, key=lambda r: -r.weight):
            # of several hands nobody can have more than one, and the others share what is left
            part = min(left * other.weight / max(total, other.weight), 1.0 / self.hands)
            other.credit += seconds * part
            left, total = left - part, total - other.weight
        share.credit -= seconds

    def end(self, share: Share, elapsed: float, energy: float, best_bound: float, pending: bool = False) -> None:
        """A turn ends, after which ``energy`` and ``best_bound`` are the best ones of all.

        A turn that ends in the middle of something (``pending``) without a result does not count yet.
        """
        share.made += 1
        share.first = share.first or share.seconds - share.shown
        seconds = max(share.seconds - share.judged, 1e-9)
        fell = share.energy - energy
        gap = share.energy - share.before
        rise = share.bound - share.before
        rose = rise > 0.0 and (math.isinf(rise) or rise > CLOSED * gap)
        ahead = share.ahead < share.bound and math.isfinite(share.ahead)  # first ones are no merit
        raised = share.lifted + (share.bound - share.ahead if ahead else 0.0)
        if not (fell > 0.0 or rose) and pending and seconds < PATIENT * self.limit:
            share.lifted = raised
            return
        left = max(self.limit - elapsed, 0.0) / seconds  # turns like this one
        slower = rise / seconds / share.pace if share.pace > 0.0 else math.inf
        share.pace = rise / seconds if math.isfinite(rise) else 0.0
        coming = share.bound + rise * _series(slower, left) if math.isfinite(rise) else math.inf
        if rose and share.bound < best_bound:
            rose = coming > best_bound
        share.judged = share.seconds
        share.hope = (share.hope + (coming >= energy)) / 2.0
        lowered = fell if NOISE * abs(energy) < fell < math.inf else 0.0
        share.turns.append(Turn(elapsed, seconds, lowered, raised))
        share.raising = (share.raising + rose) / 2.0
        self._weigh(elapsed)

    def forget(self, share: Share) -> None:
        """What this method has done so far is no merit: it began before the others, with all that was easy to do.

        Nor is it a debt: wcsp_11 in 20 s, where exact had no turn between its moment and 12.5 s.  It comes after all
        others once.
        """
        share.turns.clear()
        share.shown, share.first = share.seconds, 0.0
        share.raising, share.hope, share.pace = 0.0, 1.0, 0.0
        for place, other in enumerate(self.shares):
            other.weight, other.credit = other.plan, self._behind(place) - other.seconds  # of turns beside it
        share.credit = self._behind(len(self.shares))

    def _behind(self, place: int) -> float:
        """The credit that a method begins with."""
        return -HANDICAP * self.limit * place

    def _weigh(self, elapsed: float) -> None:
        if all(share.ended for share in self.shares):
            return
        since = max(elapsed / 2.0, elapsed - WINDOW * self.limit)
        lowering, raising = [], []
        for share in self.shares:
            while share.turns and share.turns[0].moment < since:
                share.turns.popleft()
            spent = sum(turn.seconds for turn in share.turns)
            lowering.append(sum(turn.lowered for turn in share.turns) / spent if spent else 0.0)
            raising.append(sum(turn.raised for turn in share.turns) / spent if spent else 0.0)
        lowering = [0.0 if share.ended else down for share, down in zip(self.shares, lowering, strict=True)]
        fastest = max(raising)
        still = max(lowering) == 0.0  # the best labelling may be the optimum, and then only the proof is missing
        raising = [max(up, share.raising * (fastest or 1.0)) for share, up in zip(self.shares, raising, strict=True)]
        raising = [0.0 if share.ended else up for share, up in zip(self.shares, raising, strict=True)]
        # queens in 3 s: not proven where clusters, whose bound rises and ends far below, had as much; else after 2.3 s
        claim = fastest or 1.0
        present = [r for r in self.shares if not r.ended and r in self._ready]
        hopeful = [r for r in present if r.hope > 0.5]
        closing = [r for r in present if r.closes or (r.proves and r in hopeful)]
        if still and closing:
            for k, share in enumerate(self.shares):
                raising[k] = max(raising[k] if share in hopeful else 0.0, claim if share in closing else 0.0)
        rising = [share for share, up in zip(self.shares, raising, strict=True) if up > 0.0]
        part = 0.5 + 0.25 * ((max(lowering) > 0.0) - bool(rising))
        # a dynamic net of 300 variables in 5 s: 39 % of the time went to a bound 19 % below; lns alone was 3 % lower
        if rising and not any(share.proves or share.hope >= HOPE for share in rising):
            part = 0.75
        here = [0.0 if share.ended else share.plan for share in self.shares]
        aside = [ASIDE if share.bounds else 1.0 for share in self.shares]
        energy = _parts(lowering) or _parts([plan * less for plan, less in zip(here, aside, strict=True)])
        bound = (
            _parts(raising) or _parts([plan * r.bounds for plan, r in zip(here, self.shares, strict=True)]) or energy
        )
        for share, e, b in zip(self.shares, energy, bound, strict=True):
            share.weight = FLOOR * share.plan + (1.0 - FLOOR) * (part * e + (1.0 - part) * b)


def _series(factor: float, terms: float) -> float:
    """The sum of factor^k over k = 1, 2, ..., terms; what does not fall stays as it is."""
    return factor * (1.0 - factor**terms) / (1.0 - factor) if factor < 1.0 else terms


def _parts(rates: list[float]) -> list[float]:
    """The rates, divided by their sum; nothing where all are zero."""
    total = sum(rates)
    return [rate / total for rate in rates] if total > 0.0 else []
