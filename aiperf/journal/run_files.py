"""The names of all files in a run directory, each defined once."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import field
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.journal.names import hidden, salt_of
from aiperf.os_error import unreadable
from nas.frozen import frozen

RUNS = Path("runs")
"""Where the directories of runs are made, in the folder in which the command is typed."""


@frozen
class RunFiles:
    """Paths of a run directory, `runs/<run-id>/`, and of its files."""

    directory: Path
    salt: str = field(default="", compare=False, kw_only=True)
    """The salt of the run, where its private file may be out of reach, as on another host; else empty."""

    @property
    def journal(self) -> Path:
        return self.directory / "journal.jsonl"

    @property
    def private(self) -> Path:
        """The names that the journal hides (`aiperf.journal.names`), for its owner only."""
        return self.directory / "private.jsonl"

    @property
    def config(self) -> Path:
        return self.directory / "config.toml"

    @property
    def assumptions(self) -> Path:
        """Assumptions of a run that was pretended or simulated, so that it can be repeated."""
        return self.directory / "assumptions.toml"

    @property
    def lock(self) -> Path:
        """Lock that the master holds while it writes the journal."""
        return self.directory / "lock"

    @property
    def probe(self) -> Path:
        """File that the master writes at the start of a leg; a rank that can read it shares the directory."""
        return self.directory / "probe"

    @property
    def socket_address(self) -> Path:
        """Address of the socket of the master in a run under NNI, for the processes that NNI starts."""
        return self.directory / "socket"

    @property
    def weights_directory(self) -> Path:
        return self.directory / "weights"

    def weights(self, trial: int) -> Path:
        """Weights, statistics, optimizer state and architecture of the trial's best validation."""
        return self.weights_directory / f"{trial}.safetensors"

    def kept_weights(self) -> list[Path]:
        """Files of kept weights that exist; other files in the folder are not ours."""
        found = self.weights_directory.glob("*.safetensors")
        return [path for path in found if path.stem.isdecimal()]

    def spot_weights(self, trial: int) -> Path:
        """The same file, kept for a spot check of the trial (`aiperf.journal.spot_checks`)."""
        return self.weights_directory / f"{trial}.spot.safetensors"

    def spot_checked(self) -> list[int]:
        """The trials with a file for a spot check."""
        names = (path.name.partition(".")[0] for path in self.weights_directory.glob("*.spot.safetensors"))
        return sorted(int(name) for name in names if name.isdecimal())

    def drop_weights_but(self, needed: Container[int]) -> None:
        """Removes the weights of all trials except those in `needed`, which a child or the test will read."""
        for path in self.kept_weights():
            if int(path.stem) not in needed:
                path.unlink(missing_ok=True)

    def drop_weights(self, trials: Iterable[int]) -> None:
        """Removes the weights of these trials, if they exist."""
        for trial in trials:
            self.weights(trial).unlink(missing_ok=True)

    @property
    def telemetry_directory(self) -> Path:
        return self.directory / "telemetry"

    def telemetry(self, host: str) -> Path:
        """What a host measured; the file is named as the host is in the journal, so that it can be
        published."""
        return self.telemetry_directory / f"{self._published(host)}.jsonl"

    def power(self, level: str) -> Path:
        """What the site's own meters measured of the nodes, L1, or of the whole machine, L2."""
        return self.directory / "power" / f"{level}.csv"

    @property
    def logs_directory(self) -> Path:
        return self.directory / "logs"

    @property
    def before_the_clock(self) -> tuple[Path, ...]:
        """Files and folders that may be written before the first trial begins, and are removed if the run is
        refused."""
        files = (self.journal, self.private, self.config, self.assumptions, self.lock, self.probe)
        folders = (self.logs_directory, self.weights_directory, self.telemetry_directory)
        return (*files, *folders, self.notary_directory)

    def log(self, host: str, rank: int | None = None) -> Path:
        """Output of the workers of a host; with `rank`, that of one worker, for runs with few ranks."""
        return self.logs_directory / (_named(host) + (".log" if rank is None else f".rank{rank}.log"))

    def witness(self, host: str, rank: int) -> Path:
        """Log of one rank's steps, which it writes itself before it reports them; named as `telemetry`."""
        return self.logs_directory / f"{self._published(host)}.rank{rank}.steps.jsonl"

    def hidden(self, kind: str, name: str) -> str:
        """The name of a host or a device in the journal: itself, if the journal hides none."""
        return hidden(self.salt or salt_of(self.private, self.journal), kind, name)

    def _published(self, host: str) -> str:
        return _named(self.hidden("host", host))

    def witnesses(self) -> list[Path]:
        """All logs of ranks that exist, whoever wrote them."""
        return list(self.directory.glob("logs/*.steps.jsonl"))

    @property
    def notary_directory(self) -> Path:
        """What a run and a notary exchange (`aiperf.journal.notary`)."""
        return self.directory / "notary"

    def notary_request(self, leg: int) -> Path:
        """What a leg asks of the notary; the run replaces it."""
        return self.notary_directory / f"{leg}.request.json"

    def notary_answers(self, leg: int) -> Path:
        """What the notary signed for a leg; the notary replaces it."""
        return self.notary_directory / f"{leg}.answers.jsonl"

    @property
    def inference_directory(self) -> Path:
        """Results of `infer`: for each trial and scenario a file, and a folder with LoadGen's logs."""
        return self.directory / "inference"

    def inference(self, trial: int, scenario: str) -> Path:
        return self.inference_directory / f"{trial}-{scenario}.json"

    def inference_logs(self, trial: int, scenario: str) -> Path:
        """Folders `performance`, `accuracy` and one for each rate of a search; user.conf; telemetry."""
        return self.inference_directory / f"{trial}-{scenario}"

    @property
    def report(self) -> Path:
        return self.directory / "report.html"

    @property
    def figures(self) -> Path:
        """Folder of the report's figures, one file each."""
        return self.directory / "figures"

    @property
    def result(self) -> Path:
        """The result in the form of its published schema."""
        return self.directory / "result.json"


def _named(host: str) -> str:
    """A host's name as part of a file name. A journal from elsewhere may contain any text as a host's name,
    which must not lead to files outside the run directory."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", host)[:120]


def run_directories(directory: Path) -> list[Path]:
    """The run directories in a directory, sorted by name. Raises AiperfError if it cannot be read."""
    try:
        return sorted(path for path in directory.iterdir() if RunFiles(path).journal.is_file())
    except OSError as error:
        otherwise = "give a directory that holds runs, or start one: aiperf-hpc run"
        raise AiperfError(unreadable(error, directory, otherwise)) from None
