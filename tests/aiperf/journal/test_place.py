"""Whether the journal that is written is still the one at its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.errors import JournalError
from aiperf.files import RunFiles
from aiperf.journal.events import Beat
from aiperf.journal.file import JournalWriter, never_begun


def removed(run: Path) -> None:
    shutil.rmtree(run)


def renamed(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))


def without_journal(run: Path) -> None:
    RunFiles(run).journal.unlink()


def replaced(run: Path) -> None:
    without_journal(run)
    RunFiles(run).journal.write_text("{}\n")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (removed, "the run directory .*run is gone: nothing of the result was kept"),
        (
            renamed,
            "the run directory .*run is gone: it is .*elsewhere/journal.jsonl now; put it back and resume",
        ),
        (without_journal, "the journal .*journal.jsonl is gone: nothing of the result was kept"),
        (
            replaced,
            "the journal .*journal.jsonl was replaced by another file: nothing of the result was kept",
        ),
    ],
)
def test_what_became_of_it_is_said(harm: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    with JournalWriter.begin(RunFiles(tmp_path / "run")) as journal:
        journal.refuse_if_gone()
        harm(tmp_path / "run")
        with pytest.raises(JournalError, match=words):
            journal.refuse_if_gone()


def test_a_run_that_was_killed_as_it_began_is_begun_again(tmp_path: Path) -> None:
    """Before its first line; a scheduler gives the same command again."""
    files = RunFiles(tmp_path / "run")
    files.directory.mkdir()
    assert not never_begun(files.journal)
    files.journal.touch()
    assert never_begun(files.journal)
    files.journal.write_text("notes of somebody")
    assert not never_begun(files.journal)
    files.journal.write_text('{"t":0.0,"type":"Opened","version"')  # the disk was full, then it was killed
    assert never_begun(files.journal)
    with JournalWriter.begin(files) as journal:
        journal.write(0.0, Beat())
    assert not never_begun(files.journal)
    with pytest.raises(JournalError, match="already exists"):
        JournalWriter.begin(files)
