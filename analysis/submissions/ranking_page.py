"""The list of systems as a page, as comma-separated values and as JSON.

All three are made of the same entries. The page is for readers; the other two have all digits and keep their
names, for whoever draws the list again. Systems come from packages of strangers, so every text is escaped.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

from aiperf import __version__
from aiperf.wording import harmless, moment, percent, plain, rate, rates
from analysis.pages.page import page
from analysis.readings.energy import Level
from analysis.readings.fabric import bandwidth_text
from analysis.readings.score_figures import EXPLAINED
from analysis.submissions.canonical import canonical
from analysis.submissions.standing import Entry, RankedList, Standing

FORM = "aiperf-hpc/ranking/1"
"""The form of ranking.json; another number is for other columns."""
SIZES = ((8, "up to 8 devices"), (64, "9 to 64 devices"), (512, "65 to 512 devices"))
"""Sizes for the filter of the page: most devices, and the name. Up to a node, a rack, a small cluster: steps
of eight, since nodes of eight devices are common."""
LARGEST = "more than 512 devices"
"""The size above all others."""

COLUMNS: Mapping[str, Callable[[Entry], Any]] = {
    "class": lambda entry: entry.run_class,
    "division": lambda entry: entry.division,
    "task": lambda entry: entry.task.name,
    "data": lambda entry: entry.data,
    "data_sha256": lambda entry: entry.data_sha256,
    "own_seed_sha256": lambda entry: entry.seed_sha256,
    "packed": lambda entry: entry.packed,
    "system": lambda entry: entry.system,
    "submitter": lambda entry: entry.submitter,
    "signature": lambda entry: entry.signer.right.name.lower(),
    "signed_by": lambda entry: entry.signer.name,
    "notary": lambda entry: entry.notary,
    "contested_by": lambda entry: "; ".join(entry.contested_by),
    "run": lambda entry: entry.run,
    "began": lambda entry: entry.date,
    "device": lambda entry: entry.device,
    "format": lambda entry: entry.precision,
    "search": lambda entry: entry.search,
    "nodes": lambda entry: entry.nodes,
    "devices": lambda entry: entry.devices,
    "nodes_of_a_group": lambda entry: entry.nodes_of_a_group,
    "ops_per_second": lambda entry: entry.ops_per_second,
    "runs": lambda entry: entry.runs,
    "least_ops_per_second": lambda entry: entry.ops_range[0],
    "greatest_ops_per_second": lambda entry: entry.ops_range[1],
    "other_pages": lambda entry: "; ".join(other.page for other in entry.others),
    "regulated_score_ops_per_second": lambda entry: entry.regulated_score,
    "ops_per_second_per_device": lambda entry: entry.ops_per_second_per_device,
    "mfu": lambda entry: entry.mfu,
    "ops_per_joule": lambda entry: entry.ops_per_joule,
    "ops_per_joule_l1": lambda entry: entry.ops_per_joule_l1,
    "ops_per_joule_l2": lambda entry: entry.ops_per_joule_l2,
    "test_error": lambda entry: entry.error,
    "control_examples_per_second": lambda entry: entry.control_examples_per_second,
    "control_rate": lambda entry: entry.control_rate,
    "control_size": lambda entry: entry.control_size,
    "coupled_share": lambda entry: entry.coupled_share,
    "bus_bytes_per_second": lambda entry: entry.bus_bytes_per_second,
    "page": lambda entry: entry.page,
}
"""Columns by name, which includes the unit; an empty value, or null, is not known."""


def index_html(made: Standing) -> str:
    """The page of all lists, with filters that its script applies."""
    values = {
        name: sorted({getattr(entry, name) for entry in made.entries})
        for name in ("run_class", "vendor", "precision", "size")
    }
    sizes = [*(name for _, name in SIZES), LARGEST]
    return page(
        "ranking.html",
        None,  # only what was measured is on a list
        lists=made.lists,
        refused=made.refused,
        filters=[
            ("class", "run_class", values["run_class"]),
            ("vendor", "vendor", values["vendor"]),
            ("format", "precision", values["precision"]),
            ("size", "size", [size for size in sizes if size in values["size"]]),
        ],
        terms=EXPLAINED,
        rate=rate,
        rates=rates,
        percent=percent,
        bandwidth=bandwidth_text,
        day=_day,
        images=_images,
        summary=made.text,
        levels=_levels,
    )


def listing_csv(made: Standing) -> str:
    """RFC 4180, one header line; a contested run, and one of the class smoke, has no place."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["place", *COLUMNS])
    for one in made.lists:
        for place, entry in one.placed():
            found = [cell(entry) for cell in COLUMNS.values()]
            writer.writerow([place, *(harmless(cell) if isinstance(cell, str) else cell for cell in found)])
    return out.getvalue()


def listing_json(made: Standing) -> str:
    """The lists in the canonical form, with all digits."""
    lists = [
        {
            "class": one.run_class,
            "division": one.division,
            "task": one.task.name,
            "data": plain(one.data),
            "data_sha256": plain(one.data_sha256),
            "own_seed_sha256": one.seed_sha256,
            "groups_span_nodes": one.spans_nodes,
            "runs": [
                {"place": place, **{name: _text(cell(entry)) for name, cell in COLUMNS.items()}}
                for place, entry in one.placed()
            ],
        }
        for one in made.lists
    ]
    refused = [
        {"package": plain(one.package), "reasons": [*map(plain, one.reasons)], "page": one.page}
        for one in made.refused
    ]
    content = {"form": FORM, "program": __version__, "lists": lists, "not_ranked": refused}
    return canonical(content).decode()


def _text(cell: Any) -> Any:
    """A cell whose text cannot turn or hide other text."""
    return plain(cell) if isinstance(cell, str) else cell


def _day(iso: str) -> str:
    """ "4 May 2026" of a time of day."""
    return moment(iso).partition(",")[0]


def _levels(one: RankedList) -> Mapping[str, str]:
    """The columns of OPS/W: what the power includes, and the name of the value. That of the devices always, a
    further one if a run of the list has it, so that no column mixes levels."""
    further = {Level.L1: "ops_per_joule_l1", Level.L2: "ops_per_joule_l2"}
    known = {
        level.value: name
        for level, name in further.items()
        if any(getattr(entry, name) is not None for entry in one.entries)
    }
    return {Level.L0.value: "ops_per_joule", **known}


def _images(one: RankedList) -> str:
    """The name of the data with the beginnings of the hashes that make it comparable, and whether groups span
    nodes."""
    data = f"{one.data}, SHA-256 {one.data_sha256:.12}…" if one.data_sha256 else one.data
    own = f"; a seed of their own, SHA-256 {one.seed_sha256:.12}…" if one.seed_sha256 else ""
    spans = "; each group spans several nodes, so that gradients cross the network" if one.spans_nodes else ""
    return f"{data}{own}{spans}"
