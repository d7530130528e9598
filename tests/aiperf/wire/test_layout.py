"""Who trains with whom, and on which device."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.errors import ConfigError, WorldError
from aiperf.wire.layout import Place, layout, refuse_uneven_batch


def groups(places: tuple[Place, ...]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(place.group for place in places))


@pytest.mark.parametrize(
    ("hosts", "devices_per_trial", "expected"),
    [
        ("aa", 0, [(1,)]),
        ("aaaaa", 0, [(1, 2, 3, 4)]),
        ("aaaaa", 1, [(1,), (2,), (3,), (4,)]),
        ("aaaaa", 2, [(1, 2), (3, 4)]),
        ("aaabb", 0, [(1, 2), (3, 4)]),
        ("aaabb", 1, [(1,), (2,), (3,), (4,)]),
        ("aaabb", 4, [(1, 2, 3, 4)]),  # more than a host has: asked to span
        ("aaabbccdd", 4, [(1, 2, 3, 4), (5, 6, 7, 8)]),
        ("aabab", 0, [(1, 3), (2, 4)]),  # placed in turns: a group still stays on its host
        ("mabab", 0, [(1, 3), (2, 4)]),  # a host of its own for the master
    ],
)
def test_groups(hosts: str, devices_per_trial: int, expected: list[tuple[int, ...]]) -> None:
    assert groups(layout(hosts, devices_per_trial)) == expected


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
        assert sorted(rank for group in groups(places) for rank in group) == list(range(1, len(hosts)))
        assert len({(hosts[place.rank], place.device_index) for place in places}) == len(places)
        for place in places:
            assert place.rank in place.group
            assert len({hosts[rank] for rank in place.group}) == 1


@pytest.mark.parametrize(
    ("hosts", "devices_per_trial", "expected"),
    [
        ("aaabb", 0, [(1, 3), (4, 2)]),  # as many as a host has; led from one host each
        ("aabcd", 2, [(1, 3), (2, 4)]),  # the first with the third, not with its neighbour
        ("aaabbccdd", 4, [(1, 3, 5, 7), (4, 6, 8, 2)]),
        ("aaabbccdd", 2, [(1, 5), (6, 2), (3, 7), (8, 4)]),
        ("aaaaabbbb", 4, [(1, 2, 5, 6), (7, 8, 3, 4)]),  # more than there are hosts
        ("aaabbcc", 4, []),  # of three hosts neither two nor three
        ("mabab", 2, [(1, 2), (4, 3)]),
    ],
)
def test_spread_groups(hosts: str, devices_per_trial: int, expected: list[tuple[int, ...]]) -> None:
    if expected:
        assert groups(layout(hosts, devices_per_trial, spread=True)) == expected
        return
    with pytest.raises(WorldError) as raised:
        layout(hosts, devices_per_trial, spread=True)
    assert str(raised.value) == (
        "--spread: groups of 4 do not lie evenly over 3 hosts of 2 workers; use --devices-per-trial with one "
        "of 3, 6"
    )


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
    made, most = groups(places), max(evenly)
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


NOT_DIVIDED = "--devices-per-trial {} does not divide {} host(s) of {} worker(s) evenly"
UNEQUAL = (
    "the hosts have different numbers of workers (node1 1, node2 2): beside the master every host needs the "
    "same; start 5 ranks (2 x 2 + 1), the extra one on node1, as with mpiexec -n 5 -host node1:3,node2:2"
)


@pytest.mark.parametrize(
    ("hosts", "devices_per_trial", "message"),
    [
        ("a", 0, "the only rank is the master, so none trains; start at least two ranks"),
        (["node1", "node1", "node2", "node2"], 0, UNEQUAL),
        ("aaaaa", 3, f"{NOT_DIVIDED.format(3, 1, 4)}; use one of 1, 2, 4"),
        ("aaabb", 6, f"{NOT_DIVIDED.format(6, 2, 2)}; use one of 1, 2, 4"),
    ],
)
def test_what_cannot_be_divided(hosts: list[str], devices_per_trial: int, message: str) -> None:
    with pytest.raises(WorldError) as raised:
        layout(hosts, devices_per_trial)
    assert str(raised.value) == message


def test_a_batch_is_shared_evenly() -> None:
    refuse_uneven_batch(50, 1)
    refuse_uneven_batch(48, 4)
    with pytest.raises(ConfigError) as raised:
        refuse_uneven_batch(50, 4)
    assert str(raised.value) == (
        "training.batch_size is 50, which the 4 ranks of a group cannot share evenly; use "
        "--set training.batch_size=48 (or 52), or other --devices-per-trial"
    )
    with pytest.raises(
        ConfigError, match=r"use --set training.batch_size=16 \(or 24\)"
    ):  # one image has no variance
        refuse_uneven_batch(8, 8)
