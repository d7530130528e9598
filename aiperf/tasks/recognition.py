"""Data that everybody has, of any task: recognised in a manifest, and held against what its makers fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar


class KnownData(Protocol):
    """What its makers fixed, and no run can have otherwise."""

    @property
    def title(self) -> str:
        """The name by which people know it."""

    @property
    def name(self) -> str:
        """The value of `data.name` under which it is read."""

    @property
    def sha256(self) -> str:
        """The fingerprint of the whole; empty where nobody has reported it."""

    def facts(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """By the keys of a manifest what every manifest of it has."""


Known = TypeVar("Known", bound=KnownData)


def recognised(manifest: Mapping[str, Any], known: Iterable[Known]) -> Known | None:
    """Which of them a manifest is of: by its fingerprint, or by all its numbers where none is pinned."""
    for each in known:
        same = manifest.get("sha256") == each.sha256 if each.sha256 else not differences(manifest, each)
        if same and manifest.get("name") == each.name:
            return each
    return None


def differences(manifest: Mapping[str, Any], known: KnownData) -> list[str]:
    """In words, what a manifest has otherwise."""
    return [
        f"{key} is {manifest.get(key)!r}, but {known.title} has {value!r}"
        for key, value in known.facts(manifest).items()
        if manifest.get(key) != value
    ]
