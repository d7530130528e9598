"""How many proposals of a run this user has already reproduced, so that a long validation can be resumed."""

from __future__ import annotations

from aiperf.code import code_hash
from aiperf.journal.replay import Replay
from aiperf.own_files import OwnFile


class SoFar(OwnFile):
    """The file that belongs to exactly this journal and exactly this program."""

    @classmethod
    def of(cls, replay: Replay) -> SoFar:
        return cls.at("proposals", replay.last_chain, replay.lines, code_hash())

    def read(self) -> int:
        """The number of the first trial whose proposal has not been reproduced yet."""
        found = self.content()
        return found if type(found) is int and found >= 0 else 0
