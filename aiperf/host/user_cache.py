"""What this installation keeps for itself about runs, in the user's own cache folder.

It is never next to a journal, where anyone who passes a run on, or shares its folder, could write it. A file
that another user has made or can change is not read.
"""

from __future__ import annotations

import contextlib
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from aiperf.host import variables
from aiperf.host.other_users import OTHERS_WRITE, NotOurs, make_private, refuse_changeable_file
from aiperf.os_error import unwritable
from nas.bounded import read_text
from nas.frozen import frozen

File = TypeVar("File", bound="OwnFile")


@frozen
class OwnFile:
    """A JSON file of this user, named by the hash of everything that its content follows from."""

    path: Path

    @classmethod
    def at(cls: type[File], folder: str, *key: object) -> File:
        """The file in a folder of the cache for these texts and numbers."""
        name = sha256(" ".join(map(str, key)).encode()).hexdigest()
        return cls(_cache() / "aiperf-hpc" / folder / f"{name}.json")

    def content(self) -> Any:
        """The value that was kept; None if there is none, or if somebody else could have written it."""
        try:
            refuse_changeable_file(self.path)
            return json.loads(read_text(self.path))
        except (NotOurs, OSError, ValueError, RecursionError):  # absent, planted, or a write that was cut off
            return None

    def keep(self, value: Any) -> str:
        """Keeps a JSON value. Returns why it could not be kept, else an empty text."""
        try:
            make_private(self.path.parent, OTHERS_WRITE)
            whole = self.path.with_suffix(".new")
            whole.write_text(json.dumps(value), encoding="utf-8")
            whole.chmod(0o600)
            whole.replace(self.path)
        except NotOurs as error:
            return f"{error}; set XDG_CACHE_HOME to a folder of your own"
        except OSError as error:
            return unwritable(error, self.path, "set XDG_CACHE_HOME to a folder that can be written")
        return ""

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # of a folder that can no longer be written
            self.path.unlink()


def _cache() -> Path:
    home = os.path.expanduser("~")
    if home == "~":  # a container may run as a number without a home
        import tempfile  # and with it the writers of archives: few users have no home

        home = f"{tempfile.gettempdir()}/aiperf-hpc-{os.getuid()}"
    return Path(variables.raw(os.environ, "XDG_CACHE_HOME") or f"{home}/.cache")
