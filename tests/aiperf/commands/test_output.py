"""Where the command's words go: a disk that is full, a reader that has left, a locale of few letters."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from aiperf.commands.optional_libraries import extra
from aiperf.errors import MissingExtra
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.run.display import Display
from tests.aiperf.commands.typed import Typed
from tests.journals import told, write_run


def test_a_full_disk_under_the_output_is_one_line(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # closing writes what is left of it
        monkeypatch.setattr(sys, "stdout", full)
        assert typed("count") == 1
    assert typed.err == "aiperf-hpc: No space left on device; free some space on this file system\n"


@pytest.mark.parametrize("words", [("count",), ()])
def test_a_reader_that_has_left_is_told_nothing(
    words: tuple[str, ...], typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    pipe = os.fdopen(write, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", pipe)
    with pytest.raises(SystemExit, match="1") if words else nullcontext():
        assert typed(*words) == 0
    sys.stdout.flush()  # as at the exit
    assert typed.capsys.readouterr().err == ""
    with suppress(BrokenPipeError):
        pipe.close()


def test_a_locale_of_few_letters_takes_nothing_but_letters_away(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_run(tmp_path / "run", told())
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", write_through=True))
    assert (typed("score", files.directory), typed.err) == (0, "")
    assert b"VALID, class smoke" in written.getvalue()


class Full(io.StringIO):
    """A log on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_run_goes_on_when_nobody_can_see_it(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay()
    monkeypatch.setattr(sys, "stdout", Full())
    with Display(RunFiles(Path("runs/one")), terminal=False) as display:
        for t, event in told():
            replay.add(t, event)
            if replay.legs:
                display.show(replay, t)
    told_once = "aiperf-hpc: progress cannot be shown any more (No space left on device)\n"
    assert typed.capsys.readouterr().err == told_once


def test_a_library_of_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)  # an import raises
    with pytest.raises(MissingExtra) as missing, extra("report"):
        import jinja2  # noqa: F401
    assert str(missing.value) == (
        f"jinja2 is not installed; remedy: {sys.executable} -m pip install 'jinja2>=3.1' "
        "'markupsafe>=2.1' 'matplotlib>=3.8' 'jsonschema>=4.20' 'prometheus-client>=0.20'"
    )
    with pytest.raises(ModuleNotFoundError, match=r"numpy\.absent"), extra("report"):
        import numpy.absent  # noqa: F401
