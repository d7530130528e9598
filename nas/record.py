"""Frozen data to and from plain JSON values, checked field by field against its annotations.

A member of a family (a subclass of another dataclass: a layer, a morphism) carries its class's name
as "type"; any other dataclass is a plain object. Fields that hold their default are left out.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from nas.graph import Graph, Node
from nas.layers import Layer, ShapeError

__all__ = ["RecordError", "decode", "encode", "graph_from_json", "graph_to_json"]

T = TypeVar("T")


class RecordError(ValueError):
    """A record that does not describe what it should: which field, what stands there, what could."""


def encode(value: Any) -> Any:
    """Dataclasses, enums, tuples and mappings as objects, strings and lists, all the way down."""
    if is_dataclass(value) and not isinstance(value, type):
        record = {"type": type(value).__name__} if _is_member(type(value)) else {}
        for field in fields(value):
            content = getattr(value, field.name)
            if field.default is MISSING or content != field.default:
                record[field.name] = encode(content)
        return record
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: type[T], record: Any, path: str = "") -> T:
    """The dataclass that `encode` wrote: `kind` itself, or the member of the family `kind`.

    Raises RecordError, which names the field by `path`, and whatever the class itself refuses.
    """
    if not isinstance(record, Mapping):
        raise RecordError(f"{path or kind.__name__} is no object of {kind.__name__}, but {record!r:.80}")
    named: Any = kind  # mypy takes no type[T] for hashable
    tagged = bool(kind.__subclasses__()) or _is_member(named)
    member = _member(named, record.get("type"), path) if tagged else named
    known = _plan(member)
    values = {}
    for name, value in record.items():
        if name == "type" and tagged:
            continue
        if name not in known:
            raise RecordError(f"unknown key {_join(path, name)}; known: {', '.join(known)}")
        hint, plain = known[name]
        values[name] = value if type(value) in plain else _value(hint, value, _join(path, name))
    try:
        found: T = member(**values)
        return found
    except TypeError as error:
        raise RecordError(f"{path or member.__name__}: {error}".replace("__init__() ", "")) from None


def graph_to_json(graph: Graph) -> dict[str, Any]:
    nodes = [
        {"name": node.name, "layer": encode(node.layer), "inputs": list(node.inputs)} for node in graph.nodes
    ]
    return {"input": list(graph.input), "nodes": nodes}


def graph_from_json(record: Mapping[str, Any] | str) -> Graph:
    """The graph that `graph_to_json` wrote, as text or already parsed.

    Raises RecordError for what is no graph and ShapeError for a graph that cannot be.
    """
    try:
        found = json.loads(record) if isinstance(record, str) else record
        nodes = tuple(
            Node(str(node["name"]), decode(Layer, node["layer"], str(node["name"])), tuple(node["inputs"]))
            for node in found["nodes"]
        )
        return Graph(tuple(map(int, found["input"])), nodes)
    except (ShapeError, RecordError):
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"this is no graph: {type(error).__name__}: {error}") from None


def _value(hint: Any, value: Any, path: str) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        (hint,) = (option for option in get_args(hint) if option is not type(None))
    if is_dataclass(hint):
        return decode(hint, value, path)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        return _items(get_args(hint), value, path)
    if get_origin(hint) is not None or hint is Any:
        return value
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint, value, path)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise RecordError(f"{path} is {value!r:.80}; it must be of type {hint.__name__}")
    return value


def _items(hints: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise RecordError(f"{path} is {value!r:.80}; it must be a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(hints) != len(value):
        raise RecordError(f"{path} has {len(value)} items; it must have {len(hints)}")
    return tuple(_value(hint, item, path) for hint, item in zip(hints, value))


def _enum(kind: type[Enum], value: Any, path: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise RecordError(f"{path} is {value!r:.80}; it is one of {known}") from None


def _member(family: Any, name: Any, path: str) -> Any:
    try:
        return _member_named(family, str(name))
    except KeyError as error:
        where = f"{path}: " if path else ""
        raise RecordError(f"{where}{name!r:.80} is no {family.__name__}; known: {error.args[0]}") from None


@cache
def _member_named(family: Any, name: str) -> Any:
    """Raises KeyError with the names that there are (and looks again, should one have been added)."""
    known = {member.__name__: member for member in _members(family) or [family]}
    if name not in known:
        raise KeyError(", ".join(sorted(known)))
    return known[name]


def _members(family: type[T]) -> list[type[T]]:
    direct = family.__subclasses__()
    return direct + [member for child in direct for member in _members(child)]


@cache
def _is_member(kind: type[Any]) -> bool:
    return any(is_dataclass(base) for base in kind.__mro__[1:])


@cache
def _plan(kind: Any) -> dict[str, tuple[Any, tuple[type, ...]]]:
    """Of each field the annotation, and the types of values that are as they should be."""
    hints = get_type_hints(kind)
    return {
        field.name: (hints[field.name], _plain(hints[field.name])) for field in fields(kind) if field.init
    }


def _plain(hint: Any) -> tuple[type, ...]:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(option for option in options if option in (int, float, str, bool, type(None)))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
