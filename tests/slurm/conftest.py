"""The cluster that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, cluster_of


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(16, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(autouse=True)
def _idle(cluster: Cluster) -> Iterator[None]:
    """What a test leaves behind, jobs and lost nodes, is not the next one's."""
    yield
    cluster.restore()
