"""The ranks of a group make their steps by one engine: what fails on one of them is used by none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiperf.engines.check import ELSEWHERE

SECONDS = 300.0
"""Each waits for the other in an all-reduce where they do not agree."""


def printed(module: str, folder: Path) -> list[dict[str, Any]]:
    """What two processes of a module, one for each rank, print as JSON."""
    command = [sys.executable, "-m", module]
    started = [
        subprocess.Popen([*command, str(rank), str(folder)], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        return [json.loads(rank.communicate(timeout=SECONDS)[0]) for rank in started]
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()  # which closes its pipe, after a timeout too


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[Any]]]:
    return printed("tests.aiperf.training.two_ranks", tmp_path_factory.mktemp("group"))


def test_a_group_captures_its_steps_and_learns_what_an_eager_one_learns(
    ranks: list[dict[str, list[Any]]],
) -> None:
    for one in ranks:
        assert one["captured"] == [[], ranks[0]["eager"][1]]
        assert one["captured in bf16"] == [[], ranks[0]["eager in bf16"][1]]


def test_what_is_not_captured_on_one_rank_is_eager_on_all(ranks: list[dict[str, list[Any]]]) -> None:
    learnt = ranks[0]["eager in bf16"][1]
    assert ranks[0]["not captured"] == [[ELSEWHERE], learnt]
    assert ranks[1]["not captured"] == [["RuntimeError: no capture here"], learnt]


@pytest.mark.parametrize(
    ("wrong", "eager", "said"),
    [
        ("another loss", "eager", "the loss is "),
        ("other gradients", "eager in bf16", "the gradient of "),  # from the mean of both ranks
    ],
)
def test_a_check_that_fails_on_one_rank_fails_on_all(
    wrong: str, eager: str, said: str, ranks: list[dict[str, list[Any]]]
) -> None:
    learnt = ranks[0][eager][1]
    assert ranks[0][wrong] == [[ELSEWHERE], learnt]
    (reason,), own = ranks[1][wrong]
    assert reason.startswith(said)
    assert own == learnt
