"""How auto's methods share the time, played with scripted methods (scripted_methods.py)."""

import math

import numpy as np
import pytest
from tests.scripted_methods import START, Script, alone, line_up, play, regret

from tightmap.solvers.auto.scheduler import FLOOR, LONG_SMALL, PROBES, TURN, Scheduler, Share


@pytest.mark.parametrize("seed", range(20))
def test_every_method_has_a_turn_in_the_first_part_of_the_limit(seed):
    scripts = line_up(seed)
    for script in scripts:
        script.proof = math.inf
    played = play(scripts, 10.0)
    assert len(played.first) == len(scripts)
    assert max(played.first.values()) <= (PROBES + TURN) * 10.0 + 1e-9


def test_a_method_that_found_the_first_labellings_has_no_claim_for_ever():
    early = Script("early", plan=4.0, floor=50.0, pace=100.0)  # done after its first turn
    late = Script("late", plan=1.0, floor=0.0, pace=0.5)  # goes on and on
    played = play([early, late, *(Script(f"idle {k}") for k in range(4))], 20.0)
    assert played.used["late"] > 3 * played.used["early"]
    assert played.energy < 5.0


def _search_and_relaxation(ceiling):
    """Seconds of each out of twenty, beside methods that do nothing; the relaxation rises towards the ceiling."""
    search = Script("search", floor=60.0, pace=0.05)
    relaxation = Script("relaxation", ceiling=ceiling, climb=0.1)
    played = play([search, relaxation, *(Script(f"idle {k}", plan=4.0) for k in range(4))], 20.0)
    return played.used["search"], played.used["relaxation"]


def test_bounds_and_energies_have_half_of_the_time_each():
    assert min(_search_and_relaxation(ceiling=150.0)) > 0.25 * 20.0


def test_energies_come_first_where_no_bound_will_meet_them():
    hopeful, hopeless = _search_and_relaxation(ceiling=150.0), _search_and_relaxation(ceiling=-200.0)
    assert hopeless[0] > 2.0 * hopeless[1] > 0.0
    assert hopeless[0] > 1.1 * hopeful[0]


def test_a_search_that_ends_with_the_proof_keeps_its_share():
    """The bound of branch and bound jumps when it ends: its pace is no sign that it will not."""
    weights = []
    for proves in (False, True):
        scheduler = Scheduler(10.0, [Share("search", bounds=True, proves=proves), Share("other")])
        search = scheduler.shares[0]
        search.bound = 0.0
        for second in (1.0, 2.0, 3.0):
            scheduler.begin(search, 100.0, search.bound)
            scheduler.used(search, 1.0)
            search.bound += 6.0
            scheduler.end(search, second, 100.0, search.bound)
        weights.append(search.weight)
    assert weights[0] < 0.6 * weights[1]


def _seconds_of_the_search(small, floor, pace=100.0):
    """What a search whose own bound hardly moves gets of twelve seconds, beside a bound that rises and stays below."""
    tree = Script("tree", ceiling=-90.0, climb=0.01, closes=small)
    clusters = Script("clusters", ceiling=-20.0, climb=0.05)
    search = Script("search", plan=4.0, floor=floor, pace=pace)
    return play([tree, clusters, search, *(Script(f"idle {k}") for k in range(3))], 12.0).used["tree"]


def test_the_search_of_a_small_model_has_most_of_the_time_when_nobody_finds_a_better_labelling():
    assert _seconds_of_the_search(True, floor=10.0) > 0.5 * 12.0
    assert _seconds_of_the_search(False, floor=10.0) < 0.25 * 12.0
    assert _seconds_of_the_search(True, floor=-1e9, pace=1e-9) < 0.25 * 12.0  # the energy falls all the time


def _weights_of_search_and_clusters(*rises):
    """Of a search whose bound rises like that from -300, an energy of 100 and a bound by clusters that slows down."""
    scheduler = Scheduler(
        20.0, [Share("search", bounds=True, proves=True), Share("clusters", bounds=True), Share("lns")]
    )
    search, clusters, lns = scheduler.shares
    scheduler.next(0.0, scheduler.shares)
    search.bound, clusters.bound, now = -300.0, -100.0, 0.0
    for turn, rise in enumerate(rises):
        for share, by in ((clusters, 40.0 / 4.0**turn), (search, rise), (lns, 0.0)):
            scheduler.begin(share, 100.0, clusters.bound)
            scheduler.used(share, 0.4)
            share.bound += by
            now += 0.4
            scheduler.end(share, now, 100.0, clusters.bound)
    return search.weight, clusters.weight


