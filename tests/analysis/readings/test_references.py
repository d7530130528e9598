"""Which share of the ceiling is usual: by the table of the program, and by a site's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import ConfigError
from aiperf.journal.events import LegEnded, RankReady
from aiperf.wire.messages import Processor
from analysis.readings.references import kind_of_machine, references, usual_text
from tests.journals import Scene, replayed, told, within

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
TIMED = told(Scene(minutes=0.05))


def on(*processors: Processor | None) -> str:
    """The kind of a machine whose ranks have these processors, on a host each."""
    ready = iter(processors)
    timed = [(t, within(e, processor=next(ready)) if isinstance(e, RankReady) else e) for t, e in TIMED]
    return kind_of_machine(replayed(timed))


def test_a_kind_of_machine_is_what_bounds_its_speed() -> None:
    amx = Processor("x86_64", 2, 3e9, ("avx2", "avx512f", "avx512_bf16", "amx_bf16"))
    avx2 = replace(amx, flags=("avx2",))
    assert on(None, None) == "2 × NVIDIA H200"
    assert on(amx, amx) == "4 processors with AMX"
    assert on(avx2, replace(avx2, logical=6)) == "8 processors with AVX2"
    assert (on(amx, avx2), on(amx, None), on(replace(amx, flags=()), replace(amx, flags=()))) == ("", "", "")


def test_what_is_usual_is_said_where_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = replayed(TIMED)
    assert usual_text(run) == ""
    Path("references.toml").write_text(ENTRY)
    usual = "38.0 to 44.1 % is usual for 0.05 minutes of simulated on 2 × NVIDIA H200 (n = 5)"
    assert usual_text(run) == usual
    other = ENTRY.replace("0.05", "2.0")
    digits = ENTRY.replace('"simulated"', '"digits"')
    Path("references.toml").write_text(digits + other)
    assert usual_text(run) == f"for comparison, {usual.replace('0.05', '2')}"
    Path("references.toml").write_text(digits)
    assert usual_text(run) == ""
    named = (("preset", "digits"),)  # its networks are others
    assert usual_text(replayed(told(Scene(minutes=0.05, changes=named)))).startswith("for comparison, ")
    own = replayed(told(Scene(minutes=0.05, changes=(("preset", "own"),))))
    assert usual_text(own) == f"for comparison, {usual.replace('simulated', 'digits')}"
    Path("references.toml").write_text(other + ENTRY)
    assert usual_text(run) == usual
    early = [(t, replace(e, reason="trials") if isinstance(e, LegEnded) else e) for t, e in TIMED]
    assert usual_text(replayed(early)) == f"for comparison, {usual}"
    for line, other, why in (
        ("runs = 5", "runs = 0", "runs is 0"),
        ("least = 0.38", "least = 2.0", "least is 2.0"),
        ("date", "day", "unknown key"),
    ):
        Path("references.toml").write_text(ENTRY.replace(line, other))
        with pytest.raises(ConfigError, match=rf"references.toml: .*{why}.*; correct or remove it"):
            usual_text(run)


def test_the_references_of_the_program_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert all(each.commit and each.date and each.conditions for each in references())
