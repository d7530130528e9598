"""What `infer` found on a network of a run: kept next to the journal, one file per trial and scenario."""

from __future__ import annotations

import json
from dataclasses import dataclass

from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.journal import strict
from aiperf.journal.replay import Replay
from aiperf.scenarios.exchange import TELEMETRY, Measured
from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.scenario import RULE_SECONDS, SCENARIOS, Scenario
from aiperf.tasks.registry import task_of
from analysis.readings.limits import limits_of
from analysis.readings.usage import use_over
from launch.price import Price
from nas.bounded import read_bytes
from nas.record import RecordError, decode, encode

FORM = "aiperf-hpc/inference/1"
SINGLE, MULTI = "single-stream", "multi-stream"
DAWNBENCH_IMAGES = 10_000
"""Number of images for which DAWNBench states latency and cost (Coleman et al., 2017)."""


@dataclass(frozen=True)
class Inference:
    """One network in one scenario."""

    run_id: str
    begin_chain: str
    """Hash of the line that began the run's first leg: it tells the run from all others."""
    trial: int
    example: str
    """What a sample is: "image", or "window" of a text."""
    scenario: str
    measured: Measured
    joules: float | None
    """Energy of the device over the test; None: not known."""
    ceiling_ops_per_second: float | None
    """Ceiling of matrix products that the run measured on such a device in this format; None if it did
    not."""
    form: str = FORM

    @property
    def of(self) -> Scenario:
        return SCENARIOS[self.scenario]

    @property
    def is_short(self) -> bool:
        return self.measured.test_seconds < RULE_SECONDS

    @property
    def latency_seconds(self) -> float | None:
        """The percentile that the scenario is about, by LoadGen."""
        return self._percentile(self.measured.detail.latencies if self.measured.detail else None)

    @property
    def stopwatch_seconds(self) -> float | None:
        """The same by our own stopwatch."""
        return self._percentile(self.measured.stopwatch)

    @property
    def joules_per_sample(self) -> float | None:
        detail = self.measured.detail
        if detail is None or self.joules is None:
            return None
        samples = detail.latencies.number * (self.of.samples_per_query if self.scenario == MULTI else 1)
        return self.joules / samples

    @property
    def share_of_ceiling(self) -> float | None:
        """Tensor operations of the answered samples per second, as a share of the ceiling; None if
        unknown."""
        detail, ceiling = self.measured.detail, self.ceiling_ops_per_second
        if detail is None or ceiling is None:
            return None
        return detail.samples_per_second * self.measured.tensor_ops / ceiling

    @property
    def dawnbench_seconds(self) -> float | None:
        """Seconds for DAWNBench's 10,000 images, one at a time; None without the accuracy pass of
        `single-stream`."""
        accuracy = self.measured.accuracy
        if accuracy is None or self.scenario != SINGLE:
            return None
        return DAWNBENCH_IMAGES * accuracy.latencies.mean

    def dawnbench_cost(self, price: Price) -> float | None:
        """Cost of those images on one node that does nothing else; None if their time is not known."""
        seconds = self.dawnbench_seconds
        return None if seconds is None else price.money(seconds / 3600)

    def _percentile(self, latencies: Latencies | None) -> float | None:
        if latencies is None or self.of.percentile is None:
            return None
        return latencies.percentiles[self.of.percentile]


def found(files: RunFiles, replay: Replay, trial: int, scenario: str, measured: Measured) -> Inference:
    """The measurement with the energy that the sensors recorded and the ceiling that the run measured."""
    file, limits = files.inference_logs(trial, scenario) / TELEMETRY, limits_of(replay)
    alike = limits is not None and (limits.device, limits.format) == (measured.device, measured.format)
    return Inference(
        run_id=replay.opened.run_id,
        begin_chain=replay.begin_chain,
        trial=trial,
        example=task_of(replay.opened.config.data).example,
        scenario=scenario,
        measured=measured,
        joules=use_over(file, measured.device_id, measured.span).joules if measured.device_id else None,
        ceiling_ops_per_second=limits.ops_per_second if limits is not None and alike else None,
    )


def save(files: RunFiles, inference: Inference) -> None:
    """Raises OSError where the directory cannot be written."""
    text = json.dumps(encode(inference), indent=1) + "\n"
    path = files.inference(inference.trial, inference.scenario)
    new = path.with_suffix(".new")  # an earlier one stays whole, should the disk be full
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def load_all(files: RunFiles, replay: Replay) -> list[Inference]:
    """The results on networks of this run, by trial and in the order of the scenarios.

    Raises AiperfError for a file that is damaged, or of another run.
    """
    loaded = []
    for path in files.inference_directory.glob("*.json"):
        try:
            inference = decode(Inference, strict.parsed(read_bytes(path)))
        except (OSError, ValueError, RecordError, RecursionError) as error:
            raise AiperfError(f"{path} is not an output of `infer` ({error}); remove it") from None
        if inference.begin_chain != replay.begin_chain or inference.scenario not in SCENARIOS:
            raise AiperfError(f"{path} is of another run; remove it")
        loaded.append(inference)
    order = list(SCENARIOS)
    return sorted(loaded, key=lambda each: (each.trial, order.index(each.scenario)))
