"""Worker processes on this machine, each with a thread of ours that talks to it.

A worker is a fresh interpreter that imports nothing but this package: it neither is a fork nor runs the main script
again.  One that dies is replaced, and the model that it was at is tried once more.  Workers end with this process,
whatever ends it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO

from tightmap.errors import OptionError, WorkerError
from tightmap.many.messages import pack, receive, send, shared_file, unpack
from tightmap.many.tasks import Outcome, Task
from tightmap.result import Result

BOOT = (
    "import json, sys\n"
    "path, file = json.loads(sys.argv.pop())\n"
    "sys.path[:] = path\n"
    "from tightmap.many.worker import main\n"
    "main(file)\n"
)
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# A worker asks for the same memory again and again.  By default the C library of Linux gives what is freed back to the
# system, which clears every page for the next model; these are the limits that it may come to by itself.
HEAP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 26)}
TRIES = 2
PATIENCE = 2.0  # seconds that a thread of ours gets to end

Record = Callable[[Task, Result], None]
logger = logging.getLogger("tightmap")


class _Gone(Exception):
    """A worker ended without an answer."""


class _Worker:
    """One process and the pipes to it."""

    def __init__(self, threads: int) -> None:
        if not sys.executable:
            raise OptionError("solve_many: no Python interpreter to start workers with (engine='serial' needs none)")
        self.file = shared_file()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOT, json.dumps([sys.path, self.file])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=() if self.file is None else (self.file,),
                env=HEAP | os.environ | dict.fromkeys(THREADS, str(threads)),
                start_new_session=True,  # Ctrl-C reaches us alone, and we end the workers
            )
        except BaseException:
            self._close_file()
            raise

    def ask(self, task: Task) -> Result | Exception:
        """The answer to a task; _Gone when there will be none."""
        packed = pack(task)
        to, back = self._streams()
        try:
            send(to, packed, self.file)
            answer = receive(back, None)
        except OSError:  # the pipe is broken
            answer = None
        if answer is None:
            raise _Gone(self._ending())
        return unpack(answer)

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        """End the process, and see that it has ended."""
        self.process.kill()
        self.process.wait()
        for stream in self._streams():
            with suppress(OSError):  # what was not written any more
                stream.close()
        self._close_file()

    def _streams(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def _ending(self) -> str:
        try:
            code = self.process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was ended by {name}" + (", perhaps for lack of memory" if name == "SIGKILL" else "")

    def _close_file(self) -> None:
        if self.file is not None:
            os.close(self.file)
            self.file = None


class ProcessEngine:
    """Takes tasks, gives outcomes as they come; ``record`` hears of every result before anybody else does."""

    def __init__(self, workers: int, threads: int, record: Record | None) -> None:
        self.workers, self.record = workers, record
        self.threads: int | None = threads
        self.window = 2 * workers  # tasks under way: one each, and one that waits for it
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[Outcome | BaseException] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopping = False
        self._alive: set[_Worker] = set()
        self._attendants: list[threading.Thread] = []

    def submit(self, task: Task) -> None:
        if len(self._attendants) < self.workers:  # no more processes than there is work for
            # daemons: an interpreter that ends waits for nobody, and the workers end with it
            thread = threading.Thread(target=self._attend, name="tightmap worker", daemon=True)
            self._attendants.append(thread)
            thread.start()
        self._tasks.put(task)

    def next(self, timeout: float) -> Outcome | None:
        """The next outcome, or None when there was none in so many seconds."""
        try:
            found = self._done.get(timeout=timeout)
        except Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End all workers now; another Ctrl-C must not leave one behind."""
        while True:
            try:
                with self._lock:
                    self._stopping = True
                    for worker in self._alive:
                        worker.kill()
                for _ in self._attendants:
                    self._tasks.put(None)
                until = time.monotonic() + PATIENCE * max(1, len(self._attendants))
                for thread in self._attendants:
                    thread.join(max(0.0, until - time.monotonic()))
                return
            except KeyboardInterrupt:
                continue

    def _hire(self) -> _Worker | None:
        worker = _Worker(self.threads or 1)
        with self._lock:
            if not self._stopping:
                self._alive.add(worker)
                return worker
        worker.close()
        return None

    def _dismiss(self, worker: _Worker) -> None:
        with self._lock:
            self._alive.discard(worker)
        worker.close()

    def _attend(self) -> None:
        """Tasks one after the other, on one worker as long as it lives."""
        worker: _Worker | None = None
        try:
            while (task := self._tasks.get()) is not None and not self._stopping:
                endings: list[str] = []
                answer: Result | Exception | None = None
                while answer is None and len(endings) < TRIES:
                    worker = worker or self._hire()
                    if worker is None:
                        return
                    try:
                        answer = worker.ask(task)
                    except _Gone as gone:
                        self._dismiss(worker)
                        worker = None
                        if self._stopping:
                            return
                        endings.append(str(gone))
                        logger.warning("the worker at model %d %s", task.index, gone)
                    except Exception as error:  # what cannot be pickled never reaches the worker
                        answer = error
                if isinstance(answer, Result):
                    if self.record is not None:
                        self.record(task, answer)
                    self._done.put(Outcome(task.index, answer))
                else:
                    if answer is None:
                        lost = "; the next one ".join(endings)
                        answer = WorkerError(f"model {task.index}: the worker {lost}")
                    self._done.put(Outcome(task.index, None, answer))
                del task, answer
        except BaseException as error:  # no process can be started, the disk of the checkpoint is full
            self._done.put(error)
        finally:
            if worker is not None:
                self._dismiss(worker)


class SerialEngine:
    """The same in this process, one model after the other."""

    window = 1

    def __init__(self, threads: int | None, record: Record | None) -> None:
        self.threads, self.record = threads, record
        self._tasks: list[Task] = []

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def next(self, timeout: float) -> Outcome | None:
        from tightmap.many.tasks import perform
        from tightmap.result import Status

        task = self._tasks.pop(0)
        try:
            result = perform(task)
        except Exception as error:
            return Outcome(task.index, None, error)
        if result.status is Status.INTERRUPTED:  # solve() returns the best so far; here the whole sequence ends
            raise KeyboardInterrupt
        if self.record is not None:
            self.record(task, result)
        return Outcome(task.index, result)

    def close(self) -> None:
        self._tasks.clear()
