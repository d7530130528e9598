"""Records read and written by looking at the fields of a class each time: what `nas.record` must equal."""

from __future__ import annotations

import reprlib
import sys
import types
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import partial
from inspect import get_annotations
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from nas.families import RecordError, is_family, is_member, member_named
from nas.layers import ShapeError
from nas.reader import SCALARS

T = TypeVar("T")

PLAIN = frozenset({*SCALARS, type(None)})
LARGEST_EXACT_FLOAT = 1 << 53


def encoded(value: Any) -> Any:
    """Dataclasses, enums, tuples and mappings as objects, strings and lists, all the way down."""
    if type(value) in PLAIN:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        member = is_member(type(value))
        record = {"type": type(value).__name__} if member else {}
        for field in fields(value):
            content = getattr(value, field.name)
            if field.init and not (member and field.default is not MISSING and content == field.default):
                record[field.name] = encoded(content)
        return record
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encoded(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encoded(item) for key, item in value.items()}
    return value


def decoded(kind: type[T], record: Any, path: str = "") -> T:
    """The dataclass that `encoded` wrote: `kind` itself, or the member of the family `kind`.

    Raises RecordError, which names the field by `path`, and whatever the class itself refuses.
    """
    if type(record) is not dict and not isinstance(record, Mapping):
        raise RecordError(
            f"{path or kind.__name__} is {_shown(record)}; it must be an object of {kind.__name__}"
        )
    named: Any = kind  # mypy takes no type[T] for hashable
    tagged = is_family(named)
    member = _member(named, record.get("type"), path) if tagged else named
    known = _plan(member)
    values = {}
    for name, value in record.items():
        if name == "type" and tagged:
            continue
        if name not in known:
            raise RecordError(f"unknown key {_join(path, name)}; known: {', '.join(known) or 'none'}")
        read, plain = known[name]
        values[name] = value if type(value) in plain else read(value, _join(path, name))
    try:
        found: T = member(**values)
        return found
    except ShapeError as error:
        raise ShapeError(f"{path}: {error}" if path else str(error)) from None
    except TypeError:
        missing = [name for name in _needed(member) if name not in values]
        if not missing:
            raise
        raise RecordError(f"{path or member.__name__} lacks {', '.join(missing)}") from None


def _reader(hint: Any) -> Callable[[Any, str], Any]:
    """What makes a value of this annotation from a JSON value, given the path to name in an error."""
    if get_origin(hint) in (Union, types.UnionType):
        return partial(_option, _options(hint), type(None) in get_args(hint))
    if is_dataclass(hint):
        return partial(decoded, hint)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        return partial(_items, get_args(hint))
    if get_origin(hint) is abc.Mapping:
        return partial(_mapping, get_args(hint)[1])
    if hint is Any:
        return lambda value, path: value
    if isinstance(hint, type) and issubclass(hint, Enum):
        return partial(_enum, hint)
    return partial(_scalar, hint)


def _options(hint: Any) -> tuple[Callable[[Any, str], Any], Callable[[Any, str], Any]]:
    """Of a union what reads a list, and what reads anything else; both are one where there is one."""
    options = [option for option in get_args(hint) if option is not type(None)]
    options.sort(key=lambda option: bool(get_args(option)))  # lists last
    return _reader(options[-1]), _reader(options[0])


def _option(readers: tuple[Callable[[Any, str], Any], ...], optional: bool, value: Any, path: str) -> Any:
    if optional and value is None:
        return None
    return readers[not isinstance(value, (list, tuple))](value, path)


def _scalar(hint: type, value: Any, path: str) -> Any:
    if hint is float and type(value) is int and abs(value) < LARGEST_EXACT_FLOAT:
        return float(value)
    if type(value) is not hint:
        raise RecordError(f"{path} is {_shown(value)}; it must be {SCALARS[hint]}")
    return value


def _items(hints: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise RecordError(f"{path} is {_shown(value)}; it must be a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        if hints[0] in SCALARS and set(map(type, value)) <= {hints[0]}:
            return tuple(value)
        hints = hints[:1] * len(value)
    if len(hints) != len(value):
        raise RecordError(f"{path} has {len(value)} items; it must have {len(hints)}")
    return tuple(
        _reader(hint)(item, f"{path}[{index}]") for index, (hint, item) in enumerate(zip(hints, value))
    )


def _mapping(hint: Any, value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RecordError(f"{path} is {_shown(value)}; it must be an object")
    return {name: _reader(hint)(item, _join(path, name)) for name, item in value.items()}


def _enum(kind: type[Enum], value: Any, path: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise RecordError(f"{path} is {_shown(value)}; it must be one of {known}") from None


def _member(family: Any, name: Any, path: str) -> Any:
    try:
        return member_named(family, name if isinstance(name, str) else "")
    except ImportError as error:
        raise RecordError(str(error)) from None
    except KeyError as error:
        where = f"{path}: " if path else ""
        raise RecordError(
            f"{where}{_shown(name)} is not a known {family.__name__}; known: {error.args[0]}"
        ) from None


def _plan(kind: Any) -> dict[str, tuple[Callable[[Any, str], Any], tuple[type, ...]]]:
    """Of each field what reads it, and the types of values that are as they should be."""
    names = [field.name for field in fields(kind) if field.init]
    hints: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        # Of the fields alone: Python 3.10 cannot resolve an InitVar that stands beside them.
        own = {name: hint for name, hint in get_annotations(owner).items() if name in names}
        hints |= get_type_hints(
            types.SimpleNamespace(__annotations__=own), vars(sys.modules[owner.__module__])
        )
    return {name: (_reader(hints[name]), _plain(hints[name])) for name in names}


def _needed(kind: Any) -> list[str]:
    return [
        field.name
        for field in fields(kind)
        if field.init and field.default is MISSING and field.default_factory is MISSING
    ]


def _plain(hint: Any) -> tuple[type, ...]:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(option for option in options if option in (*SCALARS, type(None)))


def _join(path: str, name: Any) -> str:
    plain = isinstance(name, str) and name.isprintable() and len(name) <= 80
    shown = name if plain else _shown(name)
    return f"{path}.{shown}" if path else shown


def _shown(value: Any) -> str:
    """A foreign value for a line of text: cut in length and in depth."""
    return reprlib.repr(value)
