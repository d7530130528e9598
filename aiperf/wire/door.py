"""The listening socket at which the ranks of a group meet, on one network interface.

The store of torch.distributed behind it answers whoever connects. So a group on one host meets on the
loopback interface, and a group that spans hosts on the one interface through which they reach each other.
Once all ranks have met, others can be kept away.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator, Mapping

from aiperf.errors import GroupBroken, WorldError

LOOPBACK = "127.0.0.1"
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables with the name of the interface for collectives."""
REACH_SECONDS = 60.0  # for a connection: longer than a link is usually cut
_ELSEWHERE = ("192.0.2.1", 9)
"""An address that no host has (RFC 5737), by which the system is asked for its default route."""
_SIOCGIFADDR = 0x8915
"""Request for the IPv4 address of an interface: netdevice(7)."""
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h; Python has no name for it
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A filter of one instruction, `return 0`: no byte of a packet is accepted (socket(7), SO_ATTACH_FILTER)."""


def open_door(spans_hosts: bool, environment: Mapping[str, str]) -> socket.socket:
    """A socket that listens at any free port, on the loopback interface, or for a group that spans hosts on
    the one that they use.

    That is the interface named by a variable of `INTERFACES`, otherwise the one with this host's name,
    otherwise the one of the default route. Raises WorldError if there is none.
    """
    if not spans_hosts:
        return _listening(LOOPBACK)
    for address in addresses_of_host(environment):
        with contextlib.suppress(OSError):  # a name may lead to an address that this host does not have
            return _listening(address)
    host = socket.gethostname()
    raise WorldError(
        f"{host}: its name leads to no address that other hosts can reach, and it has no default route; set "
        f"{INTERFACES[0]} to the name of the network interface that the hosts use"
    )


def keep_others_away(door: socket.socket) -> None:
    """Ends further connections to a listening socket; those that exist remain, and so does the port. Linux
    drops the packets that would open one; elsewhere nothing happens."""
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(_DROP_ALL)
        filter_ = struct.pack("HP", 1, ctypes.addressof(program))
        door.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)


def interface_towards(host: str) -> str:
    """Name of the network interface through which this host reaches an address; empty if that is unknown."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.connect((host, _ELSEWHERE[1]))  # this sends nothing
        own = asked.getsockname()[0]
        return next((name for _, name in socket.if_nameindex() if own in _of_interface(name)), "")
    return ""


def refuse_unreachable(host: str, port: int) -> None:
    """Connects to the door of a group's leader once. Raises WorldError, with the reason, if it cannot be
    reached: the store of torch.distributed would try for ten minutes, and say why only in a log."""
    try:
        socket.create_connection((host, port), REACH_SECONDS).close()
    except ConnectionRefusedError:
        raise GroupBroken(
            f"nobody listens at {host}:{port}, where the group of {socket.gethostname()} meets: its leader "
            f"has ended, or {INTERFACES[0]} names an interface that the hosts do not share"
        ) from None
    except OSError as error:
        raise WorldError(
            f"{socket.gethostname()} cannot reach {host}:{port}, where its group meets ("
            f"{error.strerror or error}); set {INTERFACES[0]} to the name of the network interface that the "
            f"hosts use, or choose groups within hosts: fewer --devices-per-trial and no --spread"
        ) from None


def addresses_of_host(environment: Mapping[str, str]) -> Iterator[str]:
    """Addresses of this host by which other hosts may reach it, the best first."""
    for name in filter(None, map(environment.get, INTERFACES)):
        yield from _of_interface(name.split(",")[0].removeprefix("="))
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            found = ipaddress.ip_address(str(address[0]).partition("%")[0])
            if not (found.is_loopback or found.is_link_local):
                yield str(found)
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as asked:
        asked.connect(_ELSEWHERE)  # this sends nothing
        yield asked.getsockname()[0]


def _of_interface(name: str) -> Iterator[str]:
    """The IPv4 address of an interface; nothing if it has none, or if `name` is only a prefix of names."""
    request = struct.pack("256s", name.encode(errors="surrogateescape")[:15])
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as asked:
        yield socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])


def _listening(address: str) -> socket.socket:
    """A socket that listens at any free port of an address. Raises OSError if it is not of this host."""
    door = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        door.bind((address, 0))
        door.listen()
    except OSError:
        door.close()
        raise
    return door
