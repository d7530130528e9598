"""Test for a known fault of oneDNN: on some CPUs it writes outside its memory. The test runs in a process
that may die.

Its known fault is in the gradient of the weights of a strided 1x1 convolution of few channels, which
`nas.modules` never lets it compute: https://github.com/uxlfoundation/oneDNN/issues/6035
"""

from __future__ import annotations

import sys

from aiperf.child import answer_file, written
from aiperf.doctor.check import Check, not_checked, ok, warning
from aiperf.doctor.reports import Examination, patient
from aiperf.programs import ToolFailed, ask

SECONDS = 20.0
"""Time limit in seconds, mostly for importing torch from a cold network file system; the test itself takes
tenths of a second."""
STARTED, SOUND, UNKNOWN = "started", "sound", "unknown"
# The images are as large as AVX-512 needs: it computes smaller ones in one block, and only later blocks are
# written to a wrong place. If the process survives, a gradient may be wrong.
PROGRAM = f"""
import os, sys, torch
torch.set_num_threads(1)
os.write(int(sys.argv[1]), b"{STARTED}")
for channels in (4, 12):
    images = torch.randn(4, channels, 128, 128).to(memory_format=torch.channels_last)
    convolution = torch.nn.Conv2d(channels, 8, kernel_size=1, stride=2, bias=False)
    exact = images.double()[:, :, ::2, ::2].sum((0, 2, 3))
    for _ in range(8):
        convolution.zero_grad()
        convolution(images).sum().backward()
        torch.testing.assert_close(convolution.weight.grad[0, :, 0, 0].double(), exact, rtol=0, atol=0.1)
os.write(int(sys.argv[1]), b"{SOUND}")
"""


def see_onednn(wait_seconds: float) -> str:
    """SOUND, UNKNOWN if torch cannot be imported in time, or the fault in words. It takes as long as
    importing torch. `wait_seconds` is the time limit of the whole examination."""
    limit = patient(SECONDS, wait_seconds)
    with answer_file() as file:
        number = file.fileno()
        try:
            code = ask([sys.executable, "-c", PROGRAM, str(number)], limit, keep=(number,)).code
        except ToolFailed:
            # After the start only the fault can make it hang: two threads that overwrite each other spin
            # forever.
            return "the gradient does not end" if written(file) == STARTED else UNKNOWN
        told = written(file)
    if told == STARTED + SOUND:
        return SOUND
    if not told:
        return UNKNOWN
    return f"its process was killed by signal {-code}" if code < 0 else "the gradient is wrong"


def onednn(seen: Examination) -> Check:
    """Check for a fault that every known torch has on CPUs with AVX2 or more. Runs are not affected by it."""
    hosts = seen.host_reports
    faults = {each.onednn: each.host for each in hosts if each.onednn not in (SOUND, UNKNOWN)}
    if faults:
        fault, host = next(iter(faults.items()))
        told = f"strided 1x1 convolutions of few channels write outside their memory ({fault}, on {host})"
        return warning("oneDNN", told, "none needed: a run avoids them; other programs may meet it")
    if any(each.onednn == UNKNOWN for each in hosts):
        unknown = next(each.host for each in hosts if each.onednn == UNKNOWN)
        limit = patient(SECONDS, seen.wait_seconds)
        told = f"torch did not start on {unknown} within {limit:.0f} s, or cannot be imported"
        return not_checked("oneDNN", told, "none needed: a run avoids the known fault everywhere")
    return ok("oneDNN", "strided 1x1 convolutions of few channels stay within their memory")
