"""Groups over distant hosts: they train, and a host that dies costs those on it and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.readings.run_tables import devices_and_hosts
from tests.mpi.checked import checked
from tests.mpi.hosts import joined_hosts
from tests.mpi.jobs import FAULT_TOLERANT, started, tiny
from tests.mpi.switch import as_root

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900), as_root]


def test_a_killed_host_costs_the_groups_on_it_and_no_more(directory: Path, tmp_path: Path) -> None:
    words = tiny(directory, 0.25, "--devices-per-trial", 2, "--spread")
    with (
        joined_hosts(tmp_path, 4) as hosts,
        started(hosts.run(*words, options=FAULT_TOLERANT), directory) as job,
    ):
        job.wait_for('"Closed"', count=2)
        hosts.kill("beta")
        job.wait_for('"GroupLost"', 10.0)
        job.end()
        assert " VALID, class smoke" in job.text()
    replay = checked(directory)
    assert replay.leg.began.groups == ((1, 3), (2, 4)), "hosts at half of the width"
    assert devices_and_hosts(replay).endswith(" on 4 hosts, each group over 2 of them")
    (loss,) = replay.leg.losses
    assert (loss.group, loss.reason.partition(" is ")[2]) == (1, "dead")
    kept = [each for each in replay.attempts if each.group == 0]
    assert any(each.validations and each.validations[-1].end > replay.leg.end - 5 for each in kept)
