"""Every message and every event comes back from its text, and no damage to one is read as something else."""

from __future__ import annotations

import json
import types
from collections import abc
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.config import Config, load_preset
from aiperf.errors import WorldError
from aiperf.journal.events import Event, LegBegan
from aiperf.journal.file import chained
from aiperf.journal.strict import LARGEST_FLOAT, parsed
from aiperf.tasks.tally import Tally, kinds
from aiperf.wire.messages import Evaluate, Stop, ToGroup, pack, unpack
from aiperf.wire.reports import FromGroup
from aiperf.wire.trial import HyperParameters
from nas.morphisms import MIX, Morphism
from nas.portable.preparation import ImagePreparation, Preparation, TextPreparation
from nas.reader import members
from nas.record import decode, encode

# Of stated characters: to find out what all of Unicode encodes to takes seconds in each new checkout.
WORDS = st.text('aZ0_ /"\\\n\x00\x7fé\u2028\uffff😀', max_size=6)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 60) | st.floats(-LARGEST_FLOAT, LARGEST_FLOAT) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FAMILIES = (ToGroup, FromGroup, Event)


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values for the annotation of a field."""
    inner = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([values(option) for option in inner])
    if get_origin(hint) is tuple:
        if inner[-1] is Ellipsis:
            return st.lists(values(inner[0]), max_size=3).map(tuple)
        return st.tuples(*[values(each) for each in inner])
    if get_origin(hint) is abc.Mapping:
        return st.dictionaries(WORDS, values(inner[1]), max_size=3)
    plain = {
        int: st.integers(-(1 << 62), 1 << 62),
        # Never -0.0: it equals a default of 0.0, so it is left out and comes back as that.
        float: st.floats(-LARGEST_FLOAT, LARGEST_FLOAT).map(lambda number: number + 0.0),
        str: WORDS,
        bool: st.booleans(),
        type(None): st.none(),
        Any: JSON,
        Config: st.just(load_preset("digits")),
        ToGroup: st.sampled_from([Stop(), Evaluate(3)]),
        Morphism: st.sampled_from(sorted(MIX, key=str)).flatmap(records),
        Preparation: st.sampled_from(
            [
                ImagePreparation(8, (2.5,), (3.0,)),
                ImagePreparation(9, (1.0,) * 3, (4.5,) * 3, 0.5, 16),
                TextPreparation(8),
            ]
        ),
        Tally: st.sampled_from([*kinds()]).flatmap(records),
    }
    if hint in plain:
        return plain[hint]
    return st.sampled_from(hint) if issubclass(hint, Enum) else records(hint)


@cache
def records(kind: Any) -> st.SearchStrategy[Any]:
    """Instances of a dataclass, or of a named tuple."""
    if not is_dataclass(kind):
        return st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()})
    hints = get_type_hints(kind)
    each = {field.name: values(hints[field.name]) for field in fields(kind)}
    if kind is HyperParameters:
        each["batch_size"] = st.integers(1, 1 << 40)
    if kind is LegBegan:
        each["groups"] = st.sampled_from([((1,),), ((1, 2), (3,))])
    return st.builds(kind, **each)


EACH = [pytest.param(family, kind, id=kind.__name__) for family in FAMILIES for kind in members(family)]


@pytest.mark.parametrize(("family", "kind"), EACH)
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_it_comes_back_as_it_was(family: Any, kind: Any, data: st.DataObject) -> None:
    value = data.draw(records(kind))
    if family is Event:
        (line,) = chained([(1.5, value)])
        read = parsed(line.encode())
        assert (read.pop("t"), len(read.pop("chain"))) == (1.5, 64)
        assert repr(decode(Event, read)) == repr(value)
    else:
        assert repr(unpack(family, pack(value))) == repr(value)


@pytest.mark.parametrize(("family", "kind"), EACH)
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_damage_is_refused_or_read_as_what_it_says(family: Any, kind: Any, data: st.DataObject) -> None:
    """Which values each annotation takes is tested with the reader of records: tests/nas/test_graph.py."""
    record = json.loads(json.dumps(encode(data.draw(records(kind)))))
    for _ in range(data.draw(st.integers(1, 3))):
        _damage(record, data)
    with suppress(ValueError):
        value = decode(family, record)
        assert repr(decode(family, encode(value))) == repr(value)


def test_a_message_that_is_no_text_is_refused() -> None:
    with pytest.raises(WorldError, match="a message cannot be read"):
        unpack(FromGroup, b"\xff\xfe")


def _damage(record: Any, data: st.DataObject) -> None:
    """Takes away, renames, adds or changes one entry somewhere in the record."""
    place = data.draw(st.sampled_from(list(_containers(record))))
    names = list(place) if isinstance(place, dict) else list(range(len(place)))
    how = data.draw(st.sampled_from(["change", "change", "remove", "add", "number"]))
    if how == "add" or not names:
        if isinstance(place, dict):
            place[data.draw(st.just("type") | WORDS)] = data.draw(JSON)
        else:
            place.append(data.draw(JSON))
    elif how == "remove":
        del place[data.draw(st.sampled_from(names))]
    else:
        name = data.draw(st.sampled_from(names))
        almost = st.sampled_from([1, 1.0, True, "1", 1 << 53, (1 << 53) - 1, [], {}, None])
        place[name] = data.draw(JSON if how == "change" else almost)


def _containers(record: Any) -> Any:
    if isinstance(record, (dict, list)):
        yield record
        for inner in record.values() if isinstance(record, dict) else record:
            yield from _containers(inner)
