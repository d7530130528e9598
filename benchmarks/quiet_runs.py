"""Whether quiet runs name anybody as slow: `python -m benchmarks.quiet_runs DIRECTORY [RUNS]`.

Four ranks, each a group, train small networks for a minute; nothing else should run on the machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aiperf.files import RunFiles
from analysis.readings.devices import look
from analysis.readings.judged import read_run
from analysis.readings.outliers import outlier_text
from tests.mpi.jobs import OPEN_MPI, TINY, started


def named(directory: Path) -> list[str]:
    words = ["run", "--preset", TINY, "--directory", directory, "--minutes", 1, "--device", "cpu"]
    each = ["--devices-per-trial", 1, "--set", "training.epochs=[30]"]
    with started(OPEN_MPI.run(5, *words, *each), directory) as job:
        assert job.end(600.0) == 0, job.text()
    files = RunFiles(directory)
    return [outlier_text(outlier) for outlier in look(files, read_run(files)).slow]


def main() -> None:
    folder, num_runs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    folder.mkdir(parents=True, exist_ok=True)
    found = [named(folder / str(number)) for number in range(num_runs)]
    for number, names in enumerate(found):
        print(f"run {number}: {'; '.join(names) or 'nobody'}")
    print(f"{sum(map(bool, found))} of {num_runs} runs name somebody")


if __name__ == "__main__":
    main()
