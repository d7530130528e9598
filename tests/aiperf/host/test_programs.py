"""Answers of other programs: as odd as sites have them, and never waited for long."""

from __future__ import annotations

import sys
import time

import pytest

from aiperf.host.programs import ProgramAnswer, ToolFailed, ask, json_object, rows
from tests.tables import ComesTo


def shell(text: str, input: str = "") -> ProgramAnswer:
    began = time.monotonic()
    found = ask(("sh", "-c", text), 15.0, input)
    assert time.monotonic() - began < 10, "a child that outlives it is not waited for"
    return found


def test_an_answer_is_read_whatever_it_holds_and_its_last_line_is_its_reason(
    comes_to_what_was_read: ComesTo,
) -> None:
    names = {"ask": ask, "sys": sys, "ProgramAnswer": ProgramAnswer, "json_object": json_object}
    comes_to_what_was_read("programs.txt", {**names, "shell": shell})


def test_only_a_program_that_is_not_there_is_missing() -> None:
    for words, is_missing in ((("no-such-program",), True), (("/",), False)):
        with pytest.raises(ToolFailed) as failed:
            ask(words, 1.0)
        assert failed.value.is_missing is is_missing


def test_lines_of_another_form_are_kept_apart() -> None:
    found = rows("CLUSTER: big\n\n  7|RUNNING \n²|RUNNING\n", r"(\d+)\|(\w+)")
    assert [match.groups() for match in found.found] == [("7", "RUNNING")]
    assert found.skipped == ("CLUSTER: big", "²|RUNNING")


@pytest.mark.parametrize(
    "text", ["", "[1]", "qstat: down", '{"a": 1', "{" * 100_000, '{"a": ' + "9" * 5000 + "}"]
)
def test_an_answer_without_one_is_refused_with_its_first_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON: '") as refused:
        json_object(text)
    assert len(str(refused.value)) < 300
