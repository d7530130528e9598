"""Runs of somebody else's, changed by a thief in many ways, and packed as his own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.journal.run_files import RunFiles
from analysis.submissions.keys import Register
from analysis.submissions.signature import make_key
from analysis.submissions.standing import Standing
from tests.analysis.packages import make, ranked
from tests.journals import CIFAR, Machine, resized, write_run

Record = dict[str, Any]
Theft = Callable[[list[Record]], list[Record]]
SITE, OWNER = "University A", "Department A"
"""The name in the register, and in the package."""


class Bench:
    """Two runs of one machine with one seed, three sites with keys, and packages of what a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.run, self.second = (self.honest(name, seed) for name, seed in (("first", 1), ("second", 2)))
        self.public = {name: make_key(folder / name) for name in ("a.key", "b.key", "fresh.key")}
        self.register: Register = {self.public["a.key"]: SITE, self.public["b.key"]: "Site B"}
        self.original = self.package("original", self.run, "a.key", OWNER)
        self.unsigned = self.package("unsigned", self.run, "", OWNER)

    def honest(self, name: str, seed: int) -> RunFiles:
        """No two steps take the same time on a real machine, as they do on a simulated one."""
        run = write_run(self.folder / name, resized(CIFAR, 0.4), Machine(groups=2, random_seed=seed))
        records = [json.loads(line) for line in run.journal.read_text().splitlines()]
        run.journal.write_text(rechained(each(noise(seed), "Stepped", "Closed")(records)))
        return run

    def package(self, name: str, run: RunFiles, key: str = "", submitter: str = "Thief") -> Path:
        path = self.folder / f"{name}.tar.gz"
        path.unlink(missing_ok=True)
        return make(path, run, key=self.folder / key if key else None, submitter=submitter)

    def stolen(self, theft: Theft, run: RunFiles | None = None) -> RunFiles:
        """A journal rewritten, its chain computed again."""
        records = [json.loads(line) for line in (run or self.run).journal.read_text().splitlines()]
        self.count += 1
        files = RunFiles(self.folder / f"stolen-{self.count}")
        files.directory.mkdir()
        files.journal.write_text(rechained(theft(records)))
        return files

    def ranked(self, *packages: Path, register: Register | None = None) -> Standing:
        return ranked(*packages, register=self.register if register is None else register)[0]


def rechained(records: list[Record]) -> str:
    chain, lines = "", []
    for record in records:
        text = json.dumps({k: v for k, v in record.items() if k != "chain"}, separators=(",", ":"))
        chain = sha256((chain + text).encode()).hexdigest()
        lines.append(f'{text[:-1]},"chain":"{chain}"}}\n')
    return "".join(lines)


def each(change: Callable[[Record, random.Random], object], *kinds: str) -> Theft:
    def theft(records: list[Record]) -> list[Record]:
        rng = random.Random(7)
        for record in records:
            if not kinds or record["type"] in kinds:
                change(record, rng)
        return records

    return theft


def timed(record: Record) -> Record:
    """What of a line holds seconds."""
    found: Record = record.get("block") or record.get("segment") or {}
    return found


def scale(by: Callable[[random.Random], float]) -> Theft:
    def change(record: Record, rng: random.Random) -> None:
        for name, value in timed(record).items():
            if name.endswith("seconds"):
                timed(record)[name] = value * by(rng)

    return each(change, "Stepped", "Closed")


def noise(seed: int) -> Callable[[Record, random.Random], object]:
    """Noise on the seconds, the same in a segment's blocks and in its validation."""

    def change(record: Record, rng: random.Random) -> None:
        work = timed(record)
        place = work["trial"], work["attempt"], work.get("segment", work.get("index"))
        shaken = random.Random(f"{seed} {place}")
        training, validating = (1 - 2e-3 * shaken.random() for _ in range(2))
        for name in ("seconds", "train_seconds", "validate_seconds"):
            if name in work:
                work[name] *= validating if name == "validate_seconds" else training

    return change


def shift(record: Record, rng: random.Random) -> None:
    for name in ("end", "t", "deadline"):
        if record.get(name) is not None:
            record[name] += 0.0101


def rename(record: Record, rng: random.Random) -> None:
    """Hosts, run, date and command."""
    for part in (record.get("ready"), record.get("control")):
        if part is not None:
            part["host"] = part["host"].replace("node", "thief")
    if record["type"] == "Opened":
        record["run_id"] = "mine"
    if record["type"] == "LegBegan":
        record["command"], record["started"] = ["mine"], "2026-11-01T00:00:00+00:00"


