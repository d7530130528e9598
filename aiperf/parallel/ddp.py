"""The ranks of a group joined by torch.distributed: DistributedDataParallel, over NCCL, Gloo, HCCL or XCCL.

Each group is a process group of its own. Its ranks meet once per run, at an address that the master passes
on with a secret, and no collective includes ranks of other groups, so a failure ends only one group.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from aiperf.device import Device
from aiperf.device.device import is_out_of_memory
from aiperf.device.dynamo import load_dynamo
from aiperf.host import variables
from aiperf.parallel.parallel import Parallel
from aiperf.wire.door import INTERFACES, interface_towards, keep_others_away, open_door, refuse_unreachable
from aiperf.wire.layout import Place
from aiperf.wire.messages import Join, Meeting

MEETING_TIMEOUT = timedelta(minutes=10)
"""Time for all ranks of a group to come: those of a large job start minutes apart."""
# The master notices a silent group long before; this only ends processes that would otherwise remain.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)
# Statistics of batch norm are averaged at a validation, and not sent at every step. The option has the first
# name since torch 2.13, and the second one in all earlier versions.
FORWARD = "forward_sync_buffers"
KNOWN = inspect.signature(DistributedDataParallel).parameters
OWN_STATISTICS: dict[str, Any] = {FORWARD if FORWARD in KNOWN else "broadcast_buffers": False}
OF_CAPTURES = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_GRAPH_REGISTER")
"""Variables that are 0 where a backward pass with DDP is captured. The first must be (CUDA semantics of
PyTorch, "Usage with DistributedDataParallel"); the master notices a group whose collective never ends by its
silence. By the second, NCCL registers buffers in a capture, for which ranks on NVSwitch wait for each other
without an end (`nvlsRegisterBuffer` of NVIDIA/nccl, src/transport/nvls.cc); one whose capture failed never
comes."""
RELEASE_SECONDS = 0.1
"""Time in seconds for Gloo's threads to release tensors, which takes microseconds with Python's lock."""
# Parts of the messages by which Gloo, which raises plain RuntimeErrors, reports a lost connection.
LOST_CONNECTION = ("Connection closed by peer", "Connection reset by peer", "gloo/transport")


def allow_capture(environment: MutableMapping[str, str]) -> None:
    """Sets OF_CAPTURES, unless the site has set them. To be called before the group is joined."""
    for name in OF_CAPTURES:
        if not variables.word(environment, name):
            environment[name] = "0"


class Ddp(Parallel):
    """Data parallelism by torch.distributed."""

    wraps_network = True

    def __init__(
        self,
        device: Device,
        place: Place,
        compression: str,
        say: Callable[[Meeting], None],
        hear: Callable[[], Join],
    ) -> None:
        """Joins the group, which waits for all its ranks: the leader says where to meet, and all ranks hear
        it."""
        self.rank, self.ranks = place.position, len(place.group)
        self._device, self._compression = device, compression
        stay_on_host(place)
        door = open_door(place.spans_hosts, os.environ) if place.leads else None
        if door is not None:
            host, port = door.getsockname()[:2]
            say(Meeting(host, port))
        join = hear()
        if place.spans_hosts:
            meet_across_hosts(join.host, join.port, place.leads)
        listening = -1 if door is None else os.dup(door.fileno())
        if not device.why_not_captured:
            allow_capture(os.environ)
        dist.init_process_group(
            device.backend,
            store=meeting_store(place, (join.host, join.port), join.secret, MEETING_TIMEOUT, listening),
            rank=self.rank,
            world_size=self.ranks,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device.torch if device.kind == "cuda" else None,
        )
        self.total(0)  # the first collective makes the connections
        if door is not None:
            with door:
                # Gloo does not connect to the store again. NCCL, HCCL and XCCL were not tried.
                if device.backend == "gloo":
                    keep_others_away(door)

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        return self._averaging(network, equal=False), optimizer

    def wrap_again(self, network: nn.Module) -> nn.Module:
        return self._averaging(network, equal=True)

    def _averaging(self, network: nn.Module, equal: bool) -> nn.Module:
        wrapped = averaging(network, self._device, equal)
        if self._compression == "fp16":
            wrapped.register_comm_hook(None, fp16_compress_hook)
        return wrapped

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        summed = values.detach().clone()
        dist.all_reduce(summed)
        return summed

    def is_of_another(self, error: Exception) -> bool:
        if is_out_of_memory(error):  # which NCCL reports by the same class
            return False
        return isinstance(error, dist.DistError) or any(words in str(error) for words in LOST_CONNECTION)

    def close(self) -> None:
        # The last reference to the group may be that of a DistributedDataParallel, whose destructor holds
        # Python's lock while it waits for Gloo's threads. These need the lock to release the tensors of the
        # last collectives, so they get the time for it: https://github.com/pytorch/pytorch/issues/56297
        time.sleep(RELEASE_SECONDS)
        dist.destroy_process_group()


def averaging(network: nn.Module, device: Device, equal: bool = False) -> DistributedDataParallel:
    """The network with gradients that are averaged over all ranks that this process has met. `equal`: its
    weights are equal on all of them, so they are not sent.

    Buckets of gradients are summed while the backward pass goes on. The gradients are views of the buckets,
    which saves a copy and their memory.
    """
    load_dynamo()  # before torch does
    return DistributedDataParallel(
        network,
        device_ids=None if device.kind == "cpu" else [device.index],
        gradient_as_bucket_view=True,
        init_sync=not equal,
        **OWN_STATISTICS,
    )


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
