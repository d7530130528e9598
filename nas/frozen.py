"""Frozen dataclasses that compile almost nothing.

A command needs some 240 of these classes, and makes objects of half of them. What `@dataclass(frozen=True)`
compiles for each class, six functions up to Python 3.12, took two fifths of its CPU time. Here the only
compiled function is the constructor, and not before an object is made. Comparison, hash, text and the two
refusals to assign are the same for every class but for the names of its fields, so they are written once.
"""

from __future__ import annotations

import sys
from abc import update_abstractmethods
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, replace
from inspect import get_annotations
from itertools import pairwise
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform  # `typing` has it since Python 3.11
else:

    def dataclass_transform(**options: Any) -> Callable[[T], T]:
        """For type checkers only."""
        return lambda decorator: decorator


T = TypeVar("T")
Fields = tuple[Field[Any], ...]
PARAMETERS = "__dataclass_params__"


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, eq: bool = True, repr: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T] | None = None, /, *, eq: bool = True, repr: bool = True) -> Any:
    """`dataclass(frozen=True)`, with the same meaning of `eq` and `repr`.

    What it makes is a dataclass: `fields`, `replace` and `asdict` take it, and a frozen dataclass may derive
    from it. Two objects are equal, and so are their hashes, where their class and the compared fields are.
    Raises TypeError if a base of the class is a dataclass that is not frozen, if the class states how it is
    assigned to, and if a field without a default follows one that has one.
    """
    return (lambda named: _made(named, eq, repr)) if cls is None else _made(cls, eq, repr)


def _made(cls: type[T], eq: bool, repr: bool) -> type[T]:
    """The class as a dataclass, with what it does not state itself."""
    stated = set(vars(cls))
    if "__eq__" in stated and vars(cls)["__hash__"] is None:
        stated.remove("__hash__")  # of Python, for a class that states how it is compared
    if refused := stated & {"__setattr__", "__delattr__"}:
        raise TypeError(f"{cls.__qualname__} is frozen and states {', '.join(sorted(refused))} itself")
    parameters = _find_fields(cls)
    parameters.init, parameters.eq, parameters.repr, parameters.frozen = True, eq, repr, True
    _refuse_order(cls)
    kept = fields(cls)  # type: ignore[arg-type]
    by_place = tuple(taken.name for taken in _taken(cls) if not taken.kw_only)
    made = {"__init__": _Constructor(cls), "__match_args__": by_place, "__replace__": _replaced}
    made |= _refusals(cls, kept) | (_comparison(kept) if eq else {}) | (_text(kept) if repr else {})
    for name, value in made.items():
        if name not in stated:
            setattr(cls, name, value)
    return update_abstractmethods(cls)


def _find_fields(cls: Any) -> Any:
    """Makes it a dataclass for which nothing is compiled, and returns what it says of itself. `dataclass`
    compiles for each that is to be frozen, and refuses one that is not and derives from a frozen one; so it
    gets the fields alone."""
    above = [base for base in cls.__mro__[:0:-1] if PARAMETERS in vars(base)]
    if not all(base.__dataclass_params__.frozen for base in above):
        raise TypeError(f"{cls.__qualname__} is frozen and derives from a dataclass that is not")
    types = get_annotations(cls)
    stated = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
    stated |= {name: getattr(cls, name) for name in types if hasattr(cls, name)}
    # With a docstring, since `dataclass` would write one.
    body = {"__module__": cls.__module__, "__doc__": "fields", "__annotations__": types}
    alone: Any = type(cls.__name__, (), body)
    for name, value in stated.items():  # afterwards, so that no descriptor gets this class
        setattr(alone, name, value)
    dataclass(init=False, eq=False, repr=False)(alone)
    for name, value in stated.items():
        if isinstance(value, Field):  # its default takes its place, if there is one
            if name in vars(cls):
                delattr(cls, name)
            if name in vars(alone):
                setattr(cls, name, vars(alone)[name])
    cls.__dataclass_params__, cls.__dataclass_fields__ = alone.__dataclass_params__, {}
    for base in (*above, alone):
        cls.__dataclass_fields__ |= base.__dataclass_fields__
    return cls.__dataclass_params__


def _refuse_order(cls: type) -> None:
    by_place = [taken for taken in _taken(cls) if not taken.kw_only]
    for before, after in pairwise(by_place):
        if _parameter(before) != before.name and _parameter(after) == after.name:
            where = f"{cls.__qualname__}: {after.name}"
            raise TypeError(f"{where} has no default, but {before.name} before it has one")


