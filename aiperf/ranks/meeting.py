"""Where the ranks of a run on several hosts meet, and the secret by which they know each other."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from aiperf.errors import WorldError
from aiperf.host import variables
from aiperf.host.other_users import NotOurs, private_bytes
from aiperf.ranks.launcher import SECRET, TORCHRUN
from aiperf.ranks.patience import Patience
from aiperf.wire.door import addresses_of_host
from nas.frozen import frozen

JOIN_SECONDS = 300.0
"""Time limit in seconds for a rank to connect to rank 0, which may be started later, or have no name yet."""
AGAIN_SECONDS = 1.0
"""Time in seconds between two questions for an address."""
LEAST_BACKLOG = 128
"""Minimum number of connections that wait in the system, of strangers before a few ranks."""
SECRET_BYTES = (16, 4096)
"""Shortest and longest secret."""
LAST_PORT = 65535


@frozen
class MeetingPlace:
    """Where the ranks of a run meet, and how they know each other."""

    host: str
    """Name or address of the host of rank 0 (MASTER_ADDR)."""
    port: int
    secret: bytes

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def meeting_of(environment: Mapping[str, str], launcher: str) -> MeetingPlace:
    """Where the ranks meet, as the variables of the launcher say. Raises WorldError if one is not set, or
    names no file that only this user can read."""
    path = variables.raw(environment, SECRET)
    if not path:
        raise WorldError(
            f"{launcher} started ranks on several hosts, which need a secret of the run: set {SECRET} to a "
            f"file that only you can read (docs/running.md), or start the ranks with mpiexec or srun"
        )
    shown = f"{repr(path)[1:-1][: variables.SHOWN]} on {socket.gethostname()}"
    try:
        secret = private_bytes(path, SECRET_BYTES[1])
    except (NotOurs, OSError) as error:
        reason = f"{error.strerror}; each host needs it" if isinstance(error, OSError) else error
        raise WorldError(f"{SECRET}: {shown}: {reason}") from None
    if not SECRET_BYTES[0] <= len(secret) <= SECRET_BYTES[1]:
        raise WorldError(
            f"{SECRET}: {shown}: it has {len(secret)} bytes; a secret has {SECRET_BYTES[0]} to "
            f"{SECRET_BYTES[1]:,}, as of: (umask 077; head -c 32 /dev/urandom | base64 >FILE)"
        )
    remedy = "set it to the host of rank 0, and a port that is free there, for all ranks"
    host = variables.word(environment, "MASTER_ADDR")
    # torchrun listens at MASTER_PORT itself.
    above = int(launcher == TORCHRUN)
    port = variables.whole(environment, "MASTER_PORT", 1, LAST_PORT - above, remedy)
    if not host or port is None:
        raise WorldError(f"{'MASTER_PORT' if host else 'MASTER_ADDR'} is not set; {remedy}")
    return MeetingPlace(host, port + above, secret)


def listening_at(meeting: MeetingPlace, size: int) -> socket.socket:
    """The socket of rank 0, at one address only. Raises WorldError."""
    error: OSError | None = None
    for family, address in _addresses(meeting):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after an earlier run
            listening.bind(address)
            listening.listen(max(size, LEAST_BACKLOG))
            listening.setblocking(False)
        except OSError as failure:
            listening.close()
            error = failure
        else:
            return listening
    reason = "its name leads to no address" if error is None else error.strerror or str(error)
    remedy = "start rank 0 on the host of MASTER_ADDR"
    if error is None:
        remedy = "set MASTER_ADDR to a name or address of this host that all hosts reach"
    elif error.errno == errno.EADDRINUSE:
        remedy = "choose another MASTER_PORT"
    raise WorldError(f"rank 0 on {socket.gethostname()} cannot listen at {meeting}: {reason}; {remedy}")


def _addresses(meeting: MeetingPlace) -> Iterator[tuple[int, Any]]:
    """Families and addresses at which rank 0 may listen, the best first. Waits for a name that the network
    does not know yet."""
    patience = Patience(JOIN_SECONDS)
    while True:
        try:
            found = socket.getaddrinfo(meeting.host, meeting.port, type=socket.SOCK_STREAM)
            break
        except OSError as error:
            if patience.is_over:
                return
            patience.report(f"the name of rank 0, {meeting.host}, has no address: {error.strerror}")
            time.sleep(AGAIN_SECONDS)
    reachable = [each for each in found if not _is_loopback(each[4][0])]
    if not reachable and not _is_loopback(meeting.host) and meeting.host != "localhost":
        # Debian gives the name of a host a loopback address in its own /etc/hosts.
        for own in addresses_of_host(os.environ):
            yield (socket.AF_INET6 if ":" in own else socket.AF_INET), (own, meeting.port)
        return
    for family, _, _, _, address in reachable or found:
        yield family, address


def _is_loopback(address: Any) -> bool:
    try:
        return ipaddress.ip_address(str(address).partition("%")[0]).is_loopback
    except ValueError:  # a name
        return False
