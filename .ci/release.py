"""Makes and checks all that a release needs, and publishes nothing: `PYTHON .ci/release.py`.

PYTHON has build, twine, uv and mkdocs beside it. Ends with the one line that publishes, for a person with an
account, or with what is still missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def stated_version() -> str:
    (version,) = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "aiperf/__init__.py").read_text(), re.MULTILINE
    )
    return str(version)


def unready(
    version: str, changelog: str, changes: str, tags_here: list[str], tags: list[str]
) -> Iterator[str]:
    """What keeps this commit from being the release of this version."""
    if changes:
        yield f"the checkout differs from its commit; commit or remove:\n{changes}"
    latest = re.search(r"^## \[(\S+)\] - (\S+)$", changelog, re.MULTILINE)
    if not latest or latest[1] != version:
        yield f"CHANGELOG.md: its first heading is not that of {version}, which aiperf/__init__.py states"
    elif not re.fullmatch(r"\d{4}-\d{2}-\d{2}", latest[2]):
        yield f"CHANGELOG.md: {version} is {latest[2]}; write its date there, such as 2027-01-31"
    others = [tag for tag in tags_here if tag.startswith("v") and tag != f"v{version}"]
    if others:
        yield f"this commit is {', '.join(others)} already, but aiperf/__init__.py states {version}"
    if f"v{version}" in tags and f"v{version}" not in tags_here:
        yield f"the tag v{version} is of another commit; raise the version in aiperf/__init__.py"


def steps(version: str) -> Iterator[tuple[str, list[str | Path]]]:
    """What is made and checked, and by which command."""
    dist = [ROOT / f"dist/aiperf_hpc-{version}{ending}" for ending in (".tar.gz", "-py3-none-any.whl")]
    yield "the distribution in dist", [sys.executable, "-m", "build", "--outdir", "dist"]
    yield "what an index asks of it", [TOOLS / "twine", "check", "--strict", *dist]
    yield "packaging/lock.txt against the index", [sys.executable, ".ci/lock.py", "--check"]
    yield "the site in build/site", ["make", "--old-file=.venv-release/.installed", "site"]


def main() -> None:
    version = stated_version()
    tags_here = git("tag", "--points-at", "HEAD").split()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    missing = [
        *unready(version, changelog, git("status", "--porcelain"), tags_here, git("tag", "--list").split())
    ]
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for what, command in steps(version):
        answer = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(f"{'ok' if answer.returncode == 0 else 'FAILED':<8}{what}", flush=True)
        if answer.returncode:
            missing.append(f"{what}:\n{answer.stdout.rstrip()}")
    if missing:
        raise SystemExit("\n".join([f"not ready: aiperf-hpc {version}", *missing]))
    tag = f"git tag --sign v{version} -m 'aiperf-hpc {version}' && "
    tag = "" if f"v{version}" in tags_here else tag
    print(
        f"ready: aiperf-hpc {version}; nothing was published. To publish it:\n"
        f"{tag}git push origin v{version} && {TOOLS / 'twine'} upload dist/*\n"
        "Then copy build/site to a web server, and push the image of packaging/Containerfile."
    )


if __name__ == "__main__":
    main()