class _Constructor:
    """`__init__` of a class, which is compiled when it is first looked up, and then takes this place."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._made: Any = None

    def __get__(self, one: object, kind: type) -> Any:
        self._made = self._made or _compiled(self._cls)
        if vars(self._cls).get("__init__") is self:
            self._cls.__init__ = self._made
        return self._made.__get__(one, kind)


class _Factory:
    """The default of a parameter of which each object has its own."""

    def __repr__(self) -> str:
        return "<factory>"


def _compiled(cls: Any) -> Any:
    """The constructor that `dataclass` would write, with its signature, among the names of its module."""
    kept, taken = fields(cls), _taken(cls)
    own = "__self" if "self" in cls.__dataclass_fields__ else "self"
    by_place = [_parameter(field) for field in taken if not field.kw_only]
    by_name = [_parameter(field) for field in taken if field.kw_only]
    parameters = ", ".join([own, *by_place, *(["*", *by_name] if by_name else [])])
    lines = [f"  __set({own}, {field.name!r}, {_value(field)})" for field in kept if _value(field)]
    passed_on = [field for field in taken if field not in kept]
    if hasattr(cls, "__post_init__"):
        lines.append(f"  {own}.__post_init__({', '.join(field.name for field in passed_on)})")
    given = {"__set": object.__setattr__, "__factory": _Factory()}
    given |= {f"__default_{field.name}": field.default for field in taken if field.default is not MISSING}
    factories = [field for field in kept if field.default_factory is not MISSING]
    given |= {f"__make_{field.name}": field.default_factory for field in factories}
    body = "\n".join([f" def __init__({parameters}):", *(lines or ["  pass"]), " return __init__"])
    text = f"def make({', '.join(given)}):\n{body}"
    names: dict[str, Any] = {}
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    exec(compile(text, f"<constructor of {cls.__qualname__}>", "exec"), module, names)  # noqa: S102, as there
    made = names["make"](**given)
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = {field.name: field.type for field in taken} | {"return": None}
    return made


def _taken(cls: Any) -> list[Field[Any]]:
    """What the constructor takes: fields, and each `InitVar`, which is passed on. The `kw_only` of a
    `ClassVar` is not set."""
    every = cls.__dataclass_fields__.values()
    return [field for field in every if field.init and field.kw_only is not MISSING]


def _parameter(field: Field[Any]) -> str:
    """As it is written in the constructor; its name alone if it has no default."""
    if field.default is not MISSING:
        return f"{field.name}=__default_{field.name}"
    return field.name if field.default_factory is MISSING else f"{field.name}=__factory"


def _value(field: Field[Any]) -> str:
    """What is assigned to a field; empty if its default stays that of the class."""
    if field.default_factory is MISSING:
        return field.name if field.init else ""
    made = f"__make_{field.name}()"
    return f"{made} if {field.name} is __factory else {field.name}" if field.init else made


def _replaced(self: Any, /, **changes: Any) -> Any:
    """For `copy.replace` of Python 3.13."""
    return replace(self, **changes)


def _refusals(cls: Any, kept: Fields) -> dict[str, Callable[..., None]]:
    names = {field.name for field in kept}

    def refuse(what: str, one: object, name: str) -> None:
        """A class without the decorator that derives from this one may have other attributes."""
        if type(one) is cls or name in names:
            raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def assign(self: Any, name: str, value: object) -> None:
        refuse("assign to", self, name)
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        refuse("delete", self, name)
        super(cls, self).__delattr__(name)

    return {"__setattr__": assign, "__delattr__": delete}


def _comparison(kept: Fields) -> dict[str, Callable[..., Any]]:
    compared = _values([field.name for field in kept if field.compare])
    hashed = _values([field.name for field in kept if (field.compare if field.hash is None else field.hash)])

    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def number(self: Any) -> int:
        return hash(hashed(self))

    return {"__eq__": equal, "__hash__": number}


def _text(kept: Fields) -> dict[str, Callable[..., Any]]:
    names = [field.name for field in kept if field.repr]
    shown, text = _values(names), ", ".join(f"{name}={{!r}}" for name in names)

    @recursive_repr()
    def written(self: Any) -> str:
        return f"{type(self).__qualname__}({text.format(*shown(self))})"

    return {"__repr__": written}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads these fields of an object. `attrgetter` gives a tuple from two names on."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda self: ()
    one = attrgetter(names[0])
    return lambda self: (one(self),)
