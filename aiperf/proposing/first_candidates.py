"""The candidates of the first trials of a run, which are proposed before its clock starts."""

from __future__ import annotations

from aiperf.journal.events import OpsVector
from nas.graph import Graph, once
from nas.search import Candidate, Search


@once
def counted(graph: Graph) -> tuple[str, OpsVector, OpsVector, OpsVector, int]:
    """What `Dispatched` records of a graph, in the order of its fields."""
    forward, backward, evaluate = graph.cost.forward, graph.cost.backward, graph.cost.evaluate
    return graph.key, forward.kinds, backward.kinds, evaluate.kinds, graph.num_parameters


class FirstCandidates:
    """Proposals of a second search that receives no outcome. The search of the run would make the same ones,
    in the same order, until a trial completes."""

    def __init__(self, search: Search) -> None:
        """`search` is a new one, equal to that of the run."""
        self.num_proposed = 0
        self._search, self._candidates = search, dict[int, Candidate]()

    def propose(self, round_: int) -> None:
        """Proposes the next one, and counts its operations. Raises nas.search.Exhausted."""
        number = self.num_proposed
        self._candidates[number] = candidate = self._search.ask(number, round_)
        counted(candidate.graph)
        self.num_proposed += 1

    def take(self, number: int) -> Candidate | None:
        """The candidate of the trial with that number; None if it was not proposed here. It is removed."""
        return self._candidates.pop(number, None)
