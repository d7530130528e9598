"""What a search costs in a long run: time of its proposals, and memory per trial.

    python -m benchmarks.proposals [--searches evolution,random,foresight,bayesian]
                                   [--proposals 20000,100000] [--groups 512] [--seconds 600]

Each search is asked for one candidate after the other, with the preset `ranked`, and told a random error of
the trial that was dispatched --groups trials before. No trial is trained, and no journal is written. It stops
after --seconds of CPU time; its last row then says how far it came.

Prints the table of docs/scaling.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import process_time

from aiperf.config import Config, load_preset, with_overrides
from aiperf.proposing.proposals import new_search
from aiperf.run.checks import starting_graph
from aiperf.run.master import few_collections
from benchmarks.script import head, row
from nas.search import SEARCHES, Observation, Search

COLUMNS = ("search", "proposals", "CPU time", "per proposal", "of the last tenth", "memory per trial")
EXAMPLES = 1000


@dataclass(frozen=True)
class Reached:
    """A search after this many proposals."""

    proposals: int
    seconds: float
    last_seconds: float
    """CPU seconds per proposal of the last tenth."""
    trial_bytes: float
    """Growth of the process's memory per trial, since the first tenth."""


def reached(search: Search, wanted: Sequence[int], groups: int, seconds: float) -> Iterator[Reached]:
    """The search after each of these numbers of proposals, in rising order, and where its time ended."""
    rng, began, at = Random(1), process_time(), 0
    tenths = {number // 10: number for number in wanted}
    memory = dict[int, int]()
    marks = {number - number // 10: 0.0 for number in wanted}
    for at in range(1, wanted[-1] + 1):
        search.ask(at - 1, 1 + (at - 1) // groups)
        if at > groups:
            search.tell(Observation(at - 1 - groups, EXAMPLES, ((EXAMPLES, rng.random()),)))
        spent = process_time() - began
        if at in tenths:
            memory[tenths[at]] = _resident_bytes()
        if at in marks:
            marks[at] = spent
        over = spent > seconds
        if at in wanted or over:
            first = at // 10 if at in wanted else 0
            since = marks[at - first] if first else 0.0
            grown = (_resident_bytes() - memory[at]) / (at - first) if first else float("nan")
            yield Reached(at, spent, (spent - since) / (first or at), grown)
        if over:
            return


def _resident_bytes() -> int:
    """Memory of this process, which Linux counts in pages."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _config(name: str) -> Config:
    """The ranked preset with this search."""
    return with_overrides(
        load_preset("ranked"), {"ranked": False, "search.name": name, "tuning.name": "none"}
    )


def cells(name: str, found: Reached) -> tuple[str, ...]:
    """A row of the table, by COLUMNS."""
    memory = "–" if found.trial_bytes != found.trial_bytes else f"{found.trial_bytes:,.0f} B"
    each = 1e3 * found.seconds / found.proposals, 1e3 * found.last_seconds
    times = (f"{milliseconds:.2f} ms" for milliseconds in each)
    return name, f"{found.proposals:,}", f"{found.seconds:,.1f} s", *times, memory


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--searches", default=",".join(SEARCHES))
    parser.add_argument("--proposals", default="20000,100000", help="rising numbers, each 10 or more")
    parser.add_argument("--groups", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=600.0, help="CPU time limit of each search")
    options = parser.parse_args(arguments)
    wanted = [int(number) for number in options.proposals.split(",")]
    print(head(*COLUMNS), flush=True)
    for name in options.searches.split(","):
        config = _config(name)
        with few_collections():
            search = new_search(config, starting_graph(config))
            for found in reached(search, wanted, options.groups, options.seconds):
                print(row(*cells(name, found)), flush=True)


if __name__ == "__main__":
    main()
