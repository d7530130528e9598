"""The process of one scenario: `python -m aiperf.inference REQUEST` prints what it measured, as JSON.

The progress of a search is printed on standard error.
"""

from __future__ import annotations

import json
import signal
import sys

from aiperf.errors import AiperfError
from aiperf.inference.measuring import measure
from aiperf.scenarios.exchange import Request
from nas.record import decode, encode


def main() -> None:
    """Entry point: its one argument is a Request; it prints Measured, or {"refused": reason}."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # KeyboardInterrupt must not pass through LoadGen's frames
    request = decode(Request, json.loads(sys.argv[1]))
    try:
        answer = encode(measure(request))
    except AiperfError as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
