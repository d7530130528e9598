"""What another user could have put where this one wants to write: refused, and never followed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiperf.host.other_users import (
    OTHERS,
    OTHERS_WRITE,
    POD,
    NotOurs,
    make_private,
    peer,
    refuse_changeable_file,
)
from tests.tables import ComesTo

Plant = Callable[[Path], object]


def folder(mode: int) -> Plant:
    def plant(path: Path) -> None:
        path.mkdir()
        path.chmod(mode)

    return plant


def under(mode: int) -> Plant:
    """The folder above has this mode."""
    return lambda path: path.parent.chmod(mode)


def test_a_folder_is_this_users_alone_or_refused(
    folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.delenv(POD, raising=False)

    def planted(plant: Plant, forbidden: int) -> str:
        """What is said of a path that somebody made so; one that is refused stays as it was."""
        folder = next(folders)
        path = folder / "above" / "own"
        path.parent.mkdir(parents=True)
        plant(path)
        before = sorted(folder.rglob("*"))
        try:
            assert make_private(path, forbidden) == path
        except NotOurs as error:
            assert sorted(folder.rglob("*")) == before
            return str(error).replace(f"{folder}/", "")
        assert not path.lstat().st_mode & forbidden
        assert make_private(path, forbidden) == path
        return "ours"

    comes_to_what_was_read(
        "planted.txt", {**globals(), "planted": planted, "OTHERS_WRITE": OTHERS_WRITE, "OTHERS": OTHERS}
    )


def test_a_volume_of_a_pod_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes mounts an `emptyDir` with mode 777, which its user cannot change."""
    tmp_path.chmod(0o777)
    monkeypatch.setenv(POD, "10.0.0.1")
    assert make_private(tmp_path / "own") == tmp_path / "own"


def test_what_is_somebody_elses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "file").touch(mode=0o600)
    refuse_changeable_file(tmp_path / "file")
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer(ours) == f"process {os.getpid()}"
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        for refused in (
            lambda: make_private(tmp_path / "own"),
            lambda: refuse_changeable_file(tmp_path / "file"),
            lambda: peer(ours),
        ):
            with pytest.raises(NotOurs, match="belongs to the user "):
                refused()
    monkeypatch.undo()
    (tmp_path / "file").chmod(0o620)
    with pytest.raises(NotOurs, match="file can be changed by other users"):
        refuse_changeable_file(tmp_path / "file")


def test_a_folder_that_cannot_be_made_has_the_systems_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="Not a directory"):
        make_private(tmp_path / "file" / "own")
