"""Begins one part after the other, each in a process of its own, and writes down what came of it.

A device that fails may leave a process that can do nothing more with it, or one that hangs: such a part
ends, and the others go on.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.on_device.page import page
from benchmarks.on_device.parts import BY_NAME, IDENTITY, PARTS, Part, Setting
from benchmarks.on_device.process import wait
from benchmarks.on_device.state import DONE, FAILED, UNFINISHED, Measured, StateError

SLOWEST = 2.5
"""Multiple of a part's expected time after which it is assumed to hang."""
SLOWER_OF_AMD = 3.0
"""How many times as long it may take on AMD's devices, whose MIOpen compiles the first convolutions for
minutes."""
LEAST_SECONDS = 60.0
"""Time that every part may take, however short it is expected to be."""
LONGER = 1.5
"""Multiple of the time that an unfinished part had: it is expected to need as much in the next call."""
FIRST_SECONDS = 1.0
OWN_SHARE = 0.9
"""Share of its time after which a part that will never get more ends by itself, with what it has."""
TRACEBACK = re.compile(r"(?=Traceback \(most recent call last\))")


@dataclass(frozen=True)
class Ended:
    """A part's process."""

    state: str
    began: str
    seconds: float
    result: dict[str, Any] | None
    """What it had saved, the whole of it or not; None if that is nothing."""
    error: str


def pending(measured: Measured) -> tuple[Part, ...]:
    """Parts without figures, in their order; a part that reads a run comes after it."""
    return tuple(part for part in PARTS if measured.state(part.name) in ("", UNFINISHED))


def needed(measured: Measured, part: Part, setting: Setting) -> float:
    """Seconds that must be left for it to be begun."""
    had = measured.parts.get(part.name, {}).get("seconds", 0.0)
    return max(part.needs(setting), LONGER * had if measured.state(part.name) == UNFINISHED else 0.0)


def identify(measured: Measured, setting: Setting) -> None:
    """Raises StateError where the figures are of another device or program, or none can be identified."""
    ended = run_part(IDENTITY, setting, limit_of(measured, IDENTITY.needs(setting)), is_whole=True)
    if ended.error or ended.result is None:
        *_, reason = ended.error.splitlines()
        log = log_of(IDENTITY, setting)
        raise StateError(f"the {setting.kind} device cannot be identified: {reason}; see {log}")
    measured.identify(ended.result["identity"])


def go_on(
    measured: Measured, setting: Setting, until: float, say: Callable[[str], None], only: Collection[str]
) -> None:
    """Makes those of the parts `only` that fit into the time, `until` on the monotonic clock.

    Raises StateError.
    """
    began, waiting = monotonic(), list[str]()
    for part in pending(measured):
        if part.name not in only:
            continue
        left, needs = until - monotonic(), needed(measured, part, setting)
        if needs > left:
            waiting.append(f"{part.name} ({needs:.0f} s)")
            continue
        if part.after and measured.state(part.after) != DONE:
            if measured.state(part.after) == FAILED:
                reason = f"it reads the run {part.after}, which failed"
                _write(measured, part, Ended(FAILED, _now(), 0.0, None, reason))
            say(f"{part.name}: reads the run {part.after}, of which there is none")
            continue
        say(f"{part.name}: about {needs:.0f} s")
        limit = limit_of(measured, needs)
        # The first part of a call has all the time that it will ever get.
        is_whole = limit <= left or monotonic() - began < FIRST_SECONDS
        ended = run_part(part, setting, min(limit, left), is_whole)
        if ended.result is not None:
            measured.identify(ended.result["identity"])
        _write(measured, part, ended)
        say(f"{part.name}: {ended.state} after {ended.seconds:.0f} s")
    if waiting:
        say(f"not begun, for too little time is left: {', '.join(waiting)}; call again")


def limit_of(measured: Measured, needs: float) -> float:
    """Seconds after which a part is ended that is expected to take `needs`."""
    on_amd = measured.settings.get("device") == "cuda" and "AMD" in measured.identity.get("device", "")
    slowest = SLOWEST * (SLOWER_OF_AMD if on_amd else 1)
    return max(LEAST_SECONDS, slowest * needs)


def run_part(part: Part, setting: Setting, seconds: float, is_whole: bool) -> Ended:
    """Runs a part in its own process, which is ended after `seconds`: as failed if they are all that it will
    ever get (`is_whole`), else as unfinished."""
    log = log_of(part, setting)
    log.parent.mkdir(parents=True, exist_ok=True)
    result = setting.saved(part.name)
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.on_device", part.name, "--device", setting.kind]
    command += ["--out", str(setting.folder), "--span", str(setting.span_seconds), "--result", str(result)]
    command += ["--seconds", str(OWN_SHARE * seconds)] if is_whole else []
    began, at = monotonic(), _now()
    with log.open("wb") as file:
        status = wait(command, file.fileno(), seconds)
    lasted = monotonic() - began
    found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
    if status is None:
        state = FAILED if is_whole else UNFINISHED
        return Ended(state, at, lasted, found, f"not over after {lasted:.0f} s; its output: {log}")
    output = log.read_text(encoding="utf-8", errors="replace")
    if status or found is None or not found["is_whole"]:
        return Ended(FAILED, at, lasted, found, told(output, status))
    if not found["figures"]["faults"]:
        return Ended(DONE, at, lasted, found, "")
    found["figures"]["traced"] = traced(output).splitlines()
    return Ended(FAILED, at, lasted, found, "")


def log_of(part: Part, setting: Setting) -> Path:
    """File with the output of a part's process."""
    return setting.folder / "logs" / f"{part.name}.log"


def told(output: str, status: int) -> str:
    """How a process failed, with the tracebacks in its output; with its last lines where there are none."""
    text = traced(output) or "\n".join(output.splitlines()[-20:])
    ended = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    return f"{ended}\n{text}".strip()


def traced(output: str) -> str:
    """The first and the last traceback: a device that fails in one place raises in others too, which hide
    it."""
    _, *found = TRACEBACK.split(output)
    return "".join(dict.fromkeys([*found[:1], *found[-1:]])).strip()


def _now() -> str:
    """The time of day in UTC, for a person."""
    return datetime.now(timezone.utc).isoformat(" ", "seconds").replace("+00:00", " UTC")


def _write(measured: Measured, part: Part, ended: Ended) -> None:
    """Records a part, and writes both files."""
    measured.parts[part.name] = {
        "title": part.title,
        "state": ended.state,
        "began": ended.began,
        "seconds": round(ended.seconds, 1),
        "figures": ended.result["figures"] if ended.result else None,
        "error": ended.error,
    }
    measured.save(page(measured))


def forget(measured: Measured, names: Sequence[str]) -> None:
    """Drops the figures of these parts, and of those that read their runs, so that they are measured again;
    `all` drops everything."""
    if "all" in names:
        measured.parts, measured.identity = {}, {}
    for name in names:
        for part in BY_NAME.values():
            if name in (part.name, part.after):
                measured.parts.pop(part.name, None)
