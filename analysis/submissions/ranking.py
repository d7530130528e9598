"""Submissions of a folder, checked and set in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from aiperf.errors import AiperfError, MissingExtra
from aiperf.hardware.peak import Peak
from aiperf.rules.ending import Answer
from aiperf.score.fabric import fabric_of
from aiperf.tasks.images.known_sets import unpacked
from aiperf.wording import rate, rates
from analysis.comparing.comparability import kind_key, own_seed_sha256
from analysis.pages.report import report_html
from analysis.pages.report_head import About
from analysis.readings import run_tables
from analysis.readings.energy import Level, energy_at, read_energy
from analysis.readings.fabric import largest
from analysis.readings.hosts import control_reading
from analysis.readings.score_figures import figures, num_devices, task_of_run
from analysis.submissions.fingerprint import measured
from analysis.submissions.keys import Register, claimed_site
from analysis.submissions.notarisation import Notarised, notarised
from analysis.submissions.ranking_page import LARGEST, SIZES, index_html, listing_csv, listing_json
from analysis.submissions.standing import Entry, RefusedPackage, Right, Signer, Standing, ValidRun, standing
from analysis.submissions.system import fields
from analysis.submissions.verify import NO_PEAKS, Checked, Findings, Submission, checked
from analysis.table import Table
from nas.frozen import frozen

VENDORS = (
    ("NVIDIA", r"NVIDIA|Tesla|GeForce"),
    ("AMD", r"AMD|Radeon|Instinct"),
    ("Huawei", r"Ascend"),
    ("Intel", r"Intel|GAUDI"),
)
"""Makers for the filter of the page, each with a pattern of the names that their drivers report. A device of
another maker is listed like any other; only the filter has no word for it."""


@frozen
class Notaries:
    """The notaries that a list knows."""

    register: Register
    is_required: bool
    """Whether a run that none of them signed up to its test is refused."""


def rank(
    packages: Sequence[Path],
    register: Register,
    write: Callable[[str, str], object],
    show: Callable[[str], object],
    runs: int = 1,
    peaks: Mapping[str, Peak] = NO_PEAKS,
    notaries: Notaries | None = None,
) -> Standing:
    """Checks one package after the other; `write` is given each file's name and text. `peaks`: devices that
    the list adds. `notaries`: None for a list that asks for none.

    `register`: the sites that are known by their keys. `runs`: as `standing` takes it. No package ends the
    ranking: what is wrong with it stands in `refused`.
    """
    found, refused, used, findings = list[ValidRun](), list[RefusedPackage](), set[str](), Findings()
    for path in packages:
        show(path.name)
        try:
            # Unpacked into a folder of its own, which is gone before the next: packages may be large, and
            # many.
            with checked(path, show, peaks, findings) as submission:
                signer = _signer(submission, register)
                reasons = _reasons(submission, signer, register)
                for run in submission.runs:
                    if not run.valid or submission.reasons or _borrowed_name(submission, signer, register):
                        continue
                    files, replay, held = run.judged.files, run.judged.replay, None
                    if notaries is not None:
                        held = notarised(files, replay, notaries.register)
                    entry = _entry(submission, signer, run, used, held)
                    write(entry.page, _page(submission, run, entry))
                    where, figures = (path.name, f"runs/{run.name}"), measured(replay)
                    valid = ValidRun(entry, *where, replay.lines, figures, kind_key(run.judged))
                    if notaries and held and notaries.is_required and not held.is_whole:
                        refused.append(valid.refused(held.text))
                    else:
                        found.append(valid)
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
    # Places depend on all runs, pages on one: so pages are written on the way, and the lists at the end.
    made = standing(found, refused, runs)
    at = {one.entry.page: one for one in found}
    for entry in made.entries:
        if entry.others:  # which are known only now
            path = next(path for path in packages if path.name == at[entry.page].package)
            with checked(path, show, peaks, findings) as submission:
                run = next(run for run in submission.runs if f"runs/{run.name}" == at[entry.page].run)
                write(entry.page, _page(submission, run, entry))
    write("index.html", index_html(made))
    write("ranking.csv", listing_csv(made))
    write("ranking.json", listing_json(made))
    return made


def _signer(submission: Submission, register: Register) -> Signer:
    """Who signed a package. An unsigned one is a party of its own, by the hash of its manifest."""
    key = submission.signed_by
    if key is None:
        return Signer(Right.UNSIGNED, f"package {submission.manifest_sha256}", "")
    if key in register:
        return Signer(Right.REGISTERED, f"site {register[key]}", register[key])
    return Signer(Right.SIGNED, f"key {key}", key)


def _entry(
    submission: Submission, signer: Signer, run: Checked, used: set[str], held: Notarised | None
) -> Entry:
    """The row of a valid run. `used`: names of pages that are taken; `held`: how far it is notarised."""
    replay, score, system = run.judged.replay, run.judged.score, submission.system
    ranks = [event.ready for leg in replay.counted_legs for event in leg.ranks]
    device = ", ".join(sorted({ready.device for ready in ranks}))
    devices = num_devices(replay)
    energy = read_energy(run.judged.files, replay)
    per_joule = [energy_at(level, energy).ops_per_joule(score.goodput.operations) for level in Level]
    several, control = len(submission.runs) > 1, control_reading(replay)
    fabric = fabric_of(replay)
    summed = None if fabric is None else largest(fabric)
    return Entry(
        page=_page_name(f"{system['submitter']}-{system['system_name']}-{run.name}", used),
        machine=system["system_name"],
        system=system["system_name"] + (f" ({run.name})" if several else ""),
        submitter=system["submitter"],
        run=replay.opened.run_id,
        date=replay.legs[0].began.started,
        run_class=run.judged.verdict.class_text,
        division=system["division"],
        task=task_of_run(replay),
        data=unpacked(replay.manifest) if replay.manifest else replay.opened.config.data.name,
        seed_sha256=own_seed_sha256(run.judged),
        packed=run_tables.packed_text(replay),
        data_sha256=str(replay.manifest.get("sha256", "")),
        vendor=next((name for name, pattern in VENDORS if re.search(pattern, device)), "other"),
        device=device,
        precision=replay.opened.config.training.format,
        search=replay.opened.config.search.name,
        nodes=len({ready.host for ready in ranks}),
        devices=devices,
        nodes_of_a_group=run_tables.hosts_of_groups(replay)[1],
        size=next((name for most, name in SIZES if devices <= most), LARGEST),
        ops_per_second=score.ops_per_second,
        regulated_score=score.regulated_score,
        mfu=score.mfu,
        ops_per_joule=per_joule[0],
        ops_per_joule_l1=per_joule[1],
        ops_per_joule_l2=per_joule[2],
        error=None if score.quality is None else score.quality.error,
        control_examples_per_second=None if score.control is None else score.control.examples_per_second,
        control_rate=control.text if control else "",
        control_size=control.sizes if control else "",
        signer=signer,
        coupled_share=figures(replay, score)["coupled_share"].value,
        bus_bytes_per_second=summed.bytes_per_second if summed else None,
        notary="" if held is None else held.label,
        notary_text="" if held is None else held.text,
    )


def _page_name(text: str, used: set[str]) -> str:
    """A file name of plain letters, once in the folder."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "system"
    name, number = plain, 2
    while name in used or name == "index":
        name, number = f"{plain}-{number}", number + 1
    used.add(name)
    return f"{name}.html"