def test_a_search_whose_bound_promises_the_proof_has_most_of_the_time_when_nobody_finds_a_better_labelling():
    """CELAR6SUB1: its own bound is still behind that of the clusters, which rises and will not arrive."""
    search, clusters = _weights_of_search_and_clusters(20.0, 22.0, 24.0, 26.0)
    assert search > 0.6 and clusters < 0.15
    search, clusters = _weights_of_search_and_clusters(8.0, 2.0, 0.5, 0.1)  # it slows down as well
    assert 0.05 < search < clusters


def test_what_a_method_does_before_all_others_is_no_merit_and_no_debt():
    """It lowered the energy at a rate that nobody will see again, and others would wait for half of the time."""
    scheduler = Scheduler(10.0, [Share("exact", 6.0, bounds=True), Share("lns", 4.0), Share("annealing")])
    first = scheduler.shares[0]
    scheduler.begin(first, 100.0, -100.0)
    scheduler.used(first, 0.2)
    first.bound = 0.0
    scheduler.end(first, 0.2, 60.0, 0.0)
    assert first.weight > 0.8
    scheduler.forget(first)
    assert [share.weight for share in scheduler.shares] == [share.plan for share in scheduler.shares]
    assert -0.02 * 10.0 < first.credit < min(share.credit for share in scheduler.shares[1:])  # nor a debt
    lns = scheduler.shares[1]
    scheduler.begin(lns, 60.0, 0.0)
    scheduler.used(lns, 0.2)
    scheduler.end(lns, 0.4, 59.0, 0.0)
    assert lns.weight > first.weight


def test_nobody_is_given_up():
    busy = Script("busy", plan=8.0, floor=0.0, pace=0.01, ceiling=-1.0, climb=0.01)
    others = [Script(f"idle {k}") for k in range(5)]
    played = play([busy, *others], 50.0)
    for script in others:
        fair = FLOOR / 13.0 * 50.0  # of which a turn that is just to come may be missing at the end
        assert played.used[script.name] >= fair - TURN * 50.0
        assert played.used[script.name] >= 0.4 * fair


def test_what_lay_still_is_heard_again_when_nobody_gets_on():
    """A search that has ended makes room for the plan, not for the one that was the last to find something."""
    winner = Script("winner", plan=1.0, floor=10.0, pace=50.0)
    strong = Script("strong", plan=8.0)
    played = play([winner, strong], 50.0)
    assert played.used["strong"] > 4 * played.used["winner"]


def test_a_follower_waits_for_the_bound_it_goes_on_from():
    scheduler = Scheduler(10.0, [Share("leader", bounds=True), Share("follower", bounds=True, follows="leader")])
    leader, follower = scheduler.shares
    assert scheduler.next(0.0, scheduler.shares) is leader
    bound, now = 0.0, 0.0
    for _ in range(10):  # closes a tenth of the gap every time
        scheduler.begin(leader, 100.0, bound)
        scheduler.used(leader, 0.2)
        now += 0.2
        leader.bound = bound = bound + 0.1 * (100.0 - bound)
        scheduler.end(leader, now, 100.0, bound)
        assert scheduler.next(now, scheduler.shares) is leader
    for _ in range(2):  # nothing any more
        scheduler.begin(leader, 100.0, bound)
        scheduler.used(leader, 0.2)
        now += 0.2
        scheduler.end(leader, now, 100.0, bound)
    assert scheduler.next(now, scheduler.shares) is follower


def test_a_pending_turn_is_judged_when_it_has_a_result():
    scheduler = Scheduler(10.0, [Share("slow"), Share("other")])
    slow = scheduler.shares[0]
    scheduler.begin(slow, 100.0, -math.inf)
    scheduler.used(slow, 0.2)
    scheduler.end(slow, 0.2, 100.0, -math.inf, pending=True)
    assert not slow.turns
    scheduler.begin(slow, 90.0, -math.inf)  # somebody else has found a better one since
    scheduler.used(slow, 0.2)
    scheduler.end(slow, 0.6, 80.0, -math.inf)
    assert slow.turns[0].seconds == pytest.approx(0.4)
    assert slow.turns[0].lowered == 10.0  # the other ten are the merit of somebody else


