"""Whether a rank sees the run directory of the master, or another of the same name."""

from __future__ import annotations

import logging
import time

from aiperf.files import RunFiles
from nas.bounded import read_text

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0  # a network file system shows a new file late: it remembers that there was none


def sees_run(files: RunFiles, probe: str) -> bool:
    """Whether the probe file holds that, or will in a moment; an empty one is not looked for."""
    until = time.monotonic() + PROBE_SECONDS
    while probe:
        try:
            if read_text(files.probe) == probe:
                return True
        except OSError as error:
            log.info("%s: %s", files.probe, error.strerror)
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True
