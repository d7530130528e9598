"""Answers of other programs: as odd as sites have them, and never waited for long."""

from __future__ import annotations

import sys
import time

import pytest

from aiperf.host.programs import ProgramAnswer, ToolFailed, ask, json_object, rows

SHELL = {
    "a byte of another encoding": (r"printf 'M\374ller\n'", ProgramAnswer(0, "M�ller", "")),
    "nothing": ("exit 3", ProgramAnswer(3, "", "")),
    "both": ("echo a; echo b >&2; exit 18", ProgramAnswer(18, "a", "b")),
    "a child outlives it": ("sleep 20 & echo a", ProgramAnswer(0, "a", "")),
    "a signal": ("echo a; kill -9 $$", ProgramAnswer(-9, "a", "")),
    "its input": ("cat", ProgramAnswer(0, "x" * 300_000, "")),
    "input that is not read": ("exit 0", ProgramAnswer(0, "", "")),
}


@pytest.mark.parametrize("case", SHELL)
def test_an_answer_is_read_whatever_it_holds(case: str) -> None:
    text, expected = SHELL[case]
    began = time.monotonic()
    assert ask(("sh", "-c", text), 15.0, "x" * 300_000 if "input" in case else "") == expected
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("no-such-program",), "cannot be started: No such file or directory"),
        (("/",), "cannot be started: Permission denied"),
        (("sh", "a\0b"), "cannot be started: embedded null byte"),
        (("sh", "-c", "x" * 200_000), "cannot be started: Argument list too long"),
        (("sh", "-c", "sleep 30"), "gives no answer in 0.5 s"),
        (("sh", "-c", "exec >&- 2>&-; sleep 30"), "gives no answer in 0.5 s"),
        (("sh", "-c", "while :; do echo a; sleep 0.01; done"), "gives no answer in 0.5 s"),
        (
            (sys.executable, "-c", "import os\nwhile 1: os.write(1, bytes(1 << 20))"),
            "prints more than 16 MiB",
        ),
    ],
)
def test_a_program_without_an_answer_is_one_line(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        ask(words, 20.0 if "more" in told else 0.5)
    assert str(failed.value) == told
    assert failed.value.is_missing == ("No such file" in told)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ProgramAnswer(1, "a\nb", ""), "b"),
        (ProgramAnswer(1, "a", "c\nd"), "d"),
        (ProgramAnswer(1, "", "Unable to run job: denied\nExiting.\n"), "Unable to run job: denied"),
        (ProgramAnswer(1, "", ""), "no reason given"),
        (ProgramAnswer(1, "x" * 900, ""), "x" * 200),
    ],
)
def test_its_last_line_is_its_reason(answer: ProgramAnswer, reason: str) -> None:
    assert answer.reason == reason


def test_lines_of_another_form_are_kept_apart() -> None:
    found = rows("CLUSTER: big\n\n  7|RUNNING \n²|RUNNING\n", r"(\d+)\|(\w+)")
    assert [match.groups() for match in found.found] == [("7", "RUNNING")]
    assert found.skipped == ("CLUSTER: big", "²|RUNNING")


@pytest.mark.parametrize("text", ['{"a": 1}', 'a banner\n{"a": 1}\nbye', '{\n"a"\n:1}'])
def test_an_object_of_json_is_found_in_an_answer(text: str) -> None:
    assert json_object(text) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", "[1]", "qstat: down", '{"a": 1', "{" * 100_000, '{"a": ' + "9" * 5000 + "}"]
)
def test_an_answer_without_one_is_refused_with_its_first_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON: '") as refused:
        json_object(text)
    assert len(str(refused.value)) < 300