def test_what_others_did_meanwhile_is_no_merit_of_a_pending_turn():
    """Bounds by clusters had most of the time for labellings that annealing had found between two of their turns."""
    scheduler = Scheduler(10.0, [Share("clusters", bounds=True), Share("other")])
    clusters = scheduler.shares[0]
    clusters.bound = 0.0
    for now, energy, best_bound, bound in ((0.2, 100.0, 5.0, 1.0), (0.4, 90.0, 5.0, 6.0), (0.6, 90.0, 8.0, 9.0)):
        scheduler.begin(clusters, energy, best_bound)
        scheduler.used(clusters, 0.1)
        clusters.bound = bound
        scheduler.end(clusters, now, energy, max(bound, best_bound), pending=now < 0.5)
    assert sum(turn.lowered for turn in clusters.turns) == 0.0
    assert sum(turn.raised for turn in clusters.turns) == 2.0


def test_rounding_is_no_merit():
    scheduler = Scheduler(10.0, [Share("rounding"), Share("other")])
    share = scheduler.shares[0]
    scheduler.begin(share, 50.0, -math.inf)
    scheduler.used(share, 0.2)
    scheduler.end(share, 0.2, 50.0 - 1e-12, -math.inf)
    assert share.turns[0].lowered == 0.0


def test_a_bound_that_will_not_overtake_the_best_one_is_no_merit():
    for best_bound, merit in ((99.0, 0.0), (20.0, 0.5)):
        scheduler = Scheduler(10.0, [Share("search", bounds=True), Share("relaxation", bounds=True)])
        search = scheduler.shares[0]
        search.bound = 0.0
        scheduler.begin(search, 100.0, best_bound)
        scheduler.used(search, 1.0)
        search.bound = 6.0  # six per second, nine seconds to go
        scheduler.end(search, 1.0, 100.0, best_bound)
        assert search.raising == merit


def test_a_bound_that_slows_down_will_not_overtake_the_best_one():
    """Every turn brings a third of what the one before brought: half of that again is all that is to come."""
    scheduler = Scheduler(100.0, [Share("relaxation", bounds=True), Share("other", bounds=True)])
    share, moment = scheduler.shares[0], 0.0
    share.bound = 0.0
    for rise in (27.0, 9.0):
        scheduler.begin(share, 100.0, 50.0)
        scheduler.used(share, 1.0)
        moment += 1.0
        share.bound += rise
        before = share.raising
        scheduler.end(share, moment, 100.0, 50.0)
    assert share.raising == before / 2.0
    assert share.hope == 0.5  # the first turn promised it, the second did not


def test_what_has_ended_says_nothing_about_the_others():
    """A bound that was there at once does not speak for one that rises ever more slowly and will not arrive."""
    for ended, least in ((False, 0.0), (True, 0.55)):
        scheduler = Scheduler(10.0, [Share("once", bounds=True), Share("slow", bounds=True), Share("search")])
        once, slow, search = scheduler.shares
        scheduler.begin(once, 100.0, -math.inf)
        scheduler.used(once, 0.1)
        once.bound = -1000.0
        once.ended = ended
        scheduler.end(once, 0.1, 100.0, -1000.0)
        slow.bound = -2000.0
        for turn in range(4):
            scheduler.begin(slow, 100.0, max(once.bound, slow.bound))
            scheduler.used(slow, 0.5)
            slow.bound += 1000.0 / 4.0**turn
            scheduler.end(slow, 0.6 + 0.5 * turn, 100.0, max(once.bound, slow.bound))
        assert (search.weight > 0.5) == (least > 0.5), (ended, search.weight)
    for share in scheduler.shares:  # nobody is left to weigh
        share.ended = True
    scheduler.end(slow, 9.0, 100.0, -1000.0)


def test_regret_on_random_line_ups():
    """Eight methods of which any may be the winner: little of what the best of them reaches alone is missed."""
    missed = np.array([regret(seed, 30.0)[0] for seed in range(100)])
    assert missed.mean() < 0.07
    fair = np.array([_equal_shares(seed, 30.0) for seed in range(100)])
    assert missed.mean() < 0.6 * fair.mean()


def _equal_shares(seed, limit):
    """What is missed when every method has an eighth of the time, and goes on from the others' labellings."""
    energy = START
    for _ in range(6):
        for script in line_up(seed):
            energy = script.run(limit / 48, energy)
    best = min(alone(script, limit) for script in line_up(seed))
    return max(0.0, energy - best) / (START - best) if best < START else 0.0


def test_two_turns_at_once_halve_the_regret():
    means = [np.mean([regret(seed, 3.0, hands)[0] for seed in range(100)]) for hands in (1, 2)]
    assert means[1] < 0.6 * means[0]


