"""The work of `dispatch.py` under another program; run by it in the scratch environment.

    python benchmarks/dispatch_others.py mpi4py|ray|dask|parsl WORKERS SECONDS

As many calls, which do nothing, are in flight as there are workers; each that ends is followed by a new one.
Prints one line of JSON.
"""

from __future__ import annotations

import json
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

WARM_SECONDS = 2.0
Step = Callable[[], object]
"""Submits a call, or waits for the next one to end."""


def noop() -> None:
    """The call that is dispatched, which does nothing."""


def main() -> None:
    name, workers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with PROGRAMS[name](workers) as (submit, following):
        for _ in range(workers):
            submit()
        _replaced(submit, following, min(WARM_SECONDS, seconds))
        done, took = _replaced(submit, following, seconds)
        for _ in range(workers):
            following()
    print(json.dumps({"done": done, "seconds": took}), flush=True)


def _replaced(submit: Step, following: Step, seconds: float) -> tuple[int, float]:
    """How many calls ended in about `seconds`, each end followed by a new call, and the exact time."""
    done, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        following()
        submit()
        done += 1
    return done, time.monotonic() - began


def _by_callback(submit: Callable[[], Future[None]]) -> tuple[Step, Step]:
    """The two steps under a program whose futures are those of the standard library."""
    ended: queue.SimpleQueue[Future[None]] = queue.SimpleQueue()

    return lambda: submit().add_done_callback(ended.put), lambda: ended.get().result()


@contextmanager
def _mpi4py(workers: int) -> Iterator[tuple[Step, Step]]:
    """MPI ranks, of which mpiexec started one for each worker."""
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as executor:  # the ranks that mpiexec started
        assert executor.num_workers == workers, executor.num_workers
        yield _by_callback(lambda: executor.submit(noop))


@contextmanager
def _ray(workers: int) -> Iterator[tuple[Step, Step]]:
    """Worker processes of a Ray cluster on this host."""
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, logging_level="error", log_to_driver=False)
    remote: Any = ray.remote(noop)
    flying: list[Any] = []

    def submit() -> None:
        flying.append(remote.remote())

    def following() -> None:
        (first,), flying[:] = ray.wait(flying, num_returns=1)
        ray.get(first)

    yield submit, following
    ray.shutdown()


@contextmanager
def _dask(workers: int) -> Iterator[tuple[Step, Step]]:
    """Worker processes of a Dask cluster on this host."""
    from dask import config
    from distributed import Client, LocalCluster, as_completed

    config.set(
        {"distributed.comm.timeouts.connect": "300s", "distributed.deploy.lost-worker-timeout": "300s"}
    )
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        ended = as_completed(with_results=True)
        yield (lambda: ended.add(client.submit(noop, pure=False)), lambda: next(ended)[1])


@contextmanager
def _parsl(workers: int) -> Iterator[tuple[Step, Step]]:
    """Workers of one block of Parsl's executor for many short tasks."""
    import parsl
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    executor = HighThroughputExecutor(
        label="dispatch",
        address="127.0.0.1",
        max_workers_per_node=workers,
        cores_per_worker=1e-6,
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        parsl.load(parsl.Config(executors=[executor], run_dir=folder, usage_tracking=0)),
    ):
        yield _by_callback(parsl.python_app(noop))


PROGRAMS = {"mpi4py": _mpi4py, "ray": _ray, "dask": _dask, "parsl": _parsl}

if __name__ == "__main__":
    main()
