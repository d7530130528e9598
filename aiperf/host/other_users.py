"""Folders, files and connections that another user of a shared machine could have put in our way.

Names in /tmp, in /dev/shm or on a node's disk can be guessed, and whoever creates a name first owns it. So
such a folder is used only if nobody else can change what is in it.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aiperf.host import variables
from nas.bounded import opened

if TYPE_CHECKING:  # reading a run needs no connection
    import socket

OTHERS = 0o077
"""Mode bits by which other users can read, write or enter."""
OTHERS_WRITE = 0o022
"""Mode bits by which other users can write."""
POD = "KUBERNETES_SERVICE_HOST"
"""Variable that Kubernetes sets in each container."""
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of a peer: unix(7), SO_PEERCRED."""


class NotOurs(Exception):
    """Another user has made, or could change, what was to be used. The message says what and why, without a
    remedy."""


def make_private(folder: Path, forbidden: int = OTHERS) -> Path:
    """Creates a folder for this user alone, or accepts an existing one that is. Returns it.

    An existing folder must have none of the mode bits `forbidden`, and is no symbolic link. Raises NotOurs,
    and OSError if the folder cannot be created.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    parent = folder.parent.resolve()
    for above in (parent, *parent.parents):
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not _in_pod():
            raise NotOurs(f"{folder}: every user can rename what is in {above} (mode {mode & 0o7777:o})")
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        _refuse_changeable(folder, stat.S_ISDIR, "a folder", forbidden)
    return folder


def temporary_folder() -> Path:
    """The folder of this user in TMPDIR for compiled code. Raises NotOurs, and OSError as `make_private`."""
    import tempfile  # and with it the writers of archives

    return make_private(Path(tempfile.gettempdir()) / f"aiperf-hpc-{os.getuid()}", OTHERS_WRITE)


def refuse_changeable_file(path: Path) -> None:
    """Raises NotOurs for a file that another user has made or can change, and OSError if there is none."""
    _refuse_changeable(path, stat.S_ISREG, "a file", OTHERS_WRITE)


def private_bytes(path: str, most: int) -> bytes:
    """The content of a file that only this user can read, without spaces and line ends around it; of a longer
    file than `most` bytes one byte more.

    In a pod of Kubernetes, whose files nobody else sees, a Secret belongs to root, and has any mode. Raises
    NotOurs, without the path, and OSError.
    """
    with opened(Path(path)) as file:
        state = os.fstat(file.fileno())
        if not _in_pod():
            if state.st_uid != os.getuid():
                raise NotOurs(f"it belongs to {_name(state.st_uid)}")
            if state.st_mode & OTHERS:
                mode = f"mode {state.st_mode & 0o7777:o}; `chmod go=` corrects it"
                raise NotOurs(f"it can be read by other users ({mode})")
        return file.read(most + 1).strip()


def peer(connected: socket.socket) -> str:
    """The process at the other end of a Unix socket, for messages. Raises NotOurs if it belongs to another
    user. Only Linux says who it is; elsewhere the folder of the socket has to keep others away."""
    import socket

    if not hasattr(socket, "SO_PEERCRED"):
        return "a process"
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(raw)
    if user != os.getuid():
        raise NotOurs(f"process {process} belongs to {_name(user)}")
    return f"process {process}"


def _refuse_changeable(path: Path, is_kind: Callable[[int], bool], kind: str, forbidden: int) -> None:
    state = path.lstat()
    if stat.S_ISLNK(state.st_mode):
        raise NotOurs(f"{path} is a symbolic link")
    if not is_kind(state.st_mode):
        raise NotOurs(f"{path} is not {kind}")
    if state.st_uid != os.getuid():
        raise NotOurs(f"{path} belongs to {_name(state.st_uid)}")
    if state.st_mode & forbidden:
        how = "changed" if state.st_mode & forbidden & OTHERS_WRITE else "entered"
        closed = "chmod go=" if forbidden == OTHERS else "chmod go-w"
        mode = f"mode {state.st_mode & 0o7777:o}; `{closed}` corrects it"
        raise NotOurs(f"{path} can be {how} by other users ({mode})")


def _in_pod() -> bool:
    """Whether this is a pod of Kubernetes, whose volumes of the kind `emptyDir` have mode 777 and no other
    user."""
    return bool(variables.word(os.environ, POD))


def _name(user: int) -> str:
    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"
