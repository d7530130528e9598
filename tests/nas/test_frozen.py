"""A class of `nas.frozen` behaves as the one that `@dataclass(frozen=True)` makes of the same body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace
from types import new_class
from typing import Any

import pytest

from nas.frozen import frozen


class Point:
    x: int
    y: int = 2
    note: str = field(default="", compare=False)
    order: int = field(default=0, repr=False, hash=False)


class One:
    x: int


class Fieldless:
    """Equal to each of its kind."""


class Stating:
    x: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))

    def __repr__(self) -> str:
        return "as stated"


class Numbered:
    x: int

    def __hash__(self) -> int:
        return 7


BODIES = {Point: [(3,), (3, 2, "noted"), (3, 2, "", 1), (4,)], One: [(3,), (4,)], Fieldless: [()]}
BODIES |= {Stating: [(3,), (4,)], Numbered: [(3,), (4,)]}
OPTIONS: list[dict[str, bool]] = [{}, {"eq": False}, {"repr": False}]


def behaviour(made: Callable[[Any], Any], body: type, options: dict[str, bool]) -> list[object]:
    """What objects of the class and of one that derives from it say of each other."""
    decorated = made(new_class(body.__name__, (), {}, lambda names: names.update(copied(body))))
    derived = new_class("Derived", (decorated,))
    objects = [kind(*given) for kind in (decorated, derived) for given in BODIES[body]]
    texts = ["" if "object at" in repr(one) else repr(one) for one in objects]
    if options.get("eq", True) and decorated.__hash__:
        texts += [str(hash(one)) for one in objects if type(one).__hash__ is not object.__hash__]
    return [decorated.__match_args__, texts, [one == other for one in objects for other in [*objects, 3]]]


def copied(body: type) -> dict[str, Any]:
    return {name: value for name, value in vars(body).items() if name not in ("__dict__", "__weakref__")}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("body", BODIES)
def test_it_behaves_as_a_frozen_dataclass(body: type, options: dict[str, bool]) -> None:
    expected = behaviour(dataclass(frozen=True, **options), body, options)
    assert behaviour(frozen(**options), body, options) == expected


@frozen
class Place:
    x: int
    y: list[int] = field(default_factory=list)


def test_the_tools_of_dataclasses_take_it_and_a_frozen_dataclass_derives_from_it() -> None:
    @dataclass(frozen=True)
    class Named(Place):
        name: str = "here"

    assert asdict(replace(Named(1), x=2)) == {"x": 2, "y": [], "name": "here"}
    for refused in (lambda: setattr(Place(1), "x", 2), lambda: delattr(Place(1), "x")):
        with pytest.raises(FrozenInstanceError, match="field 'x'"):
            refused()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Place(1))
