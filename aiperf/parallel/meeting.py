"""How the ranks of a group meet: the store of torch.distributed, behind a socket of ours."""

from __future__ import annotations

import os
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, TCPStore

from aiperf.wire.layout import Place


def stay_on_host(place: Place) -> None:
    """Makes the Gloo sockets of a group on one host listen on its loopback interface, whatever interface the
    site has chosen for groups that span hosts: there is no name to resolve, no link to lose, and no other
    host that could connect."""
    if not place.spans_hosts:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def meeting_store(
    place: Place, address: tuple[str, int], secret: str, timeout: timedelta, listening: int = -1
) -> PrefixStore:
    """The store of a group at an address, with all its keys under the secret of the group.

    `listening` is the file descriptor of the leader's socket, which the store closes in the end.
    """
    host, port = address
    store = TCPStore(
        host,
        port,
        len(place.group),
        place.leads,
        timeout,
        wait_for_workers=False,
        master_listen_fd=listening if place.leads else None,
    )
    return PrefixStore(secret, store)
