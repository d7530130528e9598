"""What is measured, in this order, and about how long each part takes. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
COMPILED = "compiled"
"""The engine that takes minutes to be ready: it has parts of its own."""
SAYING_SECONDS = 15.0
"""Time for a part to begin, and to say that there is nothing to measure."""


@dataclass(frozen=True)
class Setting:
    """What every part is given."""

    kind: str
    """Kind of the device, as torch names it."""
    folder: Path
    span_seconds: float
    """Length of the span of each run."""
    devices: int = 1
    """Number of those that are visible."""

    @property
    def is_small(self) -> bool:
        """A processor would need minutes where an accelerator needs seconds: sizes are smaller there."""
        return self.kind == "cpu"

    def sized(self, full: T, small: T) -> T:
        """The value for an accelerator, or the one for a processor."""
        return small if self.is_small else full

    def run(self, name: str) -> Path:
        """The directory of a run."""
        return self.folder / "runs" / name

    def saved(self, part: str) -> Path:
        """File with what the process of a part has found so far."""
        return self.folder / "logs" / f"{part}.json"


@dataclass(frozen=True)
class Part:
    """One part: a function of a module of this package gives its figures, for the setting and these words."""

    name: str
    title: str
    module: str
    seconds: tuple[float, float]
    """Expected time without the spans of runs: on an accelerator, on a CPU."""
    words: tuple[str, ...] = ()
    spans: int = 0
    """Number of runs in it, each with a span."""
    after: str = ""
    """The part whose run it reads."""
    function: str = "measure"
    is_of_several: bool = False
    """Whether it needs several devices, and with one only says so; processors pretend to be several."""

    def needs(self, setting: Setting) -> float:
        """Seconds that it is expected to take."""
        if self.is_of_several and setting.devices == 1 and not setting.is_small:
            return SAYING_SECONDS
        return self.seconds[setting.is_small] + self.spans * setting.span_seconds


def part_of(engine: str) -> str:
    """Name of the part that compares an engine with the eager one."""
    return f"engines-{engine}"


def _engine(name: str, *seconds: float) -> Part:
    title = f"Conformance: {name} steps are the eager ones"
    return Part(part_of(name), title, "engines", (seconds[0], seconds[1]), (name,))


def _run(preset: str) -> Part:
    """The part that makes a run of a preset."""
    return Part(run_of(preset), f"Run: {preset}, --step auto", "runs", (120.0, 45.0), (preset,), spans=1)


def run_of(preset: str) -> str:
    """Name of the run of a preset, and of the part that makes it."""
    return f"{preset}-auto"


def _overhead(preset: str) -> Part:
    """The part that compares such a run with bare loops."""
    run = run_of(preset)
    title = f"Overhead: {preset}, against the bare loop"
    return Part(f"overhead-{preset}", title, "loops", (100.0, 40.0), (run,), after=run)


# What shows most in the least time comes first, because a machine may be there for a few minutes only: what
# is wrong before what is slow, the engines before what uses them, the control before its variants, runs after
# what can be asked without them, and what compiles for minutes last. Together they are to fit into 40 minutes
# of an accelerator. So no engine has a run of its own: the parts of the engines and `control` show whether it
# is right and fast, and the runs with `auto` which one is chosen.
PARTS = (
    Part("machine", "Machine", "machine", (20.0, 10.0)),
    _engine("graphed", 30.0, 10.0),
    _engine("fused", 60.0, 40.0),
    _engine("fused-graphed", 45.0, 10.0),
    Part("control", "Control: ResNet-50 v1.5", "control", (80.0, 90.0)),
    Part("count", "Count of operations, conversions of layout", "counting", (40.0, 30.0)),
    Part("memory-errors", "Forced lack of memory, invalid captures", "out_of_memory", (45.0, 10.0)),
    Part("replays", "Memory of thousands of steps, and of many trials", "replays", (70.0, 30.0)),
    Part("choices", "Format, layout and autotuning", "choices", (70.0, 30.0)),
    Part("batches", "Sizes of the batch", "choices", (100.0, 40.0), function="measure_sizes"),
    Part("inputs", "Training from JPEG and packed images", "inputs", (90.0, 20.0)),
    Part("unfused", "What fused steps leave to torch", "unfused", (30.0, 5.0)),
    Part("sensors", "Sensors and energy", "sensors", (45.0, 15.0)),
    Part("formats", "Conformance: formats of multiplications", "number_formats", (20.0, 10.0)),
    Part("group", "Conformance: trials in DDP of one rank", "group", (75.0, 30.0), ("one",)),
    Part("groups", "Groups of all devices", "group", (120.0, 60.0), ("all",), is_of_several=True),
    Part("places", "Another device, by UUID, on a slice", "places", (75.0, 15.0)),
    Part("peak", "Ceilings against the list of peaks", "ceilings", (60.0, 20.0)),
    _run("digits"),
    _run("synthetic"),
    _overhead("digits"),
    _overhead("synthetic"),
    Part("memory", "Memory of a training step", "memory", (90.0, 20.0)),
    _engine(COMPILED, 150.0, 120.0),
    Part("control-compiled", "Control: compiled steps", "control", (150.0, 10.0), (COMPILED,)),
    Part("scatter", "Rates of grown networks", "scatter", (150.0, 20.0)),
    Part("tests", "Conformance: doctor and tests", "suite", (90.0, 60.0)),
)
IDENTITY = Part("identity", "Identity", "", (30.0, 15.0))
"""Not on the page: every call begins with it, because figures of two machines must not be in one folder."""
BY_NAME: Mapping[str, Part] = {part.name: part for part in PARTS}
