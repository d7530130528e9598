"""Which share of the ceiling is usual: by the table of the program, and by a site's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiperf.journal.events import LegEnded, RankReady
from aiperf.journal.replay import Replay
from aiperf.wire.reports import Processor
from analysis.readings.references import kind_of_machine, references, usual_text
from tests.aiperf.rules.forged import each
from tests.journals import Scene, replayed, told, within
from tests.tables import ComesTo

ENTRY = """\
[[reference]]
preset = "simulated"
kind = "2 × NVIDIA H200"
minutes = 0.05
least = 0.38
greatest = 0.441
runs = 5
processor = "NVIDIA H200"
commit = "0123abc"
date = "2026-11-26"
conditions = "idle"
"""
OTHER, DIGITS = ENTRY.replace("0.05", "2.0"), ENTRY.replace('"simulated"', '"digits"')
TIMED = told(Scene(minutes=0.05))
RUN = replayed(TIMED)
EARLY = replayed(each(LegEnded, lambda event: replace(event, reason="trials"))(TIMED))
AMX = Processor("x86_64", 2, 3e9, ("avx2", "avx512f", "avx512_bf16", "amx_bf16"))
AVX2 = replace(AMX, flags=("avx2",))


def of_preset(name: str) -> Replay:
    return replayed(told(Scene(minutes=0.05, changes=(("preset", name),))))


def kind(*processors: Processor | None) -> str:
    """The kind of a machine whose ranks have these processors, on a host each."""
    ready = iter(processors)
    return kind_of_machine(replayed(each(RankReady, lambda e: within(e, processor=next(ready)))(TIMED)))


def test_what_is_usual_is_said_where_it_is_known(here: Path, comes_to_what_was_read: ComesTo) -> None:
    """A kind of machine is what bounds its speed."""

    def usual(text: str, run: Replay = RUN) -> str:
        Path("references.toml").write_text(text)
        return usual_text(run)

    comes_to_what_was_read("references.txt", {**globals(), "usual": usual})


def test_the_references_of_the_program_can_be_read(here: Path) -> None:
    assert all(each.commit and each.date and each.conditions for each in references())
    assert usual_text(RUN) == ""
