"""Examination of one device: it is bound as in a run, multiplies, and joins the others of its group.

This runs in a process of its own, because a broken driver hangs or kills the process that uses it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from time import monotonic, perf_counter

import torch
import torch.distributed as dist

from aiperf.config import DataConfig
from aiperf.device import Device, bind_place, count_devices
from aiperf.doctor.reports import DataReport, DeviceReport, Meet, patient
from aiperf.engines.fused import BACKENDS, Fused
from aiperf.errors import AiperfError, UnseenDevices
from aiperf.parallel.ddp import meeting_store, stay_on_host
from aiperf.wire.formats import AUTO
from aiperf.wire.layout import Place
from nas.record import decode, encode

SIDE = 1024
"""Side of two matrices of ones; each element of their product is this number, exactly."""
REDUCED_ELEMENTS = 4 << 20
"""Size of the all-reduce: 16 MiB of fp32, about as much as one or two buckets of gradients."""
MEETING_SECONDS = 40.0
"""Time limit in seconds for the ranks of a group to meet, and again for their all-reduce."""
LATE_REMEDY = (
    "the ranks of its group did not come in time: wait longer with --wait-seconds if their hosts are busy; "
    "otherwise check the network between them"
)


def examine_device(
    kind: str, format: str, place: Place, host: str, meet: Meet | None, wait_seconds: float
) -> DeviceReport:
    """Examines the device of the rank at `place`, whose group meets at `meet`. `format` is the number format
    of the run, `wait_seconds` the time limit of the whole examination."""
    try:
        device = bind_place(kind, place)
        if format != AUTO:
            device.declare(format)
    except UnseenDevices as error:
        return DeviceReport(place.rank, host, error.seen, error.remedy, torch.__version__)
    except (AiperfError, RuntimeError) as error:
        return DeviceReport(place.rank, host, fault=str(error).splitlines()[0], torch=torch.__version__)
    fault, backend, rate, late = _multiplies(device), "", 0.0, False
    if meet is not None:
        backend, limit = device.backend, patient(MEETING_SECONDS, wait_seconds)
        began = monotonic()
        try:
            rate = _reduce(device, place, meet, timedelta(seconds=limit))
        except RuntimeError as error:  # as all that torch.distributed raises
            # Nearly all of the limit has passed: it waited for others, and did not fail at once.
            late = not fault and monotonic() - began >= 0.9 * limit
            fault = fault or f"{backend} all-reduce failed: {str(error).splitlines()[0]}"
    return DeviceReport(
        rank=place.rank,
        host=host,
        fault=fault,
        remedy=LATE_REMEDY if late else "",
        late=late,
        torch=torch.__version__,
        kind=device.kind,
        name=device.name,
        identity=device.identity,
        driver=device.driver,
        memory_bytes=device.memory_bytes,
        visible_devices=count_devices(device.kind),
        backend=backend,
        reduce_bytes_per_second=rate,
        not_fused=Fused.why_not(device) if device.kind in BACKENDS else "",
        note=device.note,
        slowed_by=device.slowed_by,
    )


def examine_data(config: DataConfig) -> DataReport:
    """Reads the whole set as a rank of a run would, on the CPU. A fault is a part of the report; nothing is
    raised for data that cannot be read."""
    from aiperf.data import load  # with the libraries of all its formats, which a device does not need

    try:
        found = load(replace(config, stage=""), torch.device("cpu"), seed=0)
    except AiperfError as error:
        return DataReport(str(error))
    manifest = found.manifest
    examples = sum(int(manifest[f"{part}_examples"]) for part in ("training", "validation", "test"))
    return DataReport(sha256=str(manifest["sha256"]), examples=examples, note=found.note)


def _multiplies(device: Device) -> str:
    """Multiplies ones by ones, which is exact in every format; returns the fault, or an empty text."""
    try:
        ones = torch.ones(SIDE, SIDE, device=device.torch)
        wrong = int((ones @ ones != SIDE).sum())
        device.synchronise()
    except RuntimeError as error:
        return f"a matrix multiplication failed: {str(error).splitlines()[0]}"
    return f"a matrix multiplication is wrong in {wrong} of {SIDE * SIDE} places" if wrong else ""


def _reduce(device: Device, place: Place, meet: Meet, limit: timedelta) -> float:
    """Rate of an all-reduce in bytes per second. Raises RuntimeError if it fails or its sum is wrong."""
    stay_on_host(place)
    dist.init_process_group(
        device.backend,
        # Without a secret, which other users could read in this process's arguments: only ones are summed.
        store=meeting_store(place, (meet.host, meet.port), "", limit, meet.listening),
        rank=place.position,
        world_size=len(place.group),
        timeout=limit,
        device_id=device.torch if device.kind == "cuda" else None,
    )
    values = torch.ones(REDUCED_ELEMENTS, device=device.torch)
    dist.all_reduce(values)  # the first one makes the connections
    device.synchronise()
    began = perf_counter()
    dist.all_reduce(values)
    device.synchronise()
    seconds = perf_counter() - began
    # Summed twice, so the square of the number of ranks.
    wrong = bool((values != len(place.group) ** 2).any())
    dist.destroy_process_group()
    if wrong:
        raise RuntimeError("the sum is wrong")
    return values.numel() * values.element_size() / seconds


def device(kind: str, format: str, place: str, host: str, meet: str, wait_seconds: str) -> object:
    """The record of `examine_device`; places are JSON. It is called in a process of its own, as `data`."""
    text = json.loads(meet)
    where = None if text is None else decode(Meet, text)
    at = decode(Place, json.loads(place))
    return encode(examine_device(kind, format, at, host, where, float(wait_seconds)))


def data(config: str) -> object:
    """The record of `examine_data`."""
    return encode(examine_data(decode(DataConfig, json.loads(config))))
