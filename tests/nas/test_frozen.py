"""A class of `nas.frozen` behaves as the one that `@dataclass(frozen=True)` makes of the same body."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import FrozenInstanceError, InitVar, asdict, dataclass, field, fields, replace
from inspect import get_annotations, isfunction, signature
from types import new_class
from typing import Any, ClassVar, Protocol, get_type_hints

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


class Full:
    """Each kind of parameter that a constructor may have."""

    kind: ClassVar[str] = "full"
    x: int
    passed_on: InitVar[int]
    y: list[int] = field(default_factory=list)
    half: InitVar[float] = 0.5
    fixed: int = field(default=3, init=False)
    made: dict[str, int] = field(default_factory=dict, init=False)
    by_name: int = field(default=4, kw_only=True)
    named: int = field(kw_only=True, compare=False)

    def __post_init__(self, passed_on: int, half: float) -> None:
        self.made["passed on"] = int(passed_on * half)


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


class Unhashable:
    x: int
    __hash__ = None  # type: ignore[assignment]


class OfItself:
    self: int
    x: int = 1


BODIES: dict[type, list[Any]] = {Point: [(3,), (3, 2, "noted"), (3, 2, "", 1), (4,)], One: [(3,), (4,)]}
BODIES |= {Fieldless: [()], Stating: [(3,), (4,)], Numbered: [(3,), (4,)], Unhashable: [(3,)]}
BODIES |= {OfItself: [(3,), (3, 2)]}
OPTIONS: list[dict[str, bool]] = [{}, {"eq": False}, {"repr": False}]


def behaviour(made: Callable[[Any], Any], body: type, options: dict[str, bool]) -> list[object]:
    """What objects of the class and of one that derives from it say of each other."""
    cls = decorated(made, body)
    derived = new_class("Derived", (cls,))
    objects = [kind(*given) for kind in (cls, derived) for given in BODIES[body]]
    texts = ["" if "object at" in repr(one) else repr(one) for one in objects]
    if options.get("eq", True) and cls.__hash__:
        texts += [str(hash(one)) for one in objects if type(one).__hash__ is not object.__hash__]
    return [cls.__match_args__, texts, [one == other for one in objects for other in [*objects, 3]]]


def decorated(made: Callable[[Any], Any], body: type) -> Any:
    names = {name: value for name, value in vars(body).items() if name not in ("__dict__", "__weakref__")}
    return made(new_class(body.__name__, (), {}, lambda own: own.update(names)))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("body", BODIES)
def test_it_behaves_as_a_frozen_dataclass(body: type, options: dict[str, bool]) -> None:
    expected = behaviour(dataclass(frozen=True, **options), body, options)
    assert behaviour(frozen(**options), body, options) == expected


def constructor(cls: Any, calls: list[Callable[[Any], Any]]) -> list[object]:
    """The parameters of a class, and what each call makes or refuses."""
    parameters = signature(cls).parameters.values()
    found: list[object] = [
        (each.name, each.kind, each.annotation, each.default is each.empty) for each in parameters
    ]
    for call in calls:
        try:
            found.append(vars(call(cls)))
        except TypeError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("body", [*BODIES, Full])
def test_its_constructor_takes_and_refuses_what_that_of_a_dataclass_does(body: type) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda cls: cls(1, 2, named=3),
        lambda cls: cls(1, passed_on=8, y=[1], half=0.25, by_name=7, named=3),
        lambda cls: cls(1, 2, [3], 0.5, 4),
        lambda cls: cls(x=1, fixed=2),
        lambda cls: cls(1, 2, "noted"),
        lambda cls: cls(),
    ]
    expected, found = decorated(dataclass(frozen=True), body), decorated(frozen, body)
    assert constructor(found, calls) == constructor(expected, calls)
    for name in get_annotations(body):
        assert getattr(found, name, "no default") == getattr(expected, name, "no default")


def test_each_object_has_its_own_of_what_a_factory_makes() -> None:
    cls = decorated(frozen, Full)
    one, other = cls(1, 2, named=3), cls(1, 2, named=3)
    assert (one.y, one.made) == (other.y, other.made)
    assert one.y is not other.y
    assert one.made is not other.made


def test_its_constructor_is_compiled_when_it_is_needed() -> None:
    cls = decorated(frozen, Point)
    assert not isfunction(vars(cls)["__init__"])
    new_class("Derived", (cls,))(3)
    assert isfunction(vars(cls)["__init__"])


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


def test_a_class_without_the_decorator_may_have_more_attributes() -> None:
    class Wider(Place):
        """As torch.nn.Module, which sets what it likes."""

    wider = Wider(1)
    setattr(wider, "z", 3)  # noqa: B010, a type checker would refuse it
    delattr(wider, "z")
    for name in ("x", "y"):
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(wider, name, 2)


def test_a_field_without_a_default_follows_none_that_has_one() -> None:
    class Disordered:
        x: int = 1
        y: int

    with pytest.raises(TypeError, match="Disordered: y has no default, but x before it has one"):
        decorated(frozen, Disordered)


def test_a_field_that_is_stated_again_keeps_its_place_and_its_default() -> None:
    def twice(made: Callable[[Any], Any]) -> Any:
        again = {"y": "float", "x": "float", "z": "int"}
        first = decorated(made, Point)
        return made(new_class("Again", (first,), {}, lambda names: names.update(__annotations__=again, z=1)))

    expected, found = twice(dataclass(frozen=True)), twice(frozen)
    assert constructor(found, [lambda cls: cls(1, z=3)]) == constructor(expected, [lambda cls: cls(1, z=3)])
    assert [(one.name, one.type) for one in fields(found)] == [
        (one.name, one.type) for one in fields(expected)
    ]


def test_it_derives_from_frozen_classes_only_and_leaves_them_so() -> None:
    @dataclass
    class Open:
        x: int

    with pytest.raises(TypeError, match="Closed is frozen and derives from a dataclass that is not"):
        frozen(new_class("Closed", (Open,)))
    with pytest.raises(ValueError, match="mutable default"):
        frozen(
            new_class("Wrong", (Place,), {}, lambda names: names.update(__annotations__={"z": list}, z=[]))
        )
    with pytest.raises(TypeError, match="non-frozen dataclass from a frozen one"):
        dataclass(new_class("Open", (Place,)))


def test_it_is_copied_and_pickled_whole() -> None:
    place = Place(1, [2])
    for copied_one in (deepcopy(place), pickle.loads(pickle.dumps(place)), place.__replace__(x=1)):  # type: ignore[attr-defined]
        assert copied_one == place


def test_an_object_that_holds_itself_is_shown() -> None:
    place = Place(1)
    place.y.append(place)  # type: ignore[arg-type]
    assert repr(place) == "Place(x=1, y=[...])"


def test_its_constructor_knows_the_names_of_its_module() -> None:
    assert get_type_hints(Place.__init__)["y"] == list[int]
    assert Place.__init__.__globals__ is globals()  # by which a warning is filtered


def test_what_is_abstract_of_a_base_is_stated_by_it() -> None:
    @frozen
    class Keyed(Hashable):
        x: int

    assert hash(Keyed(1)) == hash(Keyed(1))


def test_a_class_may_be_empty_to_its_metaclass_and_a_default_told_its_place_once() -> None:
    class Meta(type):
        def __len__(cls) -> int:
            return 0

    class Told:
        def __set_name__(self, owner: type, name: str) -> None:
            told.append((owner, name))

    told: list[tuple[type, str]] = []

    @frozen
    class Empty(metaclass=Meta):
        x: Any = Told()

    assert told == [(Empty, "x")]
    assert Empty(3).x == 3


def test_a_constructor_that_is_replaced_stays_so() -> None:
    class Named(Protocol):
        """A protocol takes the constructor of the class behind it (typing._no_init_or_replace_init)."""

    cls = decorated(frozen, One)
    both = new_class("Both", (Named, cls))
    assert both(1).x == 1
    cls.__init__ = lambda self, x: object.__setattr__(self, "x", 100 * x)
    assert (cls(1).x, both(1).x, cls(1).x) == (100, 1, 100)


@pytest.mark.parametrize("made", [dataclass(frozen=True), frozen])
def test_it_does_not_state_how_it_is_assigned_to(made: Callable[[Any], Any]) -> None:
    class Open:
        x: int

        def __setattr__(self, name: str, value: object) -> None:
            """As if it were not frozen."""

    with pytest.raises(TypeError, match="__setattr__"):
        made(Open)