def _page(submission: Submission, run: Checked, entry: Entry) -> str:
    """The report of its run."""
    system = submission.system
    tables = [*_runs(entry), *_aside(submission, entry)]
    about = About(system["system_name"], system["submitter"], tables=tables, back="index.html")
    return report_html(run.judged, about)


def _runs(entry: Entry) -> Iterator[tuple[str, Table]]:
    """The table of the runs that an entry stands for."""
    if entry.others:
        low, high = entry.ops_range
        rows = [
            ["this run", f"{rate(entry.ops_per_second)}, the median of {entry.runs} runs"],
            ["range", rates(low, high)],
            *([f"{each.run}, {each.page}", rate(each.ops_per_second)] for each in entry.others),
        ]
        yield "Runs", Table(("", "sustained OPS"), rows, (False, True))


def _aside(submission: Submission, entry: Entry) -> Sequence[tuple[str, Table]]:
    """What a package says in addition to the journal, for the page of its run."""
    key, signer = submission.signed_by, entry.signer
    signed = signer.text if key is None else f"{signer.text}; Ed25519, public key {key}"
    about = [
        ["submitter", submission.system["submitter"]],
        ["contact", f"{submission.contact.person} {submission.contact.address}".strip()],
        ["organisation", submission.contact.organisation],
        ["licence", submission.licence],
        ["packed", submission.created],
        ["package", f"manifest SHA-256 {submission.manifest_sha256}"],
        ["signature", signed],
        *([["notary", entry.notary_text]] if entry.notary else []),
    ]
    system = [[name.replace("_", " "), submission.system[name] or "not stated"] for name in fields()]
    two = (False, False)
    return [("Submission", Table(("", ""), about, two)), ("System", Table(("", ""), system, two))]


def _reasons(submission: Submission, signer: Signer, register: Register) -> list[str]:
    """Why a package, or runs of it, are not ranked, in words."""
    found = [f"{reason.where}: {reason.text}" for reason in submission.reasons]
    if site := _borrowed_name(submission, signer, register):
        found.append(f"it names the registered site {site}, but was not signed with its key")
    for run in submission.runs:
        found += [f"{reason.where}: {reason.text}" for reason in run.reasons]
        if not (verdict := run.judged.verdict).valid:
            answer = "" if verdict.answer is Answer.INVALID else f"{verdict.answer.value}: "
            found.append(f"runs/{run.name}: {answer}{run_tables.verdict_text(verdict, run.judged.validated)}")
    return found


def _borrowed_name(submission: Submission, signer: Signer, register: Register) -> str | None:
    """The registered site for which a reader of the list would take a name of the submission, and whose
    submission it is not."""
    system, runs = submission.system, (run.name for run in submission.runs)
    shown = (system["submitter"], system["system_name"], submission.contact.organisation, *runs)
    sites = (claimed_site(register, name) for name in shown)
    return next((site for site in sites if site not in (None, signer.name)), None)
