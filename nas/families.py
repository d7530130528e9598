"""Families of dataclasses, whose members a record calls by their class (layers, morphisms, events) or tells
by one of their fields."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class RecordError(ValueError):
    """A record that does not describe what it should: which field, what stands there, what could."""


@cache
def import_layers_of_others() -> None:
    """Imports what installed packages name as entry points of the group `nas.layers`: which these are is
    never said by a record. Raises ImportError."""
    from importlib.metadata import entry_points  # and with it the parsers of email: only where one is missing

    for entry in entry_points(group="nas.layers"):
        try:
            entry.load()
        except Exception as error:
            raise ImportError(f"the layers of {entry.value} cannot be imported: {error}") from error


@cache
def member_named(family: Any, name: str) -> Any:
    """Raises KeyError with the names that there are (and looks again, should one have been added)."""
    if name not in _named(family):
        import_layers_of_others()
    known = _named(family)
    if name not in known:
        raise KeyError(", ".join(sorted(known)))
    return known[name]


def _named(family: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for member in _members(family) or [family]:
        if named.setdefault(member.__name__, member) is not member:
            where = f"{named[member.__name__].__module__} and {member.__module__}"
            raise RecordError(f"two classes are named {member.__name__}, in {where}; rename one")
    return named


def _members(family: type[T]) -> list[type[T]]:
    direct = family.__subclasses__()
    return direct + [member for child in direct for member in _members(child)]


@cache
def is_family(kind: Any) -> bool:
    """A family, or a member of one, whose records name the class."""
    return not is_told_by_field(kind) and (bool(kind.__subclasses__()) or is_member(kind))


@cache
def is_member(kind: Any) -> bool:
    """Whether its records name the class, as "type"."""
    return any(is_dataclass(base) for base in kind.__mro__[1:]) and not is_told_by_field(kind)


@cache
def is_told_by_field(kind: Any) -> bool:
    """Whether records of its family tell the member by one of their fields: such a family has a class method
    `member_of_record`, from a record to the class. Its records are those of plain dataclasses."""
    return hasattr(kind, "member_of_record")
