"""How the ranks of a group meet: the store of torch.distributed, behind a socket of ours."""

from __future__ import annotations

import os
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, TCPStore

from aiperf import variables
from aiperf.wire.door import INTERFACES, interface_towards, refuse_unreachable
from aiperf.wire.layout import Place


def stay_on_host(place: Place) -> None:
    """Makes the Gloo sockets of a group on one host listen on its loopback interface, whatever interface the
    site has chosen for groups that span hosts: there is no name to resolve, no link to lose, and no other
    host that could connect."""
    if not place.spans_hosts:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def meet_across_hosts(host: str, port: int, leads: bool) -> None:
    """Makes the Gloo sockets of a group that spans hosts listen on the interface of its meeting, unless the
    site has chosen one: Gloo would look up this host's name, and take the loopback interface without one.
    Raises WorldError if a rank that does not lead cannot reach the leader."""
    if variables.raw(os.environ, INTERFACES[0]) is None and (name := interface_towards(host)):
        os.environ[INTERFACES[0]] = name
    if not leads:
        refuse_unreachable(host, port)


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
