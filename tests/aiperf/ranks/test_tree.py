"""What goes to all: the trees, and both ends with ranks that die, hang and miss messages."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import cast

import pytest

from aiperf.ranks.link import Link, Received, Waited
from aiperf.ranks.relay import Post
from aiperf.ranks.tree import FAN_OUT, Announcer, after, children, goes_to_all
from aiperf.wire.layout import Disband, Place
from aiperf.wire.messages import Join, MeasureCeiling, Observe, Quit, Release, Setup, Stop, ToGroup, pack
from tests.aiperf.training.test_worker import CONFIG

SETUP = Setup(CONFIG, {}, "/a/run")
RANDOM = [random.Random(seed) for seed in range(12)]
NONE: Mapping[str, int] = {}


def reached(size: int, avoid: Collection[int], dead: Collection[int], fan_out: int) -> dict[int, int]:
    """Fewest hops from rank 0 over ranks that are not dead, by rank."""
    hops, waiting = {0: 0}, deque([0])
    while waiting:
        rank = waiting.popleft()
        for child in children(rank, size, avoid, fan_out):
            if child not in hops and child not in dead:
                hops[child] = hops[rank] + 1
                waiting.append(child)
    return hops


def levels(size: int, fan_out: int) -> int:
    """Levels below the root of a tree that is full except for its last level."""
    count, width, found = 1, 1, 0
    while count < size:
        width *= fan_out
        count, found = count + width, found + 1
    return found


@pytest.mark.parametrize("chance", RANDOM)
def test_every_rank_is_reached_in_few_hops(chance: random.Random) -> None:
    size, fan_out = chance.randint(2, 600), chance.randint(2, 9)
    avoid = set(chance.sample(range(1, size), chance.randint(0, (size - 1) // 2)))
    hops = reached(size, avoid, (), fan_out)
    assert hops.keys() == set(range(size))
    assert max(hops.values()) <= levels(size - len(avoid), fan_out) + 1
    assert all(not children(rank, size, avoid, fan_out) for rank in avoid)
    heard = [child for rank in range(size) for child in children(rank, size, avoid, fan_out)]
    assert len(heard) <= 2 * size
    for rank in range(size):
        own = children(rank, size, avoid, fan_out)
        assert len(set(own)) == len(own)
        assert not {0, rank} & set(own)
        assert len(own) <= 2 * fan_out + (0 if rank else len(avoid))
        assert not rank or not avoid & {*own}, "their host may be cut off, and only the master is connected"


@pytest.mark.parametrize("chance", RANDOM[:4])
def test_neither_one_dead_rank_nor_any_number_of_known_ones_cuts_anybody_off(chance: random.Random) -> None:
    size, fan_out = chance.randint(3, 200), chance.randint(3, 9)
    avoid = set(chance.sample(range(1, size), chance.randint(0, size // 4)))
    for dead in range(1, size):  # nobody knows of it
        assert reached(size, avoid, {dead}, fan_out).keys() == set(range(size)) - {dead}
    known = set(chance.sample(range(1, size), chance.randint(0, size - 1)))
    assert reached(size, known, known, FAN_OUT).keys() == set(range(size)) - known


def test_the_master_of_the_largest_machine_says_a_few_messages() -> None:
    size = 32_768
    assert len(children(0, size, ())) == 2 * FAN_OUT
    assert max(reached(size, (), (), FAN_OUT).values()) <= 5
    assert max(len(children(rank, size, ())) for rank in range(size)) == 2 * FAN_OUT


# Both ends


class Net:
    """Ranks that hear each other at once, in any order of senders; those of `deaf` hear nothing."""

    def __init__(self, groups: Iterable[tuple[int, ...]], chance: random.Random) -> None:
        groups = tuple(groups)
        self.chance, self.deaf = chance, set[int]()
        self.size = 1 + sum(map(len, groups))
        self.mail: dict[tuple[int, int], deque[Received]] = {}
        self.sent: list[tuple[int, int]] = []
        self.master = Announcer(self.link(0))
        self.posts = {rank: Post(self.link(rank), "cpu") for group in groups for rank in group}
        self.mail.clear()
        for group in groups:
            for index, rank in enumerate(group):
                self.put(0, rank, 0, pack(Place(rank, group, index, len(group))))
        self.heard: dict[int, list[ToGroup]] = {rank: [] for rank in self.posts}

    def link(self, rank: int) -> Link:
        return cast(Link, End(self, rank))

    def put(self, source: int, rank: int, tag: int, data: bytes) -> None:
        self.sent.append((source, rank))
        self.mail.setdefault((source, rank), deque()).append(Received(source, tag, data))

    def say(self, *messages: ToGroup, dead: Collection[int] = (), anew: Mapping[str, int] = NONE) -> None:
        """To all, and each until it has arrived."""
        for message in messages:
            self.master.say(message, dead, anew)
            self.settle()

    def settle(self) -> None:
        """Until nothing is on its way to anybody who hears."""
        while ways := [way for way, mail in self.mail.items() if mail and way[1] not in self.deaf]:
            source, rank = self.chance.choice(ways)
            received = self.mail[source, rank].popleft()
            if rank == 0:
                assert goes_to_all(received.data)
                self.master.answer(received)
                continue
            cast(End, self.posts[rank].link).arriving.append(received)
            while (message := self.posts[rank].receive(0)) is not None:
                if not isinstance(message, Place):
                    self.heard[rank].append(message)


class End:
    """A rank's link in such a net."""

    fault_tolerant, failed, orphaned = False, frozenset[int](), False

    def __init__(self, net: Net, rank: int) -> None:
        self.net, self.rank, self.size = net, rank, net.size
        self.arriving: deque[Received] = deque()

    def send(self, rank: int, tag: int, data: bytes) -> None:
        if rank not in self.failed:
            self.net.put(self.rank, rank, tag, data)

    def receive(self, seconds: float, beside: Waited | None = None) -> Received | None:
        return self.arriving.popleft() if self.arriving else None


