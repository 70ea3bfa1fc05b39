"""Threads that wait for one another: how many are taken, and that all end when one fails or is interrupted."""

import subprocess
import sys

import numpy as np
import pytest

from tightmap.runtime.compiled import compiled
from tightmap.runtime.parallel import AGAIN, TRIAL, Teams
from tightmap.runtime.sync import meet, together


def simulate(teams, runs, cost):
    """The numbers of threads that are chosen, for runs that cost so much."""
    taken = []
    for _ in range(runs):
        team = teams.choose("task")
        teams.report("task", team, cost[team])
        taken.append(team)
    return taken


def test_the_faster_number_of_threads_is_taken():
    assert simulate(Teams(4), AGAIN, {4: 0.01, 1: 0.03}).count(1) == TRIAL
    assert simulate(Teams(4), AGAIN, {4: 0.09, 1: 0.03}).count(4) == TRIAL
    assert set(simulate(Teams(1), AGAIN, {1: 1.0})) == {1}


def test_slow_runs_are_tried_once_on_one_thread():
    assert simulate(Teams(4), AGAIN, {4: 1.0, 1: 3.0}).count(1) == 1
    assert simulate(Teams(4), AGAIN, {4: 9.0, 1: 3.0}).count(4) == TRIAL


def test_both_are_tried_again():
    teams = Teams(2)
    assert simulate(teams, AGAIN, {2: 9.0, 1: 3.0})[-1] == 1
    assert simulate(teams, AGAIN, {2: 1.0, 1: 3.0})[-1] == 2


def test_long_work_is_not_tried_on_one_thread():
    assert set(simulate(Teams(4, 2.0), 3 * AGAIN, {4: 3.0, 1: 0.5})) == {4}


def test_the_first_run_of_a_task_says_nothing():
    teams = Teams(2)
    teams.report("task", teams.choose("task"), 100.0)  # reading a kernel from disk
    assert simulate(teams, AGAIN, {2: 1.0, 1: 3.0})[-1] == 2


@compiled
def _walk(steps, rounds, thread, threads, progress):
    """Every thread moves in turn: what it adds depends on what all others had added before."""
    for number in range(1, steps + 1):
        own = rounds[:, number - 1].sum()
        if not meet(progress, thread, threads, 2 * number - 1):
            return
        rounds[thread, number] = own + thread + 1
        if not meet(progress, thread, threads, 2 * number):
            return


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_meet(threads):
    rounds = np.zeros((threads, 21), np.int64)
    together(threads, _walk, threads, 20, rounds)
    expected = np.zeros(threads, np.int64)
    for number in range(1, 21):
        expected = expected.sum() + np.arange(1, threads + 1)
        assert (rounds[:, number] == expected).all()


FAILING = """
import os, signal, sys, threading, time
import numpy as np
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled
from tightmap.runtime.sync import LINE, publish, together, wait_for

@compiled
def one_fails(wrong, left, thread, threads, progress):
    if thread == wrong:
        raise ValueError("this one fails")
    if wait_for(progress, LINE * wrong, 1):  # what never comes
        left[thread] = 2
    left[thread] = 1

for threads in (2, 3, 4):
    for wrong in range(threads):
        left = np.zeros(threads, np.int64)
        try:
            together(threads, one_fails, threads, wrong, left)
        except ValueError as error:
            assert str(error) == "this one fails"
        else:
            raise AssertionError("no error")
        assert left[wrong] == 0 and (np.delete(left, wrong) <= 1).all(), left  # who had not begun need not begin

@compiled
def spin(thread, progress):
    wait_for(progress, 0, 1)

def interrupted_at_work(entered, left, thread, threads, progress):
    if thread == 0:
        entered.wait()
        signal.raise_signal(signal.SIGINT)
        time.sleep(60.0)
    entered.set()
    spin(thread, progress)
    left.append(thread)

def interrupted_in_waiting(entered, left, thread, threads, progress):
    if thread == 1:
        entered.set()
        spin(thread, progress)
        left.append(thread)
    else:
        entered.wait()

def send_interrupt(entered):
    entered.wait()
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

spin(0, np.ones(2 * LINE, np.int64))
for kernel in (interrupted_at_work, interrupted_in_waiting):
    entered, left = threading.Event(), []
    if kernel is interrupted_in_waiting:
        threading.Thread(target=send_interrupt, args=(entered,)).start()
    begin = time.monotonic()
    try:
        together(2, kernel, 2, entered, left)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no interrupt")
    assert left == [1] and time.monotonic() - begin < 30.0

def add(first, last, out):
    out[first:last] += 1

out = np.zeros(100)
with parallel.using(4):
    parallel.run(add, 100, out)
assert (out == 1).all()
print("all ended")
"""


def test_all_end_when_one_fails_or_is_interrupted():
    """In a process of its own: without the message to the others they would wait for ever."""
    run = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, timeout=300)
    assert run.stdout == "all ended\n", run.stderr
