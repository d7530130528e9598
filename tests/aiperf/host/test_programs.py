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
    def found(text: str, form: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """The groups of the lines of this form, and the other lines."""
        read = rows(text, form)
        return [match.groups() for match in read.found], read.skipped

    names = {"ask": ask, "sys": sys, "ProgramAnswer": ProgramAnswer, "json_object": json_object}
    comes_to_what_was_read("programs.txt", {**names, "shell": shell, "found": found})


def test_only_a_program_that_is_not_there_is_missing() -> None:
    for words, is_missing in ((("no-such-program",), True), (("/",), False)):
        with pytest.raises(ToolFailed) as failed:
            ask(words, 1.0)
        assert failed.value.is_missing is is_missing
