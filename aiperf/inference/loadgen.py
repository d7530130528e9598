"""Tests of one network in one scenario by LoadGen, each with its logs in a separate folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from aiperf.data.training import Numbers
from aiperf.errors import AiperfError, MissingExtra
from aiperf.inference.systems import SampleLibrary, System
from aiperf.scenarios.scenario import Scenario, user_conf
from nas.bounded import read_text

MODEL = "aiperf-hpc"
"""Name of the model for LoadGen. It is none of those in LoadGen's built-in configuration, so the settings
that apply to all models hold."""
NUMBER_BYTES = 8
"""Bytes of a number in an answer: an int64 of torch."""


def load_loadgen() -> ModuleType:
    """LoadGen's Python module. Raises MissingExtra if it is not installed."""
    try:
        import mlperf_loadgen
    except ModuleNotFoundError:
        raise MissingExtra("mlperf_loadgen", "infer") from None
    found: ModuleType = mlperf_loadgen
    return found


class Bench:
    """Runs the tests of one scenario. A process must have only one, because LoadGen reads its built-in
    configuration at the first call only."""

    def __init__(
        self, loadgen: Any, scenario: Scenario, folder: Path, library: SampleLibrary, seconds: float
    ) -> None:
        """Writes `user.conf` into the folder. Raises AiperfError if LoadGen does not accept it."""
        self.loadgen, self.scenario, self.folder = loadgen, scenario, folder
        self.settings = loadgen.TestSettings()
        conf = folder / "user.conf"
        conf.write_text(user_conf(scenario, seconds, library.total, library.loadable), encoding="utf-8")
        if code := self.settings.FromConfig(str(conf), MODEL, scenario.loadgen):
            raise AiperfError(f"LoadGen does not take {conf}: error {code}")
        self.settings.scenario = getattr(loadgen.TestScenario, scenario.loadgen)
        self.library = library

    def test(self, system: System, name: str, accuracy: bool = False) -> Path:
        """Runs one test with the current settings, and returns the folder of its logs. Our own latencies are
        in `system.seconds`."""
        logs = self.folder / name
        logs.mkdir(parents=True)
        mode = self.loadgen.TestMode
        self.settings.mode = mode.AccuracyOnly if accuracy else mode.PerformanceOnly
        log = self.loadgen.LogSettings()
        log.log_output.outdir = str(logs)
        log.log_output.copy_summary_to_stdout = False
        log.enable_trace = False
        system.start()
        with self._constructed(system) as (sut, qsl), system.computing():
            # A path that does not exist: otherwise LoadGen would read settings from a file `audit.config` in
            # the current folder.
            no_audit = str(logs / "audit.config")
            self.loadgen.StartTestWithLogSettings(sut, qsl, self.settings, log, no_audit)
        return logs

    @contextmanager
    def _constructed(self, system: System) -> Iterator[tuple[int, int]]:
        """A context with the handles of the system and the library, which LoadGen must be asked to
        destroy."""
        library = self.library
        sut = self.loadgen.ConstructFastSUT(system.issue, lambda: None)
        qsl = self.loadgen.ConstructQSL(library.total, library.loadable, library.load, library.unload)
        try:
            yield sut, qsl
        finally:
            self.loadgen.DestroyQSL(qsl)
            self.loadgen.DestroyFastSUT(sut)


def detail_log(logs: Path) -> Path:
    """LoadGen's verdict in the folder of a test's logs; the name is LoadGen's own."""
    return logs / "mlperf_log_detail.txt"


LARGEST_LOG = 4 << 30
"""Largest log of answers in bytes; that of ImageNet's 50,000 images has 8 MB."""


def logged_answers(logs: Path) -> dict[int, Numbers]:
    """The answers in the log of an accuracy test, by sample. MultiStream fills its last query with samples
    that were answered before, so a sample may be logged twice.

    Raises AiperfError if the log cannot be read.
    """
    path = logs / "mlperf_log_accuracy.json"
    try:
        entries = json.loads(read_text(path, LARGEST_LOG))
        return {entry["qsl_idx"]: _numbers(bytes.fromhex(entry["data"])) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise AiperfError(f"{path} is not LoadGen's log of answers: {error}") from None


def _numbers(data: bytes) -> Numbers:
    """The numbers of one answer, as the host wrote them: 8 bytes each, with sign."""
    pieces = (data[start : start + NUMBER_BYTES] for start in range(0, len(data), NUMBER_BYTES))
    return tuple(int.from_bytes(piece, "little", signed=True) for piece in pieces)
