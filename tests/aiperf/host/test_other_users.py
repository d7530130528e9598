"""What another user could have put where this one wants to write: refused, and never followed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
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

Plant = Callable[[Path], object]


def folder(mode: int) -> Plant:
    def plant(path: Path) -> None:
        path.mkdir()
        path.chmod(mode)

    return plant


def under(mode: int) -> Plant:
    """The folder above has this mode."""
    return lambda path: path.parent.chmod(mode)


PLANTED: list[tuple[Plant, int, str]] = [
    (lambda path: None, OTHERS, ""),
    (folder(0o700), OTHERS, ""),
    (folder(0o755), OTHERS_WRITE, ""),
    (under(0o1777), OTHERS, ""),
    (under(0o777), OTHERS, "{path}: every user can rename what is in {above} (mode 777)"),
    (folder(0o750), OTHERS, "{path} can be entered by other users (mode 750; `chmod go=` corrects it)"),
    (folder(0o2770), OTHERS, "{path} can be changed by other users (mode 2770; `chmod go=` corrects it)"),
    (
        folder(0o702),
        OTHERS_WRITE,
        "{path} can be changed by other users (mode 702; `chmod go-w` corrects it)",
    ),
    (lambda path: path.symlink_to(path.parent.parent), OTHERS, "{path} is a symbolic link"),
    (lambda path: path.symlink_to("nowhere"), OTHERS_WRITE, "{path} is a symbolic link"),
    (lambda path: path.touch(), OTHERS, "{path} is not a folder"),
    (os.mkfifo, OTHERS, "{path} is not a folder"),
]


@pytest.mark.parametrize(("plant", "forbidden", "said"), PLANTED, ids=range(len(PLANTED)))
def test_a_folder_is_this_users_alone_or_refused(
    plant: Plant, forbidden: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(POD, raising=False)
    path = tmp_path / "above" / "own"
    path.parent.mkdir()
    plant(path)
    if not said:
        assert make_private(path, forbidden) == path
        assert not path.lstat().st_mode & forbidden
        assert make_private(path, forbidden) == path
        return
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NotOurs) as refused:
        make_private(path, forbidden)
    assert str(refused.value) == said.format(path=path, above=path.parent)
    assert sorted(tmp_path.rglob("*")) == before


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
