"""The answer of `accept` for a terminal, as JSON and as JUnit's XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from xml.etree import ElementTree

from aiperf.wording import counted, plain
from analysis.comparing.acceptance import Acceptance, Judgement
from analysis.comparing.acceptance_sheet import Sheet

FORM = "aiperf-hpc/acceptance/1"


def acceptance_text(found: Acceptance) -> str:
    """A line for each judgement, what did not pass first, and the answer at the end."""
    rows = [(outcome(each.passed), each.criterion, plain(each.where), each.text) for each in shown(found)]
    widths = [max(map(len, column)) for column in zip(*rows)][:-1]
    lines = ["  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]
    table = "\n".join(lines)
    return f"{table}\n\n{answer_text(found)}, {counted(len(found.runs), 'run')}\n"


def answer_text(found: Acceptance) -> str:
    wrong = sum(not each.passed for each in found.judgements)
    return "ACCEPTED" if found.passed else f"NOT ACCEPTED: {wrong} of {len(found.judgements)} criteria"


def acceptance_json(sheet: Sheet) -> str:
    found = sheet.found
    content = {
        "form": FORM,
        "accepted": found.passed,
        "runs": found.runs,
        "made": sheet.made,
        "machine": {"name": plain(sheet.machine), "owner": plain(sheet.owner), "devices": sheet.devices},
        "criteria": [asdict(each) for each in found.judgements],
        "nodes": [asdict(each) for each in sheet.nodes],
    }
    return json.dumps(content, indent=1) + "\n"


def acceptance_junit(sheet: Sheet) -> str:
    """JUnit's XML, one case for each judgement, as continuous-integration servers read it."""
    found = sheet.found
    wrong = [each for each in found.judgements if not each.passed]
    attributes = {
        "name": "aiperf-hpc accept",
        "tests": str(len(found.judgements)),
        "failures": str(len(wrong)),
    }
    suite = ElementTree.Element("testsuite", attributes)
    for each in found.judgements:
        case = ElementTree.SubElement(suite, "testcase", classname=plain(each.where), name=each.criterion)
        text = f"{outcome(each.passed)}: {each.text}"
        if not each.passed:
            ElementTree.SubElement(case, "failure", message=plain(text))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def shown(found: Acceptance) -> Iterator[Judgement]:
    """Nodes that pass one criterion of one run are one line: there may be thousands."""
    yield from (each for each in found.judgements if not each.passed)
    nodes = Counter((each.criterion, each.run) for each in found.judgements if each.passed and each.node)
    for each in found.judgements:
        if each.passed and not each.node:
            yield each
        elif each.passed and (num := nodes.pop((each.criterion, each.run), 0)):
            yield replace(each, node="", measured=counted(num, "node"))


def outcome(passed: bool | None) -> str:
    return "unknown" if passed is None else "passed" if passed else "FAILED"
