"""The process of one scenario: `python -m aiperf.inference REQUEST` prints what it measured, as JSON.

On standard error stand the lines of a search that goes on.
"""

from __future__ import annotations

import json
import signal
import sys

from aiperf.errors import AiperfError
from aiperf.inference.measuring import measure
from aiperf.scenarios.measured import Request
from nas.record import decode, encode


def main() -> None:
    """Its one argument is a Request; the answer is Measured, or {"refused": why}."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an exception would go through LoadGen's frames
    request = decode(Request, json.loads(sys.argv[1]))
    try:
        answer = encode(measure(request))
    except AiperfError as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
