"""How many proposals of a run this user has already reproduced, so that a long validation can be resumed.

It is kept in the user's own cache folder and never beside the journal, because whoever gives a run to others
could write it there.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from aiperf import variables
from aiperf.code import code_hash
from aiperf.journal.replay import Replay
from aiperf.os_error import unwritable
from aiperf.other_users import OTHERS_WRITE, NotOurs, make_private, refuse_changeable_file
from nas.bounded import read_text


@dataclass(frozen=True)
class SoFar:
    """The file that belongs to exactly this journal and exactly this program."""

    path: Path

    @classmethod
    def of(cls, replay: Replay) -> SoFar:
        key = sha256(f"{replay.last_chain} {replay.lines} {code_hash()}".encode()).hexdigest()
        home = os.path.expanduser("~")
        if home == "~":  # a container may run as a number without a home
            home = f"{tempfile.gettempdir()}/aiperf-hpc-{os.getuid()}"
        cache = variables.raw(os.environ, "XDG_CACHE_HOME") or f"{home}/.cache"
        return cls(Path(cache) / "aiperf-hpc" / "proposals" / f"{key}.json")

    def read(self) -> int:
        """The number of the first trial whose proposal has not been reproduced yet."""
        try:
            refuse_changeable_file(self.path)
            found = json.loads(read_text(self.path))
        except (NotOurs, OSError, ValueError, RecursionError):  # absent, planted, or a write that was cut off
            return 0
        return found if type(found) is int and found >= 0 else 0

    def write(self, first: int) -> str:
        """Keeps that number. Returns why it could not be kept, else an empty text."""
        try:
            make_private(self.path.parent, OTHERS_WRITE)
            whole = self.path.with_suffix(".new")
            whole.write_text(json.dumps(first), encoding="utf-8")
            whole.chmod(0o600)
            whole.replace(self.path)
        except NotOurs as error:
            return f"{error}; set XDG_CACHE_HOME to a folder of your own"
        except OSError as error:
            return unwritable(error, self.path, "set XDG_CACHE_HOME to a folder that can be written")
        return ""

    def remove(self) -> None:
        """Forgets it, once the validation is over."""
        with contextlib.suppress(OSError):  # of a folder that can no longer be written
            self.path.unlink()
