"""How many threads: on a clock of the test's own, and on this processor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from aiperf.device import bind
from aiperf.measuring import before_span
from aiperf.measuring.before_span import choose_threads, chosen
from aiperf.ranks.process import environment


class Cores:
    """A device on which a step takes the time of its number of threads."""

    kind = "cpu"

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self.seconds, self.now, self.used = seconds, 0.0, list[int]()

    def use_threads(self, count: int) -> None:
        self.used.append(count)

    def step(self) -> None:
        self.now += self.seconds[self.used[-1]]


@pytest.mark.parametrize(
    ("seconds", "count"),
    [
        ({1: 0.08, 2: 0.04, 4: 0.02}, 4),
        ({1: 0.03, 3: 0.02, 4: 2.0}, 3),  # one core is somebody else's
        ({1: 0.021, 2: 0.02}, 1),  # nearly as fast: fewer lose less when others come
    ],
)
def test_the_fewest_that_are_nearly_the_fastest(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], count: int
) -> None:
    cores = Cores(seconds)
    monkeypatch.setattr(before_span, "perf_counter", lambda: cores.now)
    found = choose_threads(cores, tuple(seconds), cores.step, 2.0)  # type: ignore[arg-type]
    assert found == pytest.approx(seconds)
    assert cores.used[-1] == count == chosen(found)
    assert cores.used[0] == min(seconds), "the fewest first"
    assert cores.now < 2.0 + 2 * sum(seconds.values())


@pytest.mark.parametrize(
    ("value", "torch_uses", "counts"),
    [
        ("1", 2, ()),
        *((ignored, 2, (1, 2)) for ignored in ("0", "abc", "", "-1")),
        (None, 6, (1, 3, 5, 6)),
    ],
)
def test_a_processor_offers_all_its_cores_one_less_and_halves_unless_somebody_chose(
    monkeypatch: pytest.MonkeyPatch, value: str | None, torch_uses: int, counts: tuple[int, ...]
) -> None:
    """What OpenMP ignores is no choice."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS")
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    try:
        device = bind("cpu", 0)
        torch.set_num_threads(torch_uses)
        assert device.thread_counts == counts
        device.use_threads(1)
        assert device.threads == 1
    finally:
        torch.set_num_threads(before)


def test_waiting_threads_soon_sleep_unless_somebody_chose() -> None:
    assert environment({"PATH": "/bin"}) == {"PATH": "/bin", "GOMP_SPINCOUNT": "1000"}
    assert environment({"OMP_WAIT_POLICY": "active"}) == {"OMP_WAIT_POLICY": "active"}