def invent(record: Record, rng: random.Random) -> None:
    """Controls and clocks."""
    if record["type"] == "ControlMeasured":
        rate = rng.gauss(2400, 10)
        record["control"] |= {"seconds": 25600 / rate, "examples_per_second": rate}
    if record["type"] == "RankReady":
        record["clock_offset_seconds"] = rng.gauss(0, 2e-3)


def some(record: Record, rng: random.Random) -> None:
    if rng.random() < 0.5:
        for name in ("seconds", "train_seconds", "validate_seconds"):
            if name in timed(record):
                timed(record)[name] *= 0.999


def six_digits(record: Record, rng: random.Random) -> None:
    for name in timed(record):
        if name.endswith("seconds"):
            timed(record)[name] = float(f"{timed(record)[name]:.7g}")
    if "end" in record:
        record["end"] = round(record["end"], 6)


def rounded(digits: int) -> Theft:
    """All times of a line, controls and clocks too."""

    def change(record: Record, rng: random.Random) -> None:
        for part in (record, *(value for value in record.values() if isinstance(value, dict))):
            for name, value in part.items():
                if isinstance(value, float):
                    part[name] = float(f"{value:.{digits}g}")

    return each(change)


def halves(records: list[Record]) -> list[Record]:
    """Each block told as two."""
    found = []
    for record in records:
        block = record.get("block", {})
        if block.get("steps", 0) < 2:
            found.append(record)
            continue
        steps, seconds = block["steps"], block["seconds"]
        begin, done = record["end"] - seconds, 0
        for until in (steps // 2, steps):
            part = {name: block[name] * (until - done) / steps for name in ("examples", "seconds")}
            part |= {"steps": until - done, "examples": int(part["examples"])}
            found.append({**record, "block": {**block, **part}, "end": begin + seconds * until / steps})
            done = until
    return found


def all_of(*thefts: Theft) -> Theft:
    def theft(records: list[Record]) -> list[Record]:
        for one in thefts:
            records = one(records)
        return records

    return theft


DISGUISES, INVENTED = each(rename), each(invent)


def stretch(by: Callable[[Record], float]) -> Theft:
    """All times of a line, after the start of the clock too."""

    def change(record: Record, rng: random.Random) -> None:
        factor = by(record)
        for part in (record, *(value for value in record.values() if isinstance(value, dict))):
            for name, value in part.items():
                if name in ("t", "end", "deadline") or (name.endswith("seconds") and "ages" not in name):
                    part[name] = value * factor if isinstance(value, float) else value

    return each(change)


def hide(records: list[Record]) -> list[Record]:
    """The run's figures among invented ones."""
    rng = random.Random(7)
    for record in records:
        if record["type"] == "RankReady":
            record["ready"]["formats"] = {f"f{number}": rng.random() for number in range(4_000)}
    return records


THEFTS: dict[str, Theft] = {
    "figures before the span hidden among invented ones": all_of(
        hide, lambda records: records[:20], DISGUISES
    ),
    "every time stretched, controls and clocks invented": all_of(stretch(lambda record: 1.003), INVENTED),
    "every trial stretched, controls and clocks invented": all_of(
        stretch(lambda record: 1 + timed(record).get("trial", 0) / 1e4), each(shift), INVENTED
    ),
    "500 Beats more": lambda records: [*records, *[{"t": records[-1]["t"], "type": "Beat"}] * 500],
    "the last line cut": lambda records: records[:-1],
    "the second half cut": lambda records: records[: len(records) // 2],
    "hosts, run, date and command renamed": DISGUISES,
    "Beats taken out": lambda records: [record for record in records if record["type"] != "Beat"],
    "half of all seconds another": all_of(DISGUISES, each(some, "Stepped", "Closed")),
    "all seconds shaken a little": all_of(DISGUISES, scale(lambda rng: 1 + 1e-7 * rng.random())),
    "all seconds rounded": all_of(DISGUISES, each(six_digits, "Stepped", "Closed")),
    **{f"all figures rounded to {digits} digits": all_of(DISGUISES, rounded(digits)) for digits in (3, 4)},
    "all seconds scaled, controls and clocks invented": all_of(scale(lambda rng: 0.998), INVENTED),
    "clock shifted, controls and clocks invented": all_of(DISGUISES, each(shift), INVENTED),
    "blocks split, clock shifted, controls and clocks invented": all_of(
        DISGUISES, halves, each(shift), INVENTED
    ),
}
