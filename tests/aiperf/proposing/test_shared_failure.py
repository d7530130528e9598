"""When a failure is that of every trial, and when it may be that of one architecture, device or node."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.proposing.shared_failure import Failure, SharedFailure
from tests.tables import ComesTo

Seen = Sequence[tuple[str, int, str, str]]
"""The network, the group, its hosts as letters, and the reason, for each failure."""
FULL = "rank {} on {}: /run/weights/{}.safetensors cannot be written: No space left on device"


def full(trial: int, group: int, host: str) -> tuple[str, int, str, str]:
    return str(trial), group, host, FULL.format(group, host, trial)


def one_each(num: int, hosts: str) -> Seen:
    return [full(index, index, hosts[index % len(hosts)]) for index in range(num)]


def nan(trial: int, loss: str, steps: int) -> tuple[str, int, str, str]:
    return (str(trial), 0, "a", f"rank 0 on a: NotFinite: the loss is {loss} in {steps} steps; lower it")


IN_VALIDATION = ("2", 0, "a", "rank 0 on a: NotFinite: 7 of 9 bytes are predicted with a probability")
NO_FILES = [
    (str(trial), 0, "a", f"rank 0 on a: DataError: /set/{name}.png: Too many open files; raise the limit")
    for trial, name in enumerate(("cat/a b", "dog/c b", "cat/d b"))
]


def ends(seen: Seen, groups: int, hosts: int) -> bool:
    failures = SharedFailure()
    for network, group, own, reason in seen:
        failures.failed(Failure(network, group, own, reason))
    found = failures.ends_run(groups, hosts, open_segments=0)
    failures.excluded = True  # a trial completed
    assert not failures.ends_run(groups, hosts, open_segments=0)
    return found


def test_a_failure_is_shared_in_three_networks_and_half_of_the_groups(
    comes_to_what_was_read: ComesTo,
) -> None:
    comes_to_what_was_read("shared_failures.txt", globals())


def test_a_trial_that_came_further_than_those_that_failed_is_waited_for() -> None:
    failures = SharedFailure()
    for trial, segments in enumerate((0, 2, 1)):
        failures.failed(Failure(str(trial), 0, "a", "no space left", segments))
    assert [failures.ends_run(1, 1, segments) for segments in (1, 2, 3)] == [True, True, False]
