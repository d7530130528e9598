"""The network of a trial on examples that it was not trained on. It serves the validations of a trial, the
test of the best network, and `validate --reevaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from aiperf.clock import duration
from aiperf.data import Split
from aiperf.engines.objective import objective_of
from aiperf.proposing.plan import validated_at_once
from aiperf.tasks.tally import Tally
from aiperf.training.built_trial import Rank
from nas.head import Classes
from nas.modules import Network

FIVE = 5
"""Number of answers of which one may be right for the second figure of the test."""
Look = Callable[[torch.Tensor, torch.Tensor], None]
"""Takes the outputs of a batch, and its targets."""


@torch.inference_mode()
def evaluate(
    rank: Rank,
    network: Network,
    split: Split,
    progress: Callable[[], None] = lambda: None,
    own: Callable[[Tally], None] = lambda tally: None,
    look: Look = lambda outputs, targets: None,
) -> tuple[Tally, float]:
    """The tally of the network's answers and the seconds that they took; summed over the group, each example
    counts once.

    `progress` is called after each batch, `own` with the tally of this rank alone, `look` with the outputs of
    each batch and its targets. Raises NotFinite, on all ranks of the group, and then `own` is not called: a
    validation that failed on any rank is none. `split` is swept once, in parts by rank. Outputs are (n,
    classes), or (n, positions, symbols) of text.
    """
    # Steps that are still queued are not counted into the seconds of the evaluation.
    rank.device.synchronise()
    began = rank.clock()
    network.eval()
    objective = objective_of(network.graph)
    judged, examples = objective.nothing(rank.device.torch), 0
    batch_size = max(1, min(validated_at_once(network.graph, rank.parallel.ranks), split.num_examples))
    with _probabilities_in_fp32(network):
        for batch, targets in split.sweep(batch_size, rank.parallel.rank, rank.parallel.ranks):
            with rank.device.autocast(rank.training.format):
                outputs = network(rank.device.arranged(batch))
            judged += objective.judged(outputs, targets)
            look(outputs, targets)
            examples += len(targets)
            progress()
    # The first wait for the device: until here the counts stay on it.
    found = (examples, *judged.tolist())
    whole = objective.tally(*rank.parallel.total(*found))
    own(objective.tally(*found))
    network.train()
    return whole, duration(rank.clock() - began)


@contextmanager
def _probabilities_in_fp32(network: Network) -> Iterator[None]:
    """A context in which the last product is computed in fp32 if probabilities are judged, because these
    depend on differences of logits."""
    if not objective_of(network.graph).judges_probabilities:
        yield
        return
    plan = network.plan
    *before, (head, reads, place, dead) = plan

    def exact(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(inputs[0].device.type, enabled=False):
            logits: torch.Tensor = head(*[each.float() for each in inputs])
            return logits

    network.plan = (*before, (exact, reads, place, dead))
    try:
        yield
    finally:
        network.plan = plan


class Top5:
    """Images whose label is among the five highest outputs: the figure of DAWNBench's ImageNet task."""

    def __init__(self, network: Network, device: torch.device) -> None:
        """The count stays on the device until `total` asks for it."""
        graph = network.graph
        self.counts = isinstance(graph.head, Classes) and graph.classes > FIVE
        """Whether it says something: of five classes or fewer every image is among them, and a text has no
        label."""
        self._found = torch.zeros((), dtype=torch.int64, device=device)

    def look(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Logits (n, classes) and labels (n,)."""
        if self.counts:
            self._found += (outputs.topk(FIVE, dim=1).indices == targets[:, None]).sum()

    def total(self, rank: Rank) -> int | None:
        """Over the group; every rank of it must ask."""
        return rank.parallel.total(int(self._found))[0] if self.counts else None


@torch.no_grad()
def share_statistics(rank: Rank, network: Network) -> None:
    """Makes the statistics, of batch norm and of experts, the mean of those of all ranks, each of its own
    examples.

    So every rank evaluates the same network, which is also the one that is kept. It is a collective. A rank
    alone has nothing to share.
    """
    statistics = [tensor for tensor in network.tensors().values() if not tensor.requires_grad]
    if rank.parallel.ranks == 1 or not statistics:
        return
    # One sum over the group for all of them together.
    means = rank.parallel.sum(torch.cat([tensor.flatten() for tensor in statistics])) / rank.parallel.ranks
    for tensor, mean in zip(statistics, means.split([tensor.numel() for tensor in statistics])):
        tensor.copy_(mean.view_as(tensor))
