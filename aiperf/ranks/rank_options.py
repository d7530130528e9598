"""The user's options for the ranks, which are known before any rank is started."""

from __future__ import annotations

from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import Assumptions
from nas.frozen import frozen

BACKENDS = ("ddp", "horovod")
SPREAD_ALONE = "--spread needs ranks on several hosts; start them with mpiexec or srun"
"""Why a process without a launcher cannot lay groups over hosts."""


@frozen
class RankOptions:
    """Options for the ranks of one leg, as the user gave them."""

    device: str = "auto"
    """Kind of device; auto: an accelerator if there is one, else the CPU."""
    devices: int = 0
    """Number of devices of this machine to use if no launcher started this process; 0: all."""
    devices_per_trial: int = 0
    """Number of devices that train one trial together; 0: as many as a host has."""
    spread: bool = False
    """Whether these devices lie on as many hosts as possible, so that every gradient crosses the fabric."""
    backend: str = "ddp"
    """How the ranks of a group average their gradients, one of `BACKENDS`."""
    silence_seconds: float = 60.0
    """Time in seconds without a message after which a group counts as lost."""
    pretend: Assumptions | None = None
    """Assumptions under which the workers only pretend to train; None: they train."""

    def __post_init__(self) -> None:
        if self.pretend and self.backend != "ddp":
            raise ConfigError(f"--pretend averages no gradients; omit --backend {self.backend}")
