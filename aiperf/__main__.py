"""`python -m aiperf`: the command `aiperf-hpc`."""

from __future__ import annotations

import sys

from aiperf.start import main

if __name__ == "__main__":
    sys.exit(main())
