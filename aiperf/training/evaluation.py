"""The network of a trial on images that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from aiperf.clock import duration
from aiperf.data import Split
from aiperf.engines.objective import PLAIN, Objective
from aiperf.tally import Tally
from aiperf.training.built_trial import Rank
from nas.modules import Network

VALIDATION_BATCH = 400  # images at once; without gradients so many fit where a training batch does


@torch.inference_mode()
def evaluate(
    rank: Rank,
    network: torch.nn.Module,
    split: Split,
    progress: Callable[[], None] = lambda: None,
    own: Callable[[Tally], None] = lambda tally: None,
    objective: Objective = PLAIN,
) -> tuple[Tally, float]:
    """What the network made of the images, and seconds; summed over the group, every image once.

    `progress` is called after each batch, `own` with the tally of this rank alone.
    """
    rank.device.synchronise()
    began = perf_counter()
    network.eval()
    judged, images_seen = objective.nothing(rank.device.torch), 0
    batch_size = max(1, min(VALIDATION_BATCH, split.num_images))
    for images, labels in split.sweep(batch_size, rank.parallel.rank, rank.parallel.ranks):
        with rank.device.autocast(rank.training.format):
            logits = network(images)
        judged += objective.judged(logits, labels)
        images_seen += len(labels)
        progress()
    found = objective.tally(images_seen, judged)
    own(found)
    whole = type(found)(*rank.parallel.total(*found.numbers))
    network.train()
    return whole, duration(perf_counter() - began)


@torch.no_grad()
def share_statistics(rank: Rank, network: Network) -> None:
    """Makes the running statistics of batch norm the mean of those of all ranks, each of its own images.

    So every rank evaluates the same network, which is also the one that is kept.
    """
    statistics = [tensor for tensor in network.tensors().values() if not tensor.requires_grad]
    if rank.parallel.ranks == 1 or not statistics:
        return
    means = rank.parallel.sum(torch.cat([tensor.flatten() for tensor in statistics])) / rank.parallel.ranks
    for tensor, mean in zip(statistics, means.split([tensor.numel() for tensor in statistics])):
        tensor.copy_(mean.view_as(tensor))
