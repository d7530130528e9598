"""How many proposals of a run this user has already reproduced, so that a long validation can be resumed.

It is kept in the user's own cache folder and never beside the journal, because whoever gives a run to others
could write it there.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from aiperf.code import code_hash
from aiperf.journal.replay import Replay

OTHERS_WRITE = 0o022


@dataclass(frozen=True)
class SoFar:
    """The file that belongs to exactly this journal and exactly this program."""

    path: Path

    @classmethod
    def of(cls, replay: Replay) -> SoFar:
        key = sha256(f"{replay.last_chain} {replay.lines} {code_hash()}".encode()).hexdigest()
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(cache) / "aiperf-hpc" / "proposals" / f"{key}.json")

    def read(self) -> int:
        """The number of the first trial whose proposal has not been reproduced yet."""
        try:
            state = self.path.stat()
            if state.st_uid != os.getuid() or state.st_mode & OTHERS_WRITE:
                return 0
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # absent, or a write that was cut off: nothing is known
            return 0
        return found if type(found) is int and found >= 0 else 0

    def write(self, first: int) -> str:
        """Keeps that number. Returns why it could not be kept, else an empty text."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            whole = self.path.with_suffix(".new")
            whole.write_text(json.dumps(first), encoding="utf-8")
            whole.chmod(0o600)
            whole.replace(self.path)
        except OSError as error:
            return f"{self.path} cannot be written: {error.strerror}"
        return ""

    def remove(self) -> None:
        """Forgets it, once the validation is over."""
        if self.path.is_file():
            self.path.unlink()
