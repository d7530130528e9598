"""Frozen data to and from plain JSON values, checked field by field against its annotations.

A member of a family (a subclass of another dataclass: a layer, a morphism) carries its class's name as
"type"; any other dataclass is a plain object. A member leaves out the fields that hold their default:
these belong to its form, while the default of a setting may change. So does any dataclass with fields that
are LATER, whose first records were without them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar

from nas.graph import Graph
from nas.reader import SCALARS, is_member, plan, reader_of, values_of
from nas.reader import RecordError as RecordError

T = TypeVar("T")

PLAIN = frozenset({*SCALARS, type(None)})  # and no class derived from them: an enum may be a string


def encode(value: Any) -> Any:
    """Dataclasses, enums, tuples and mappings as objects, strings and lists, all the way down."""
    kind: Any = type(value)  # mypy takes no type[T] for hashable
    return value if kind in PLAIN else _writer(kind)(value)


def decode(kind: type[T], record: Any, path: str = "") -> T:
    """The dataclass that `encode` wrote: `kind` itself, or the member of the family `kind`.

    Raises RecordError, which names the field by `path`, and whatever the class itself refuses.
    """
    named: Any = kind
    found: T = reader_of(named)(record, path)
    return found


def decode_fields(kind: type[Any], record: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The values of some fields of a dataclass, checked as `decode` does."""
    named: Any = kind
    return values_of(plan(named), record, path)


def graph_to_json(graph: Graph) -> dict[str, Any]:
    """The record of a graph: its input, its nodes in order, and its head unless it is that of images."""
    return dict(encode(graph))


def graph_from_json(record: Mapping[str, Any] | str) -> Graph:
    """The graph that `graph_to_json` wrote, as text or already parsed.

    Raises RecordError for what is not a graph and ShapeError for a graph that cannot be.
    """
    try:
        return decode(Graph, _parsed(record) if isinstance(record, str) else record)
    except RecursionError:
        raise RecordError("this is not a graph: it is nested too deeply") from None


def _parsed(text: str) -> Any:
    """The values of a JSON text. Raises RecordError for what is not JSON, or has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except ValueError as error:  # also for a number of more digits than Python converts
        raise RecordError(f"not valid JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses a key that appears twice, because another reader may take the other value."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r:.80} appears twice")
    return record


@cache
def _writer(kind: type[Any]) -> Callable[[Any], Any]:
    """The function that makes a JSON value of a value of this class."""
    if is_dataclass(kind):
        return partial(_written, is_member(kind) and kind.__name__, _written_fields(kind))
    if issubclass(kind, Enum):
        return attrgetter("value")
    if issubclass(kind, (tuple, list)):
        return lambda items: [encode(item) for item in items]
    if issubclass(kind, Mapping):
        return lambda items: {key: encode(item) for key, item in items.items()}
    return lambda value: value


def _written_fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Names of the fields, each with the default at which it is left out, or MISSING."""
    member = is_member(kind)
    return tuple(
        (field.name, field.default if member or "later" in field.metadata else MISSING)
        for field in fields(kind)
        if field.init
    )


def _written(member: str | bool, names: tuple[tuple[str, Any], ...], value: Any) -> dict[str, Any]:
    """The object of a dataclass. `member` is the name of its class if a record needs it, else false; `names`
    are its fields with their defaults."""
    record: dict[str, Any] = {"type": member} if member else {}
    for name, default in names:
        content = getattr(value, name)
        if default is MISSING or content != default:
            kind: Any = type(content)
            record[name] = content if kind in PLAIN else _writer(kind)(content)
    return record
