"""How networks are trained on images: their loader and their objective."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from aiperf.data.image_files import load_images
from aiperf.data.splits import Batch
from aiperf.data.training import Numbers, Training
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.tally import Tally
from nas.frozen import frozen


@frozen
class Classification:
    """Logits (n, classes) against labels (n,): cross-entropy, and the right answers (top-1)."""

    label_smoothing: float = 0.0
    judges_probabilities: ClassVar[bool] = False

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def nothing(self, device: torch.device) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=device)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) == targets).sum().view(1)

    def tally(self, examples: int, *judged: int) -> Tally:
        return Classified(examples, *judged)

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(dim=1, keepdim=True)

    def judged_answer(self, answer: Numbers, target: Tensor) -> Numbers:
        return (int(answer[0] == int(target)),)

    def random(self, shape: tuple[int, ...], answers: int, generator: torch.Generator) -> Batch:
        images = torch.randn(shape, generator=generator)
        return images, torch.randint(answers, shape[:1], generator=generator)


TRAINING = Training(load_images, Classification)
