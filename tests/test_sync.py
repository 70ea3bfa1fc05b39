"""How many threads are taken: whichever was faster of late."""

from tightmap.sync import AGAIN, TRIAL, Teams


def simulate(teams, runs, cost):
    """The numbers of threads that are chosen, for runs that cost so much."""
    taken = []
    for _ in range(runs):
        team = teams.choose("task")
        teams.report("task", team, cost[team])
        taken.append(team)
    return taken


def test_the_faster_number_of_threads_is_taken():
    assert simulate(Teams(4), AGAIN, {4: 1.0, 1: 3.0}).count(1) == TRIAL
    assert simulate(Teams(4), AGAIN, {4: 9.0, 1: 3.0}).count(4) == TRIAL
    assert set(simulate(Teams(1), AGAIN, {1: 1.0})) == {1}


def test_both_are_tried_again():
    teams = Teams(2)
    assert simulate(teams, AGAIN, {2: 9.0, 1: 3.0})[-1] == 1
    assert simulate(teams, AGAIN, {2: 1.0, 1: 3.0})[-1] == 2


def test_the_first_run_of_a_task_says_nothing():
    teams = Teams(2)
    teams.report("task", teams.choose("task"), 100.0)  # reading a kernel from disk
    assert simulate(teams, AGAIN, {2: 1.0, 1: 3.0})[-1] == 2
