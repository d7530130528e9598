"""How the text that comes with the program was made; the same folder gives the same bytes.

    python -m benchmarks.text.bundled /usr/share/doc/python3.11/html/_sources python_docs.txt.xz

The folder is that of Debian's package python3.11-doc, in the version that aiperf/data/texts/README.md states.
"""

from __future__ import annotations

import lzma
import sys
from hashlib import sha256
from pathlib import Path

LARGEST_FILE = 24 << 10
"""Largest file that is taken, in bytes. The test part, a twentieth, then has many files on several
subjects."""


def joined(folder: Path) -> bytes:
    """The small files of a folder one after the other, sorted by the SHA-256 of their names: sorted by the
    names, the test part would have another subject than the rest."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.rst.txt")]
    small = [name for name in names if (folder / name).stat().st_size <= LARGEST_FILE]
    return b"".join((folder / name).read_bytes() for name in sorted(small, key=_shuffled))


def _shuffled(name: str) -> str:
    """The key by which files are sorted."""
    return sha256(name.encode()).hexdigest()


def main(folder: Path, target: Path) -> None:
    text = joined(folder)
    packed = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
    target.write_bytes(packed)
    for name, content in (("unpacked", text), ("packed", packed)):
        print(f"{name:10}{len(content):>10,} bytes  SHA-256 {sha256(content).hexdigest()}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
