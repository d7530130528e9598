"""How far five measurements of `peak` lie apart: `python -m benchmarks.peak_spread`.

On a quiet machine; what is given is passed on to `peak`.
"""

from __future__ import annotations

import json
import subprocess
import sys

REPEATS = 5
PROGRAM = "from aiperf.start import main; raise SystemExit(main())"


def ceilings(words: list[str]) -> dict[str, float]:
    """Operations a second by format, and bytes a second of memory."""
    command = [sys.executable, "-c", PROGRAM, "peak", "--json", *words]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    fastest = {"memory": found["copy"]["fastest"]}
    for product in found["products"]:
        format, rate = product["format"], product["rate"]["fastest"]
        fastest[format] = max(rate, fastest.get(format, 0.0))
    return fastest


def main() -> None:
    repeats = [ceilings(sys.argv[1:]) for _ in range(REPEATS)]
    for name in repeats[0]:
        values = sorted(one[name] for one in repeats)
        spread = (values[-1] - values[0]) / values[len(values) // 2]
        shown = ", ".join(f"{value / 1e9:.1f}" for value in values)
        print(f"{name:8} {shown} G/s: {100 * spread:.1f} % from the least to the greatest")


if __name__ == "__main__":
    main()
