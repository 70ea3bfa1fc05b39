"""The fuzzer: random models x every method x seeds against brute force.  ``make fuzz MINUTES=10`` runs it.

models.py makes random models, trials.py says what is done with one, checks.py what must hold afterwards, shrink.py
makes a failing model small, reproducer.py writes it as a script.  worker.py runs trials in a process of its own, so
that a crash or a hang costs one trial, and parent.py hands out the work and adds up.
"""

import sys
from pathlib import Path

# the oracles and random models of the test suite live in the folder above, which only pytest puts on the path by itself
TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)
