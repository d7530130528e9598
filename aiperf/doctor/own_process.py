"""A separate process for each examination that may hang or die: of a device, or of a data set."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable
from typing import Generic, TypeVar

from aiperf.child import BrokenImport, Child, Killed, NoReply
from aiperf.config import DataConfig
from aiperf.doctor.reports import DataSeen, DeviceSeen, Meet
from aiperf.errors import AiperfError, ForeignLibrary
from aiperf.wire.layout import Place
from aiperf.wire.messages import FromGroup
from nas.record import RecordError, decode, encode

Seen = TypeVar("Seen", bound=FromGroup)
IMPORT_REMEDY = (
    f"reinstall that library in the environment of {shlex.quote(sys.executable)}, or load the modules with "
    "which it was built; the device is not the cause"
)
MEMORY_REMEDY = (
    "the kernel kills a process if the memory of the host or of the job is used up: request more memory for "
    "the job, or stop other programs on that host"
)


class OwnProcess(Generic[Seen]):
    """A child process that is started at once, and asked for its report later."""

    def __init__(self, child: Child, kind: type[Seen], fault: Callable[[str, str], Seen]) -> None:
        """`fault` makes the report for a child that died, from the reason and a remedy, if one is known."""
        self._child, self._kind, self._fault = child, kind, fault

    @property
    def ended(self) -> bool:
        return self._child.ended

    def answer(self, seconds: float) -> Seen | None:
        """Waits at most `seconds` for the report; without one, the child is killed, and the result is
        None."""
        try:
            return decode(self._kind, self._child.answer(seconds))
        except TimeoutError:
            return None
        except ForeignLibrary as error:
            return self._fault(error.seen, error.remedy)
        except BrokenImport as error:
            return self._fault(str(error), IMPORT_REMEDY)
        except Killed as error:
            return self._fault(str(error), MEMORY_REMEDY if error.signal == signal.SIGKILL else "")
        except (AiperfError, NoReply, RecordError) as error:
            return self._fault(str(error), "")

    def kill(self) -> None:
        self._child.kill()


def device_process(
    kind: str, format: str, place: Place, host: str, meet: Meet | None, wait_seconds: float
) -> OwnProcess[DeviceSeen]:
    told = [json.dumps(encode(value)) for value in (place, meet)]
    keep = () if meet is None or meet.listening < 0 else (meet.listening,)
    words = ("aiperf.doctor.device_report:device", kind, format, told[0], host, told[1], str(wait_seconds))
    return OwnProcess(
        Child(*words, keep=keep), DeviceSeen, lambda *fault: DeviceSeen(place.rank, host, *fault)
    )


def data_process(config: DataConfig) -> OwnProcess[DataSeen]:
    child = Child("aiperf.doctor.device_report:data", json.dumps(encode(config)))
    return OwnProcess(child, DataSeen, lambda fault, remedy: DataSeen(fault, remedy=remedy))
