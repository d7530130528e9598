"""The lines of which a long run has most, read in the form in which they are written.

A group writes a block of steps every few seconds, and five kinds of line are all but a few of a long journal.
To read them by pattern takes half the time of JSON. A line in any other form, which may mean the same, is
left to the reader of JSON, and so is every line that this one would refuse: both give the same for the same
line. What lines have in common is held once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from aiperf.journal import strict
from aiperf.journal.events import Began, BlockRow, Closed, ClosedRow, Dispatched, Ended, Event, Stepped
from aiperf.journal.names import Names
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.tally import Tally
from aiperf.wire.reports import Finished, Started
from aiperf.wire.trial import HyperParameters, State, Trial
from nas.morphisms import Morphism
from nas.ops import Ops
from nas.reader import reader_of
from nas.record import decode

Read = tuple[float, type[Event], Event | BlockRow | ClosedRow, str]
"""Time, kind and content of a line, and its chain. The content is the event or its row (`Stepped`,
`Closed`)."""
MOST_HELD = 1 << 14
"""Entries of a table of what is held once; a full one is emptied."""
_WHOLE = rb"(0|[1-9][0-9]{0,17})"  # of at most `strict.FEW_DIGITS`, so it is never too large
_REAL = rb"(-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,20}(?:e-[0-9]{1,3})?)"  # as Python writes one below 10^16
_HASH = rb'"([0-9a-f]{64})"'
_TEXT = rb'"([ !#-\[\]-~]*)"'  # printable ASCII that needs no escape
_SEVEN = rb"\[(" + rb",".join([_WHOLE.replace(b"(", b"(?:")] * 7) + rb")\]"


def _line(kind: bytes, content: bytes) -> re.Pattern[bytes]:
    """The pattern of a line. Each word in capitals becomes the pattern of one value."""
    text = b'{"t":REAL,"type":"%b",%b,"chain":HASH}\n' % (kind, content)
    text = text.replace(b"{", rb"\{").replace(b"}", rb"\}")
    for name, pattern in (
        (b"REAL", _REAL),
        (b"WHOLE", _WHOLE),
        (b"HASH", _HASH),
        (b"TEXT", _TEXT),
        (b"SEVEN", _SEVEN),
        (b"LIST", rb"(\[.*\])"),
        (b"OBJECT", rb"(\{[^{}]*\})"),
    ):
        text = text.replace(name, pattern)
    return re.compile(text)


_STEPPED = _line(
    b"Stepped",
    b'"block":{"trial":WHOLE,"attempt":WHOLE,"segment":WHOLE,"steps":WHOLE,"examples":WHOLE,"seconds":REAL,'
    b'"loss":(?:null|REAL)},"end":REAL',
)
_CLOSED = _line(
    b"Closed",
    b'"segment":{"trial":WHOLE,"attempt":WHOLE,"index":WHOLE,"steps":WHOLE,"train_examples":WHOLE,'
    b'"train_seconds":REAL,"tally":(?:{"type":"Classified","of":WHOLE,"correct":WHOLE}|OBJECT),'
    b'"validate_seconds":REAL,"skipped":WHOLE},"end":REAL(?:,"logs":HASH)?',
)
_BEGAN = _line(
    b"Began",
    b'"started":{"type":"Started","trial":WHOLE,"attempt":WHOLE,"graph_key":HASH,"prepare_seconds":REAL'
    b'(?:,"engine":TEXT)?(?:,"chosen":TEXT)?(?:,"threads":LIST)?},"end":REAL',
)
_ENDED = _line(
    b"Ended",
    b'"finished":{"type":"Finished","trial":WHOLE,"attempt":WHOLE,"state":TEXT,"reason":TEXT'
    b'(?:,"weights":HASH)?(?:,"age_seconds":REAL)?(?:,"kept":(-1|WHOLE))?},"end":REAL',
)
_DISPATCHED = _line(
    b"Dispatched",
    b'"trial":{"number":WHOLE,"parent":(?:null|WHOLE),"morphisms":LIST,"hyper":OBJECT,"round":WHOLE,'
    b'"epochs":WHOLE,"seed":WHOLE},"attempt":WHOLE,"group":WHOLE,"graph_key":HASH,"forward":SEVEN,'
    b'"backward":SEVEN,"evaluate":SEVEN,"parameters":WHOLE',
)
_KIND = b'"type":"'
_MORPHISMS = reader_of(tuple[Morphism, ...])
_STATES = {state.value: state for state in State}


class _Held(dict[Any, Any]):
    """Values by the text, or the texts, that state them."""

    def __init__(self, value_of: Callable[[Any], Any]) -> None:
        super().__init__()
        self._value_of = value_of

    def __missing__(self, text: Any) -> Any:
        if len(self) >= MOST_HELD:
            self.clear()
        self[text] = value = self._value_of(text)
        return value


def _with_shared_names(records: list[Any]) -> list[Any]:
    """Records of morphisms, whose names of nodes many others have too."""
    for record in records:
        if type(record) is dict:
            for key, value in record.items():
                if type(value) is str:
                    record[key] = sys.intern(value)
    return records


class UsualLines:
    """Reads the lines of one journal."""

    def __init__(self) -> None:
        self._whole = _Held(int)
        self._kinds = _Held(int)
        self._hyper = _Held(lambda text: decode(HyperParameters, strict.parsed(text)))
        self._hash = _Held(bytes.decode)
        self._tally = _Held(lambda texts: Classified(*map(int, texts)))
        self._threads = _Held(lambda text: decode(tuple[int, ...], strict.parsed(text)))
        self._readers: Mapping[bytes, tuple[re.Pattern[bytes], Callable[[tuple[Any, ...], Names], Read]]] = {
            b"St": (_STEPPED, self._stepped),
            b"Cl": (_CLOSED, self._closed),
            b"Be": (_BEGAN, self._began),
            b"En": (_ENDED, self._ended),
            b"Di": (_DISPATCHED, self._dispatched),
        }

    def read(self, raw: bytes, names: Names) -> Read | None:
        """The line, with the texts that `names` shows; None if it is not of this form."""
        place = raw.find(_KIND) + len(_KIND)
        reader = self._readers.get(raw[place : place + 2])
        if reader is None or (found := reader[0].fullmatch(raw)) is None:
            return None
        try:
            return reader[1](found.groups(), names)
        except (ValueError, KeyError, TypeError, RecursionError):  # the reader of JSON says what is wrong
            return None

    def _stepped(self, texts: tuple[Any, ...], names: Names) -> Read:
        t, trial, attempt, segment, steps, examples, seconds, loss, end, chain = texts
        whole = self._whole
        row = (
            whole[trial],
            whole[attempt],
            whole[segment],
            whole[steps],
            whole[examples],
            float(seconds),
            None if loss is None else float(loss),
            float(end),
        )
        return float(t), Stepped, row, chain.decode()

    def _closed(self, texts: tuple[Any, ...], names: Names) -> Read:
        t, trial, attempt, index, steps, examples, trained, of, correct, tally, *rest = texts
        validated, skipped, end, logs, chain = rest
        whole = self._whole
        row = (
            whole[trial],
            whole[attempt],
            whole[index],
            whole[steps],
            whole[examples],
            float(trained),
            self._tally[of, correct] if tally is None else decode(Tally, strict.parsed(tally)),
            float(validated),
            whole[skipped],
            float(end),
            logs.decode() if logs else "",
        )
        return float(t), Closed, row, chain.decode()

    def _began(self, texts: tuple[Any, ...], names: Names) -> Read:
        t, trial, attempt, key, prepared, engine, chosen, threads, end, chain = texts
        whole, more = self._whole, dict[str, Any]()
        if engine is not None:
            more["engine"] = sys.intern(engine.decode())
        if chosen is not None:
            more["chosen"] = sys.intern(names.text(chosen.decode()))
        if threads is not None:
            more["threads"] = self._threads[threads]
        started = Started(whole[trial], whole[attempt], self._hash[key], float(prepared), **more)
        return float(t), Began, Began(started, float(end)), chain.decode()

    def _ended(self, texts: tuple[Any, ...], names: Names) -> Read:
        t, trial, attempt, state, reason, weights, age, kept, _, end, chain = texts
        finished = Finished(
            self._whole[trial],
            self._whole[attempt],
            _STATES[state.decode()],
            names.text(reason.decode()) if reason else "",
            weights=weights.decode() if weights else "",
            age_seconds=0.0 if age is None else float(age),
            kept=None if kept is None else int(kept),
        )
        return float(t), Ended, Ended(finished, float(end)), chain.decode()

    def _dispatched(self, texts: tuple[Any, ...], names: Names) -> Read:
        t, number, parent, morphisms, hyper, round_, epochs, seed, attempt, group, key, *rest = texts
        forward, backward, evaluate, parameters, chain = rest
        whole, kinds = self._whole, self._kinds.__getitem__
        trial = Trial(
            whole[number],
            None if parent is None else whole[parent],
            _MORPHISMS(_with_shared_names(strict.parsed(morphisms)), "trial.morphisms"),
            self._hyper[hyper],
            whole[round_],
            whole[epochs],
            int(seed),
        )
        event = Dispatched(
            trial,
            whole[attempt],
            whole[group],
            self._hash[key],
            Ops._make(map(kinds, forward.split(b","))),
            Ops._make(map(kinds, backward.split(b","))),
            Ops._make(map(kinds, evaluate.split(b","))),
            int(parameters),
        )
        return float(t), Dispatched, event, chain.decode()
