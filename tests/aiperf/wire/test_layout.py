"""Who trains with whom, on which device, and in which format."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.errors import WorldError
from aiperf.wire.formats import emulation_text, fastest_format
from aiperf.wire.layout import Described, Place, layout, refuse_uneven_batch
from tests.tables import ComesTo


def groups(hosts: Sequence[str], devices_per_trial: int, spread: bool = False) -> list[tuple[int, ...]]:
    """Those of hosts that are named by a letter each, the master's first."""
    return of(layout(hosts, devices_per_trial, spread=spread))


def of(places: tuple[Place, ...]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(place.group for place in places))


def test_who_trains_with_whom(comes_to_what_was_read: ComesTo) -> None:
    """A group is led from one host each; a batch is shared evenly, and one image has no variance."""
    comes_to_what_was_read("layout.txt", {"groups": groups, "shared": refuse_uneven_batch})


def test_a_place() -> None:
    assert layout("aaabb")[2] == Place(
        rank=3, group=(3, 4), device_index=0, ranks_on_host=2, spans_hosts=False, host_index=1, num_hosts=2
    )
    fourth = layout("aaabb", 4)[3]
    assert fourth == Place(4, (1, 2, 3, 4), 1, ranks_on_host=2, spans_hosts=True, host_index=1, num_hosts=2)
    assert (fourth.position, fourth.leads, fourth.num_ranks) == (3, False, 4)


@given(st.integers(1, 6), st.integers(1, 6), st.randoms())
def test_every_rank_has_one_device_and_one_group(num_hosts: int, workers: int, random: object) -> None:
    hosts = [f"node{number}" for number in range(num_hosts) for _ in range(workers)]
    random.shuffle(hosts)  # type: ignore[attr-defined]
    hosts = ["node0", *hosts]
    for size in [size for size in range(1, workers + 1) if workers % size == 0]:
        places = layout(hosts, size)
        assert [place.rank for place in places] == list(range(1, len(hosts)))
        assert sorted(rank for group in of(places) for rank in group) == list(range(1, len(hosts)))
        assert len({(hosts[place.rank], place.device_index) for place in places}) == len(places)
        for place in places:
            assert place.rank in place.group
            assert len({hosts[rank] for rank in place.group}) == 1


@given(st.integers(2, 8), st.integers(1, 8), st.integers(1, 64))
def test_a_spread_group_lies_evenly_on_the_most_and_most_distant_hosts(
    num_hosts: int, workers: int, size: int
) -> None:
    hosts = [0, *(host for host in range(num_hosts) for _ in range(workers))]
    evenly = [
        number
        for number in range(2, num_hosts + 1)
        if num_hosts % number == size % number == 0 and size // number <= workers
        if workers % (size // number) == 0
    ]
    try:
        places = layout(list(map(str, hosts)), size, spread=True)
    except WorldError:
        assert not evenly
        return
    made, most = of(places), max(evenly)
    assert sorted(rank for group in made for rank in group) == list(range(1, len(hosts)))
    for group in made:
        on = sorted({hosts[rank] for rank in group})
        assert (len(group), len(on)) == (size, most)
        assert {len([rank for rank in group if hosts[rank] == host]) for host in on} == {size // most}
        assert {second - first for first, second in pairwise(on)} == {num_hosts // most}
    assert all(place.spans_hosts for place in places)
    led = [sum(hosts[group[0]] == host for group in made) for host in range(num_hosts)]
    assert max(led) - min(led) <= 1, "no host writes the weights of all"


def test_the_sizes_that_lie_evenly_over_many_hosts_are_not_searched_one_by_one() -> None:
    """As many trials of sizes as there are ranks, each over all hosts, would take minutes."""
    hosts = ["0", *(str(host) for host in range(30_011) for _ in range(2))]  # a prime number
    with pytest.raises(WorldError, match=r"; use --devices-per-trial with one of 30011, 60022$"):
        layout(hosts, 4, spread=True)


# The format that "auto" comes to, and when one is emulated


EPYC = {"bf16": 1.3e9, "fp32": 66e9}
"""Zen 3: a product of 256 takes 25 ms in bf16, 0.51 ms in fp32."""
XEON = {"bf16": 800e9, "fp32": 100e9}
A100 = {"bf16": 250e12, "fp16": 255e12, "tf32": 120e12, "fp32": 18e12}
V100 = {"fp16": 100e12, "fp32": 14e12}


def described(*rates: dict[str, float]) -> list[Described]:
    return [Described(rank, "a device", "cpu", 1, formats) for rank, formats in enumerate(rates, start=1)]


def test_the_fastest_that_all_have(comes_to_what_was_read: ComesTo) -> None:
    """And what is emulated is told."""

    def fastest(*rates: dict[str, float]) -> str:
        return fastest_format(described(*rates))

    comes_to_what_was_read("formats.txt", {**globals(), "fastest": fastest, "emulated": emulation_text})