def test_nobody_has_two_turns_at_once_and_what_cannot_be_used_goes_to_the_others():
    """Weights of 9 to 1 to 1: of two hands the first one can have no more than one."""
    scheduler = Scheduler(10.0, [Share("a", 9.0), Share("b", 1.0), Share("c", 1.0)])
    scheduler.hands = 2
    a = scheduler.shares[0]
    first = scheduler.next(0.0, scheduler.shares)
    second = scheduler.next(0.0, scheduler.shares, busy=[first])
    third = scheduler.next(0.0, scheduler.shares, busy=[first, second])
    assert {first.name, second.name, third.name} == {"a", "b", "c"}
    assert scheduler.next(0.0, scheduler.shares, busy=scheduler.shares) is None
    before = [s.credit for s in scheduler.shares]
    scheduler.used(a, 2.0)
    after = [s.credit for s in scheduler.shares]
    assert after[0] - before[0] == pytest.approx(1.0 - 2.0)  # half of what two hands did, less what it used
    assert after[1] - before[1] == pytest.approx(0.5) == pytest.approx(after[2] - before[2])


def test_who_follows_a_method_waits_for_the_end_of_its_turn():
    scheduler = Scheduler(10.0, [Share("trws"), Share("cores", follows="trws")])
    trws, cores = scheduler.shares
    trws.seconds, trws.raising = 1.0, 0.0  # it rises no more
    assert scheduler.next(1.0, scheduler.shares, busy=[trws]) is None
    assert scheduler.next(1.0, [cores]) is cores


def test_what_others_do_at_the_same_time_is_no_merit():
    scheduler = Scheduler(10.0, [Share("a", bounds=True), Share("b", bounds=True)])
    a, b = scheduler.shares
    for share in (a, b):
        scheduler.begin(share, 100.0, 0.0)
    scheduler.used(a, 0.2)
    a.bound = 10.0
    scheduler.meanwhile([b], fell=50.0, raised=10.0)
    scheduler.end(a, 0.2, 50.0, 10.0)
    scheduler.used(b, 0.2)
    b.bound = 5.0
    scheduler.end(b, 0.2, 50.0, 10.0)
    assert (a.turns[-1].lowered, a.turns[-1].raised) == (50.0, 10.0)
    assert (b.turns[-1].lowered, b.turns[-1].raised) == (0.0, 0.0)


def test_where_first_turns_are_long_the_others_must_be_earned():
    """A large model and a short limit: one step of one method takes longer than all probes should."""
    scheduler = Scheduler(10.0, [Share(name) for name in "abc"])
    a, b, _ = scheduler.shares
    now = 0.0
    turns = []
    while now < 10.0:
        share = scheduler.next(now, scheduler.shares)
        scheduler.begin(share, 100.0, -math.inf)
        seconds = 3.0 if share.seconds == 0.0 else 0.5
        scheduler.used(share, seconds)
        now += seconds
        scheduler.end(share, now, 100.0 - now if share is a else 100.0, -math.inf)
        turns.append(share)
    assert turns[:6] == [a] * 6
    assert turns.count(b) <= 1
    # a method that has nothing to do any more keeps nobody waiting
    assert scheduler.next(now, [s for s in scheduler.shares if s is not a]) is not a


def _heard(scheduler, slow, seconds, now=0.0):
    """Names of all that have a turn, of which the first one of ``slow`` takes so long and all others a hundredth."""
    names = []
    while now < scheduler.limit:
        share = scheduler.next(now, scheduler.shares)
        scheduler.begin(share, 100.0, -math.inf)
        turn = seconds if share.name == slow and share.seconds == share.shown else 0.01 * scheduler.limit
        scheduler.used(share, turn)
        now += turn
        scheduler.end(share, now, 100.0, -math.inf)
        names.append(share.name)
    return names


def test_a_long_moment_before_all_others_does_not_keep_them_waiting():
    """One step of the exact search took longer than its moment: that says nothing about how long the others take."""
    scheduler = Scheduler(3.0, [Share("exact", 6.0, bounds=True), *(Share(name, 4.0) for name in "abcdef")])
    exact = scheduler.shares[0]
    scheduler.begin(exact, 100.0, -math.inf)
    scheduler.used(exact, 0.2)
    scheduler.end(exact, 0.2, 60.0, -math.inf)
    scheduler.forget(exact)
    assert set(_heard(scheduler, "exact", 0.2, 0.2)[:9]) >= set("abcdef")


def test_one_method_that_is_slow_to_begin_keeps_nobody_waiting_on_a_small_model():
    scheduler = Scheduler(3.0, [Share("srmp", bounds=True), *(Share(name) for name in "abcdef")], LONG_SMALL)
    assert set(_heard(scheduler, "srmp", 0.3)[:9]) >= set("abcdef")
