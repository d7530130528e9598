"""The process of one place of the part `places`: python -m benchmarks.on_device.place --help"""

from __future__ import annotations

import argparse
from pathlib import Path

from aiperf.device import KINDS
from benchmarks.on_device.places import work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True, choices=KINDS)
    parser.add_argument("--index", required=True, type=int)
    parser.add_argument("--result", required=True, type=Path)
    options = parser.parse_args()
    work(options.device, options.index, options.result)


if __name__ == "__main__":
    main()
