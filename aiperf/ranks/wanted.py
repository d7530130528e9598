"""What a person asks of the ranks: known before any of them is started."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import Assumptions

BACKENDS = ("ddp", "horovod")


@dataclass(frozen=True)
class Wanted:
    """How a person wants the ranks of this leg to work."""

    device: str = "auto"
    """A kind; auto is an accelerator where there is one."""
    devices: int = 0
    """Of this machine, when no launcher started this process; 0: all."""
    devices_per_trial: int = 0
    """0: all of a host."""
    backend: str = "ddp"
    silence_seconds: float = 60.0
    """After so long without a word a group is lost."""
    pretend: Assumptions | None = None
    """By which the ranks pretend to train; None: they train."""

    def __post_init__(self) -> None:
        if self.pretend and self.backend != "ddp":
            raise ConfigError(f"--pretend averages no gradients; omit --backend {self.backend}")