def net_of(groups: int, size: int, chance: random.Random | None = None, setup: bool = True) -> Net:
    """This many groups of this many ranks, to which a run was said."""
    ranks = (tuple(range(1 + size * group, 1 + size * (group + 1))) for group in range(groups))
    net = Net(ranks, chance or random.Random(1))
    if setup:
        net.say(SETUP)
    return net


@pytest.mark.parametrize("chance", RANDOM)
def test_all_hear_all_once_and_in_order(chance: random.Random) -> None:
    """A message to a group that follows one to all travels a shorter way, and is heard after it."""
    net = net_of(chance.randint(1, 40), chance.randint(1, 4), chance, setup=False)
    said: dict[int, list[ToGroup]] = {rank: [] for rank in net.posts}
    for number in range(12):
        if number == 0 or chance.random() < 0.5:
            message: ToGroup = SETUP if number == 0 else Release(float(number))
            net.master.say(message, (), NONE)
            for each in said.values():
                each.append(message)
        else:
            place = net.posts[chance.choice(list(net.posts))].place
            group = place.group if place else (1,)
            message = Join("node1", number, "secret")
            net.put(0, group[0], 1, after(net.master.number, pack(message)))
            for rank in group:
                said[rank].append(message)
        if number == 0 or chance.random() < 0.4:
            net.settle()
    net.settle()
    for rank, expected in said.items():
        to_all = [message for message in expected if not isinstance(message, Join)]
        assert [each for each in net.heard[rank] if not isinstance(each, Join)] == to_all
        for index, message in enumerate(expected):  # all that was said before it
            if isinstance(message, Join):
                before = [each for each in expected[:index] if not isinstance(each, Join)]
                heard = net.heard[rank][: net.heard[rank].index(message)]
                assert all(each in heard for each in before)


