"""The way in, before there is a command that could answer."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED = """
import os, signal, sys

class AsItImports:
    def find_spec(self, name, path=None, target=None):
        if name == "aiperf.commands.main":
            os.kill(os.getpid(), signal.SIGINT)

from aiperf.start import main
sys.meta_path.insert(0, AsItImports())
sys.argv[1:] = ["run"]
sys.exit(main())
"""


def test_ctrl_c_during_the_imports_is_one_line() -> None:
    answer = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "aiperf-hpc: interrupted\n")
