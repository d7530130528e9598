"""When a failure is that of every trial, and when it may be that of one architecture, device or node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiperf.proposing.shared_failure import Failure, SharedFailure

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
    ("0", 0, "a", "rank 0 on a: DataError: /set/cat/a b.png: Too many open files; raise the limit"),
    ("1", 0, "a", "rank 0 on a: DataError: /set/dog/c b.png: Too many open files; raise the limit"),
    ("2", 0, "a", "rank 0 on a: DataError: /set/cat/d b.png: Too many open files; raise the limit"),
]


@pytest.mark.parametrize(
    ("seen", "groups", "hosts", "ends"),
    [
        ([], 1, 1, False),
        ([full(trial, 0, "a") for trial in range(3)], 1, 1, True),
        ([full(trial, 0, "a") for trial in range(2)], 1, 1, False),  # two networks
        ([full(0, 0, "a") for _ in range(5)], 1, 1, False),  # one network, five times
        ([full(trial, 0, "a") for trial in range(9)], 2, 1, False),  # one device of two
        (one_each(3, "aab"), 3, 2, True),
        (one_each(4, "ab"), 9, 2, False),  # less than half of the groups
        (one_each(4, "ab"), 8, 2, True),
        ([full(trial, 0, "a") for trial in range(99)], 512, 512, False),  # one bad node of 512
        (one_each(256, "a"), 512, 64, False),  # one host, however many groups
        (one_each(256, "ab"), 512, 64, False),
        (one_each(256, "abc"), 512, 64, True),
        ([full(trial, 0, "abcd") for trial in range(3)], 1, 4, True),  # the only group, on four hosts
        ([nan(0, "nan", 23), nan(1, "-inf", 1), nan(3, "inf", 2)], 1, 1, True),
        ([nan(0, "nan", 23), nan(1, "nan", 1), IN_VALIDATION], 1, 1, True),
        (NO_FILES, 1, 1, True),  # each trial meets another file first
        ([*NO_FILES, full(3, 0, "a")], 1, 1, False),  # another cause
        ([full(3, 0, "a"), *NO_FILES], 1, 1, False),
    ],
)
def test_a_failure_is_shared_in_three_networks_and_half_of_the_groups(
    seen: Seen, groups: int, hosts: int, ends: bool
) -> None:
    failures = SharedFailure()
    for network, group, own, reason in seen:
        failures.failed(Failure(network, group, own, reason))
    assert failures.ends_run(groups, hosts, open_segments=0) is ends
    failures.excluded = True  # a trial completed
    assert not failures.ends_run(groups, hosts, open_segments=0)


def test_a_trial_that_came_further_than_those_that_failed_is_waited_for() -> None:
    failures = SharedFailure()
    for trial, segments in enumerate((0, 2, 1)):
        failures.failed(Failure(str(trial), 0, "a", "no space left", segments))
    assert [failures.ends_run(1, 1, segments) for segments in (1, 2, 3)] == [True, True, False]
