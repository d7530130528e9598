"""Addresses of Intel's GPUs. The loader of Level Zero 1.8, over a driver in C that was made with its headers,
has given the same answers as the library here."""

from __future__ import annotations

import ctypes
from typing import Any
from uuid import UUID

import pytest

from aiperf.device import level_zero
from aiperf.device.level_zero import pci_address
from tests.tables import ComesTo


class LevelZero:
    """libze_loader.so.1, as ze_api.h describes it; a number other than 0 is an error."""

    def zeInit(self, flags: int) -> int:  # noqa: N802
        return 0 if flags == 1 else 0x78000003

    def zeDriverGet(self, count: Any, handles: Any) -> int:  # noqa: N802
        return _list((101, 102), count, handles)

    def zeDeviceGet(self, driver: ctypes.c_void_p, count: Any, handles: Any) -> int:  # noqa: N802
        return _list({101: (1, 2), 102: (3,)}[driver.value or 0], count, handles)

    def zeDeviceGetProperties(self, device: ctypes.c_void_p, found: Any) -> int:  # noqa: N802
        assert found._obj.stype == 0x3
        found._obj.uuid[:] = UUID(int=device.value or 0).bytes
        return 0

    def zeDevicePciGetPropertiesExt(self, device: ctypes.c_void_p, found: Any) -> int:  # noqa: N802
        assert found._obj.stype == 0x10008
        found._obj.domain, found._obj.bus = device.value, 0x9A
        return 0


def _list(known: tuple[int, ...], count: Any, handles: Any) -> int:
    if handles is None:
        count._obj.value = len(known)
    else:
        handles[: count._obj.value] = known
    return 0


def test_a_device_is_found_by_its_uuid(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def address(of: int | str, failing: str = "", how: object = lambda self, *words: 0x78000001) -> str:
        library = type("Library", (LevelZero,), {failing: how} if failing else {})
        monkeypatch.setattr(level_zero.ctypes, "CDLL", lambda name: library())
        return pci_address(str(UUID(int=of)) if isinstance(of, int) else of)

    assert pci_address(str(UUID(int=1))) == ""
    comes_to_what_was_read("level_zero.txt", {**globals(), "address": address, "sizeof": ctypes.sizeof})