@pytest.mark.parametrize("chance", RANDOM)
def test_those_behind_dead_ranks_hear_by_the_next_beat(chance: random.Random) -> None:
    net = net_of(chance.randint(2, 60), chance.randint(1, 3), chance)
    said = [SETUP, Observe({}), MeasureCeiling(1.0)]
    net.deaf = set(chance.sample(sorted(net.posts), chance.randint(1, len(net.posts) - 1)))
    net.say(*said[1:])
    net.master.beat(net.deaf)
    net.settle()
    alive = net.posts.keys() - net.deaf
    assert all(net.heard[rank] == said for rank in alive)
    net.say(Stop(), dead=net.deaf)
    assert all(net.heard[rank] == [*said, Stop()] for rank in alive)
    deaf, net.deaf = net.deaf, set()  # they only hung
    net.settle()
    assert all(net.heard[rank] == [*said, Stop()] for rank in deaf)


def test_a_rank_that_is_known_to_be_dead_is_sent_nothing() -> None:
    """Open MPI would kill a rank whose first message to it this is; one of a restarted group hears all."""
    net = net_of(20, 2)
    net.deaf = {4}
    cast(End, net.master._link).failed = frozenset({4})
    net.sent.clear()
    net.say(Stop(), dead={4, 5})
    net.master.beat({4, 5})
    net.settle()
    receivers = {rank for _, rank in net.sent}
    assert net.posts.keys() - receivers == {4}


@pytest.mark.parametrize("then", [None, Stop()], ids=["nothing more", "another one"])
def test_a_single_message_that_was_lost_is_asked_for_once(then: ToGroup | None) -> None:
    net = net_of(1, 1)
    net.master.say(Release(5.0), (), NONE)
    net.mail.clear()
    if then is None:
        net.master.beat(())
    else:
        net.master.say(then, (), NONE)
    net.settle()
    assert net.heard[1] == [SETUP, Release(5.0), *([then] if then else [])]
    net.sent.clear()
    net.master.beat(())
    net.settle()
    assert set(net.sent) == {(0, 1)}, "nothing is missing"


def test_a_beat_is_heard_by_all_and_asks_for_nothing() -> None:
    net = net_of(32, 8)
    before = {rank: post._heard for rank, post in net.posts.items()}
    net.sent.clear()
    net.master.beat(())
    net.settle()
    assert all(post._heard > before[rank] for rank, post in net.posts.items())
    assert net.sent.count((0, 1)) == 1
    assert len([source for source, _ in net.sent if source == 0]) == 2 * FAN_OUT
    assert len(net.sent) <= 2 * net.size


def test_a_message_to_all_waits_for_the_start_of_its_incarnation() -> None:
    net = net_of(2, 2)
    net.say(Stop(), anew={"1": 2})  # group (1, 2) is started again, and its Setup is slow
    assert net.heard == {1: [SETUP], 2: [SETUP], 3: [SETUP, Stop()], 4: [SETUP, Stop()]}
    net.put(0, 1, 2, after(1, pack(SETUP)))
    net.settle()
    assert net.heard[1] == net.heard[2] == [SETUP, SETUP, Stop()]


def test_what_was_said_before_a_group_was_started_again_it_does_not_hear() -> None:
    net = net_of(2, 1)
    net.deaf = {1}
    net.say(Release(5.0))
    late = [net.mail.pop(way) for way in list(net.mail) if way[1] == 1]
    net.deaf = set()
    net.put(0, 1, 2, after(2, pack(SETUP)))
    net.put(0, 1, 2, after(2, pack(Release(3.0))))
    net.settle()
    for mail in late:
        net.mail[2, 1] = mail
    net.settle()
    net.say(Stop(), anew={"1": 2})
    assert net.heard == {1: [SETUP, SETUP, Release(3.0), Stop()], 2: [SETUP, Release(5.0), Stop()]}


def test_a_disbanded_group_hears_only_the_end() -> None:
    net = net_of(2, 1)
    net.put(0, 1, 2, pack(Disband()))
    net.say(Stop(), Quit())
    assert net.heard == {1: [SETUP, Disband(), Quit()], 2: [SETUP, Stop(), Quit()]}


def test_the_end_waits_for_nothing() -> None:
    net = net_of(1, 1, setup=False)
    net.mail.clear()  # its place was never said
    net.master.say(SETUP, (), NONE)
    net.say(Quit(), anew={"1": 7})
    assert net.heard == {1: [Quit()]}
    assert net.posts[1].quit.is_set()
