"""What the site has: every document, and the files and folders to which they link, as pages of their text.

Each keeps its path in the repository, so a link leads to the same thing in both, and no address of a
repository is needed.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(\s*<?([^)\s>#]+)")
AS_THEY_ARE = (".md", ".png")
FENCE = "~" * 12
"""Longer than any in a file that is shown."""


class Shown(File):
    """A page whose source is not Markdown."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, and those of the repository that its documents reach."""
    paths = reached("README.md")
    ours = [_file(path, paths, config) for path in sorted(paths)]
    return Files([*(each for each in files if each.src_dir != config.docs_dir), *ours])


def reached(first: str) -> set[str]:
    """Paths of a document, and of all to which it and the others link. A folder reaches its modules."""
    found, waiting = set[str](), [first]
    while waiting:
        path = waiting.pop()
        if path in found or not (ROOT / path).exists():
            continue
        found.add(path)
        if path.endswith(".md"):
            links = LINK.findall((ROOT / path).read_text(encoding="utf-8"))
            waiting += [posixpath.join(posixpath.dirname(path), link) for link in links if ":" not in link]
        elif (ROOT / path).is_dir():
            waiting += [f"{path}/{each.name}" for each in (ROOT / path).iterdir() if each.suffix == ".py"]
        waiting = [posixpath.normpath(each) for each in waiting]
    return found


def _file(path: str, paths: set[str], config: MkDocsConfig) -> File:
    if path.endswith(AS_THEY_ARE):
        return File.generated(config, path, abs_src_path=str(ROOT / path))
    text = _listed(path, paths) if (ROOT / path).is_dir() else _quoted(path)
    front = f"---\ntitle: {path}\nhide: [toc]\nsearch: {{exclude: true}}\n---\n"
    content = f"{front}# `{path}`\n\n{text}\n"
    page = Shown.generated(config, path, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
    page.dest_uri = f"{path}/index.html"
    return page


def _listed(folder: str, paths: set[str]) -> str:
    """A folder's files and folders; links start at the folder above."""
    names = sorted(each.name for each in (ROOT / folder).iterdir() if not each.name.startswith(("_", ".")))
    last = posixpath.basename(folder)
    return "\n".join(
        f"- [{name}]({last}/{name})" if f"{folder}/{name}" in paths else f"- {name}" for name in names
    )


def _quoted(path: str) -> str:
    """Without colours, which would take as long as all the rest."""
    return f"{FENCE}text\n{(ROOT / path).read_text(encoding='utf-8')}\n{FENCE}"
