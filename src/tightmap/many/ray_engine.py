"""The same work on a Ray cluster: the one that runs, or one inside of this process where none does.

Workers of Ray need this package, and the modules of functions that build models.  Arrays that come out of Ray's shared
memory cannot be written to, and kernels would be compiled once more for them, so a worker copies its model once.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tightmap.errors import OptionError, WorkerError
from tightmap.many.messages import pack, unpack
from tightmap.many.processes import Record
from tightmap.many.tasks import Outcome, Task
from tightmap.result import Result

Packed = tuple[bytes, list[bytes]]


def load_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise OptionError("engine='ray' needs Ray, which is not installed: pip install 'tightmap[ray]'") from None
    return ray


def answer(data: bytes, buffers: list[bytes]) -> Packed:
    """What a worker of Ray does."""
    from tightmap.many.tasks import perform
    from tightmap.many.worker import pack_error

    try:
        packed = pack(perform(unpack((data, [bytearray(b) for b in buffers]))))
    except Exception as error:
        packed = pack_error(error)
    return packed[0], [bytes(b) for b in packed[1]]


class RayEngine:
    """Takes tasks, gives outcomes as they come."""

    def __init__(self, workers: int | None, threads: int, record: Record | None) -> None:
        self.ray = load_ray()
        self.record = record
        self.threads: int | None = threads
        self._own = not self.ray.is_initialized()
        if self._own:
            try:
                self.ray.init(address="auto", log_to_driver=False)
            except ConnectionError:
                self.ray.init(
                    num_cpus=None if workers is None else workers * threads,
                    include_dashboard=False,
                    log_to_driver=False,
                    # its workers find what this process finds
                    runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
                )
        if workers is None:
            workers = max(1, int(self.ray.cluster_resources().get("CPU", 1)) // threads)
        self.window = 2 * workers
        self._answer = self.ray.remote(num_cpus=threads, max_retries=1)(answer)
        self._running: dict[Any, Task] = {}

    def submit(self, task: Task) -> None:
        data, buffers = pack(task)
        self._running[self._answer.remote(data, [bytes(b) for b in buffers])] = task

    def next(self, timeout: float) -> Outcome | None:
        ready, _ = self.ray.wait(list(self._running), num_returns=1, timeout=timeout)
        if not ready:
            return None
        task = self._running.pop(ready[0])
        try:
            data, buffers = self.ray.get(ready[0])
            found = unpack((data, [bytearray(b) for b in buffers]))
        except self.ray.exceptions.RayError as error:  # the worker died, and so did the one that tried again
            return Outcome(task.index, None, WorkerError(f"model {task.index}: {' '.join(str(error).split())}"))
        if not isinstance(found, Result):
            return Outcome(task.index, None, found)
        if self.record is not None:
            self.record(task, found)
        return Outcome(task.index, found)

    def close(self) -> None:
        for reference in self._running:
            self.ray.cancel(reference, force=True)
        self._running.clear()
        if self._own:
            self.ray.shutdown()
