"""Every link between the documents leads somewhere: to a file, and to a heading in it; and the README shows
the packages as they are, each with a clause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.readme import faults, shown
from tests.house.tree import ROOT, expect_none, files, tracked
from tests.tables import ComesTo

FOLDERS = ("aiperf", "nas", "launch", "analysis", "benchmarks", "tests", "docs", "slurm")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
NAMED = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/(?:[\w.-]+/)*[a-z_0-9]+\.(?:py|md|toml|jsonl?)\b")
NAMING = (".md", ".py", ".toml", "Makefile", ".ci/run")
ELSEWHERE = {"docs/conceptual/gpu-arch/mi300.md"}  # of ROCm
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def slugs(markdown: str) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    found: list[str] = []
    for heading in re.findall(r"^#+\s+(.+?)\s*#*$", FENCE.sub("", markdown), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def broken(document: Path, root: Path) -> Iterator[str]:
    """Links of a document to files or headings that are not there; other sites are not asked."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    for link in [*LINK.findall(text), *REFERENCE.findall(text)]:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        exists = target.is_relative_to(root) and target.exists()
        in_prose = bool(anchor) and target.suffix == ".md"
        if not exists or (in_prose and anchor not in slugs(target.read_text(encoding="utf-8"))):
            yield f"{document.relative_to(root)}: {link}"


def test_every_relative_link_resolves() -> None:
    documents = [ROOT / path for path in files() if path.endswith(".md")]
    expect_none(link for document in documents for link in broken(document, ROOT))


def test_every_file_that_a_document_or_a_module_names_is_there() -> None:
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in files() if path.endswith(NAMING)}
    named = {(path, file) for path, text in texts.items() for file in NAMED.findall(text)}
    assert ("docs/architecture.md", "aiperf/run/master.py") in named
    absent = {(path, file) for path, file in named if not (ROOT / file).exists()}
    expect_none(f"{path}: {file}" for path, file in absent if file not in ELSEWHERE)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# A heading, twice\n# A heading, twice\n[file](b.md) [here](#a-heading-twice-1) [web](https://x.org/y)\n"
        "[not here](#b) [outside](../c.md) [gone](d.md#e)\n[r]: f.md\n```\n[quoted](g.md)\n```\n"
    )
    (tmp_path / "b.md").touch()
    assert list(broken(document, tmp_path)) == [
        f"a.md: {link}" for link in ("#b", "../c.md", "d.md#e", "f.md")
    ]


def test_every_document_can_be_reached_from_the_front_door() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in reached or not document.exists():
            continue
        reached.add(document)
        links = LINK.findall(document.read_text(encoding="utf-8"))
        waiting += [(document.parent / link.partition("#")[0]).resolve() for link in links if ".md" in link]
    documents = {ROOT / path for path in files() if path.endswith(".md")}
    expect_none(f"{path}: no document links to it" for path in documents - reached)


README = (ROOT / "README.md").read_text(encoding="utf-8")
REAL = ["a/__init__.py", "a/b/__init__.py", "a/b/c.py", "a/d/e.py", "f/g/h.py", "i.py", ".ci/run"]


def page(tree: str) -> str:
    return f"# Title\n\n## The tree\n\nWords.\n\n```\n{tree}```\n\n## More\n\n```\ncode\n```\n"


def test_the_readme_shows_the_real_tree() -> None:
    expect_none(faults(shown(README), tracked()))


def test_every_entry_has_a_clause() -> None:
    expect_none(f"{path}: no clause" for path, clause in shown(README).items() if not clause)


def test_a_difference_is_found(comes_to_what_was_read: ComesTo) -> None:
    names = {"faults": faults, "shown": shown, "page": page, "REAL": REAL}
    comes_to_what_was_read("planted_folders.txt", names)
