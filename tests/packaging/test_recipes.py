"""What recipes state agrees with `setup.py`, and with the rest of the program."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

from tests.house.tree import ROOT
from tests.packaging.recipes import FOLDER


def test_reframe_places_ranks_as_the_shipped_script_does() -> None:
    """The shell lines of the recipe stand in it."""
    script = (ROOT / "slurm/multi_node.sbatch").read_text(encoding="utf-8")
    source = (FOLDER / "reframe/aiperf_hpc.py").read_text(encoding="utf-8")
    quoted = [part for part in source.split('"""')[1::2] if "scontrol" in part]
    assert len(quoted) == 2
    assert [part for part in quoted if part not in script] == []


def test_jube_looks_for_figures_that_a_result_has() -> None:
    """Each once: JUBE would take the first number of that name."""
    patterns = ElementTree.parse(FOLDER / "jube/aiperf-hpc.xml").iterfind(".//pattern")
    keys = [re.findall(r'"(\w+)":', pattern.text or "") for pattern in patterns]
    schema = json.dumps(
        json.loads((ROOT / "analysis/submissions/schemas/result-1.json").read_text(encoding="utf-8"))
    )
    assert [len(each) for each in keys] == [1] * 6
    assert [key for (key,) in keys if f'"{key}": {{' not in schema] == []
