"""Submissions of a folder, checked and set in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from aiperf.errors import AiperfError, MissingExtra
from aiperf.wording import percent, rate
from analysis.pages.page import page
from analysis.pages.report import report_html
from analysis.readings import facts
from analysis.readings.key import num_devices
from analysis.readings.usage import read_usage
from analysis.submissions.standing import Entry, RefusedPackage, Standing, ValidRun, standing
from analysis.submissions.system import fields
from analysis.submissions.verify import Checked, Submission, checked
from analysis.table import Table

VENDORS = (
    ("NVIDIA", r"NVIDIA|Tesla|GeForce"),
    ("AMD", r"AMD|Radeon|Instinct"),
    ("Huawei", r"Ascend"),
    ("Intel", r"Intel|GAUDI"),
)
SIZES = ((8, "up to 8 devices"), (64, "9 to 64 devices"), (512, "65 to 512 devices"))
LARGEST = "more than 512 devices"


def rank(
    packages: Sequence[Path], write: Callable[[str, str], object], show: Callable[[str], object]
) -> Standing:
    """Checks one package after the other; `write` is given each page's file name and text.

    No package ends the ranking: what is wrong with it stands in `refused`.
    """
    found, refused, used = list[ValidRun](), list[RefusedPackage](), set[str]()
    for path in packages:
        show(path.name)
        try:
            with checked(path, show) as submission:
                reasons = _reasons(submission)
                for run in submission.runs:
                    if not run.valid or submission.reasons:
                        continue
                    entry = _entry(submission, run, used)
                    write(entry.page, report_html(run.judged, _aside(submission), "index.html"))
                    found.append(_found(entry, path.name, run))
                if reasons:
                    refused.append(RefusedPackage(path.name, reasons))
        except MissingExtra:  # nothing is wrong with the package
            raise
        except AiperfError as error:
            # Where it lay is of no use to the reader.
            refused.append(RefusedPackage(path.name, [str(error).replace(str(path), path.name)]))
        except Exception as error:  # a package is anybody's: it may hold what nobody has thought of
            refused.append(
                RefusedPackage(path.name, [f"it cannot be read: {type(error).__name__}: {error!s:.200}"])
            )
    made = standing(found, refused)
    write("index.html", index_html(made))
    return made


def _found(entry: Entry, package: str, run: Checked) -> ValidRun:
    replay = run.judged.replay
    images = str(replay.manifest.get("sha256"))
    return ValidRun(entry, package, f"runs/{run.name}", replay.begin_chain, replay.lines, images)


def index_html(made: Standing) -> str:
    values = {
        name: sorted({getattr(entry, name) for entry in made.entries})
        for name in ("run_class", "vendor", "precision", "size")
    }
    return page(
        "ranking.html",
        entries=made.entries,
        refused=made.refused,
        classes=len(values["run_class"]),
        filters=[
            ("class", "run_class", values["run_class"]),
            ("vendor", "vendor", values["vendor"]),
            ("precision", "precision", values["precision"]),
            ("size", "size", [size for size in _size_names() if size in values["size"]]),
        ],
        rate=rate,
        percent=percent,
    )


def _entry(submission: Submission, run: Checked, used: set[str]) -> Entry:
    replay, score = run.judged.replay, run.judged.score
    ranks = [event.ready for leg in replay.legs for event in leg.ranks]
    device = ", ".join(sorted({ready.device for ready in ranks}))
    devices = num_devices(replay)
    usage = read_usage(run.judged.files, replay)
    several = len(submission.runs) > 1
    return Entry(
        page=_page_name(
            f"{submission.system['submitter']}-{submission.system['system_name']}-{run.name}", used
        ),
        system=submission.system["system_name"] + (f" ({run.name})" if several else ""),
        submitter=submission.system["submitter"],
        run=replay.opened.run_id,
        run_class=run.judged.verdict.run_class.value if run.judged.verdict.run_class else "",
        vendor=next((name for name, pattern in VENDORS if re.search(pattern, device)), "other"),
        device=device,
        precision=replay.opened.config.training.format,
        devices=devices,
        size=next((name for most, name in SIZES if devices <= most), LARGEST),
        ops_per_second=score.ops_per_second,
        regulated_score=score.regulated_score,
        mfu=score.mfu,
        ops_per_joule=usage.ops_per_joule(score.goodput.operations),
        error=None if score.quality is None else score.quality.error,
        signed=submission.signed_by is not None,
    )


def _page_name(text: str, used: set[str]) -> str:
    """A file name of plain letters, once in the folder."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "system"
    name, number = plain, 2
    while name in used or name == "index":
        name, number = f"{plain}-{number}", number + 1
    used.add(name)
    return f"{name}.html"


def _aside(submission: Submission) -> Sequence[tuple[str, Table]]:
    """What a package knows beside the journal, for the page of its run."""
    about = [
        ["submitter", submission.system["submitter"]],
        ["contact", f"{submission.contact.person} {submission.contact.address}".strip()],
        ["organisation", submission.contact.organisation],
        ["licence", submission.licence],
        ["packed", submission.created],
        ["package", f"manifest SHA-256 {submission.manifest_sha256}"],
        ["signed", "no" if submission.signed_by is None else f"Ed25519, public key {submission.signed_by}"],
    ]
    system = [[name.replace("_", " "), submission.system[name] or "not stated"] for name in fields()]
    two = (False, False)
    return [("Submission", Table(("", ""), about, two)), ("System", Table(("", ""), system, two))]


def _reasons(submission: Submission) -> list[str]:
    found = [f"{reason.where}: {reason.text}" for reason in submission.reasons]
    for run in submission.runs:
        found += [f"{reason.where}: {reason.text}" for reason in run.reasons]
        if not (verdict := run.judged.verdict).valid:
            answer = f"{verdict.answer.value}: " if verdict.shortfall else ""
            found.append(f"runs/{run.name}: {answer}{facts.verdict_text(verdict, run.judged.validated)}")
    return found


def _size_names() -> list[str]:
    return [*(name for _, name in SIZES), LARGEST]
