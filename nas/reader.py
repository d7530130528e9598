"""Readers of JSON values, one for each annotation.

They are built once and kept: a long run has millions of records, and to look at the fields of their classes
each time takes longer than to read them. At the end: families of dataclasses, whose members a record calls by
their class (layers, morphisms, events) or tells by one of their fields. `nas.record` decodes and encodes with
them.
"""

from __future__ import annotations

import reprlib
import sys
import types
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from inspect import get_annotations
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from nas.layers import ShapeError

T = TypeVar("T")
Path = str | tuple[Any, Any]
"""Where a value is: what was given to `decode`, or the path of its container with its key or index there. It
is put into words only for an error."""
Reader = Callable[[Any, Path], Any]
Plan = Mapping[str, tuple[Reader, tuple[type, ...]]]
"""For each field its reader, and the types of values that need no reader."""

SCALARS = {int: "an integer", float: "a floating-point number", str: "a string", bool: "true or false"}
"""Types that JSON has itself, as an error calls them."""
LARGEST_EXACT_FLOAT = 1 << 53  # up to here a whole number is the same as a float


class RecordError(ValueError):
    """A record that does not describe what it should: which field, its value, and what it could be."""


@cache
def reader_of(hint: Any) -> Reader:
    """The function that makes a value of this annotation from a JSON value and the path to name in an
    error."""
    if get_origin(hint) in (Union, types.UnionType):
        return _option(*_options(hint), type(None) in get_args(hint))
    if is_dataclass(hint):
        kind: Any = hint
        if is_told_by_field(kind):
            return _object(kind, lambda record, path: kind.member_of_record(record))
        if is_family(kind):
            return _object(kind, partial(_member, kind), tagged=True)
        return _object(kind, lambda record, path: kind)
    if get_origin(hint) is tuple:
        return _items(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _named_items(hint)
    if get_origin(hint) is abc.Mapping:
        return _mapping(get_args(hint)[1])
    if hint is Any:
        return lambda value, path: value
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    return partial(_scalar, hint)


def _object(kind: Any, member_of: Callable[[Any, Path], Any], tagged: bool = False) -> Reader:
    """The reader of an object; `member_of` says of which class it is, from the record and its path."""

    def read(record: Any, path: Path) -> Any:
        if type(record) is not dict and not isinstance(record, Mapping):
            where = _text(path) or kind.__name__
            keys = ["type"] if tagged else [field.name for field in fields(kind) if field.init]
            raise RecordError(f"{where} is {shown(record)}; it must have the keys {', '.join(keys)}")
        member = member_of(record, path)
        return _filled(member, plan(member), record, path, tagged)

    return read


def _filled(kind: Any, known: Plan, record: Mapping[str, Any], path: Path, tagged: bool = False) -> Any:
    """An instance of the class. What the class itself refuses is reported with the place in the record.
    Raises RecordError for a field that is missing, and what the class raises."""
    values = values_of(known, record, path, tagged)
    try:
        return kind(**values)
    except ShapeError as error:
        raise ShapeError(f"{_text(path)}: {error}" if path else str(error)) from None
    except TypeError:
        missing = [name for name in _needed(kind) if name not in values]
        if not missing:
            raise
        raise RecordError(f"{_text(path) or kind.__name__} lacks {', '.join(missing)}") from None


def values_of(known: Plan, record: Mapping[str, Any], path: Path, tagged: bool = False) -> dict[str, Any]:
    """Values by field. The key "type" of a `tagged` record is not a field. Raises RecordError for a key that
    is no field."""
    values = {}
    for name, value in record.items():
        if name in known:
            read, plain = known[name]
            values[name] = value if type(value) in plain else read(value, (path, name))
        elif not (tagged and name == "type"):
            raise RecordError(f"unknown key {_text((path, name))}; known: {', '.join(known) or 'none'}")
    return values


@cache
def _options(hint: Any) -> tuple[Reader, Reader]:
    """The readers of a union: of a list, and of anything else. They are the same if the union has one
    type."""
    options = [option for option in get_args(hint) if option is not type(None)]
    options.sort(key=lambda option: bool(get_args(option)))  # lists last
    return reader_of(options[-1]), reader_of(options[0])


def _option(of_list: Reader, of_other: Reader, optional: bool) -> Reader:
    """The reader of a union: a list goes to one reader, anything else to the other, and None passes if it is
    `optional`."""

    def read(value: Any, path: Path) -> Any:
        if optional and value is None:
            return None
        return (of_list if isinstance(value, (list, tuple)) else of_other)(value, path)

    return read


def _scalar(hint: type, value: Any, path: Path) -> Any:
    """A number, text or truth value of that type. A whole number is taken for a float if a float can hold it
    exactly; a truth value is no number."""
    if hint is float and type(value) is int and abs(value) < LARGEST_EXACT_FLOAT:
        return float(value)
    if type(value) is not hint:
        raise RecordError(f"{_text(path)} is {shown(value)}; it must be {SCALARS[hint]}")
    return value


def _items(hints: tuple[Any, ...]) -> Reader:
    """The reader of a tuple: of a fixed number of items, or of any number of one kind."""
    any_number = len(hints) == 2 and hints[1] is Ellipsis
    hints = hints[:1] if any_number else hints
    readers = [reader_of(hint) for hint in hints]
    plain = set(hints) if len(set(hints)) == 1 and hints[0] in SCALARS else None

    def read(value: Any, path: Path) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise RecordError(f"{_text(path)} is {shown(value)}; it must be a list")
        each = readers * len(value) if any_number else readers
        if len(each) == len(value) and set(map(type, value)) == plain:
            return tuple(value)
        if len(each) != len(value):
            raise RecordError(f"{_text(path)} has {len(value)} items; it must have {len(each)}")
        return tuple([read(item, (path, index)) for index, (read, item) in enumerate(zip(each, value))])

    return read


def _named_items(kind: Any) -> Reader:
    """The reader of a named tuple, which is written as a list."""
    read = _items(tuple(get_type_hints(kind).values()))
    return lambda value, path: kind._make(read(value, path))


def _mapping(hint: Any) -> Reader:
    """The reader of an object with any keys, whose values have one annotation."""
    of_value = reader_of(hint)

    def read(value: Any, path: Path) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise RecordError(f"{_text(path)} is {shown(value)}; it must be an object")
        return {name: of_value(item, (path, name)) for name, item in value.items()}

    return read


def _enum(kind: type[Enum]) -> Reader:
    """The reader of an enum. Texts are looked up first: most enums of a journal are texts."""
    by_text = {member.value: member for member in kind if type(member.value) is str}

    def read(value: Any, path: Path) -> Enum:
        if type(value) is str and value in by_text:
            return by_text[value]
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(str(member.value) for member in kind)
            raise RecordError(f"{_text(path)} is {shown(value)}; it must be one of {known}") from None

    return read


def _member(family: Any, record: Mapping[str, Any], path: Path) -> Any:
    """The member of a family that a record names."""
    name = record.get("type")
    try:
        return member_named(family, name if isinstance(name, str) else "")
    except ImportError as error:
        raise RecordError(str(error)) from None
    except KeyError as error:
        where = f"{_text(path)}: " if path else ""
        raise RecordError(
            f"{where}{shown(name)} is not a known {family.__name__}; known: {error.args[0]}"
        ) from None


@cache
def plan(kind: Any) -> Plan:
    """The plan of a dataclass, made once."""
    names = [field.name for field in fields(kind) if field.init]
    hints: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        # Of the fields alone: Python 3.10 cannot resolve an InitVar among them.
        own = {name: hint for name, hint in get_annotations(owner).items() if name in names}
        hints |= get_type_hints(
            types.SimpleNamespace(__annotations__=own), vars(sys.modules[owner.__module__])
        )
    return {name: (reader_of(hints[name]), _plain(hints[name])) for name in names}


def _needed(kind: Any) -> list[str]:
    """Fields without a default."""
    return [
        field.name
        for field in fields(kind)
        if field.init and field.default is MISSING and field.default_factory is MISSING
    ]


def _plain(hint: Any) -> tuple[type, ...]:
    """The types of values that are taken as they are."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(option for option in options if option in (*SCALARS, type(None)))


def _text(path: Path) -> str:
    """The path as an error names it: a.b[0].c"""
    if isinstance(path, str):
        return path
    above, name = _text(path[0]), path[1]
    if type(name) is int:
        return f"{above}[{name}]"
    plain = isinstance(name, str) and name.isprintable() and len(name) <= 80
    named = name if plain else shown(name)
    return f"{above}.{named}" if above else named


def shown(value: Any) -> str:
    """A foreign value for a line of text: cut in length and in depth."""
    return reprlib.repr(value)


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
    """Members by name. Raises RecordError for two of one name, of which one would be taken silently."""
    named: dict[str, Any] = {}
    for member in members(family) or [family]:
        if named.setdefault(member.__name__, member) is not member:
            where = f"{named[member.__name__].__module__} and {member.__module__}"
            raise RecordError(f"two classes are named {member.__name__}, in {where}; rename one")
    return named


def members(family: type[T]) -> list[type[T]]:
    """All below a class, but for those that only share what others have, whose names begin with "_"."""
    direct = family.__subclasses__()
    found = direct + [member for child in direct for member in members(child)]
    return [member for member in found if not member.__name__.startswith("_")]


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
