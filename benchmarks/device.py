"""What a machine with an accelerator must show, measured by one command.

    python benchmarks/device.py [--out FOLDER] [--seconds 480] [--device cuda]

It needs this checkout, Python 3.10 or newer with PyTorch for the accelerator, and

    pip install numpy safetensors scikit-learn pillow psutil click rich tomli-w
    pip install nvidia-ml-py                                   # NVIDIA: its sensors
    pip install pytest pytest-timeout pytest-xdist hypothesis  # for the part `tests` only

Nothing is downloaded. For a machine without a network, carry what is missing:
`pip download -d wheels …` elsewhere, `pip install --no-index --find-links wheels …` there.

The parts (--list) are measured one after the other, each in a process of its own, and written to
FOLDER/device.json and, as a page to read, FOLDER/device.txt after each; beside them lie runs and outputs.
A call begins no part for which less is left of its --seconds than the part is expected to need. Called
again it continues; --again PART measures one once more. The order is that in which they show most. No part
is expected to need more than four minutes, and all of them together, in such calls, not more than 40 on an
accelerator and 20 on a CPU, where sizes are smaller. A part is ended when it has taken two and a half times
as long as expected, on AMD's devices three times as long as that, a minute at least; what it had found is
kept. The page says first what is wrong, then what is slow.

Exit code: 0 when all parts are done and none failed, 1 when all were begun and one failed, 75 when there
is more to do (call again), 2 where it cannot begin, 128 and the signal's number where a signal ended it: the
part that was at work ends with it, and is begun anew by the next call.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from math import inf, nan
from pathlib import Path
from time import monotonic
from types import FrameType

# The checkout need not be installed; this folder itself has modules that nobody should import by accident.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from aiperf.host.scheduler_warning import heeded  # noqa: E402
from benchmarks.on_device.page import page  # noqa: E402
from benchmarks.on_device.parts import BY_NAME, PARTS, Setting  # noqa: E402
from benchmarks.on_device.runner import forget, go_on, identify, needed, pending  # noqa: E402
from benchmarks.on_device.state import FAILED, StateError, held, opened  # noqa: E402

MORE = 75
KINDS = ("auto", "cuda", "npu", "xpu", "cpu")


def main(arguments: Sequence[str] | None = None) -> int:
    began = monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/device"), help="default: runs/device")
    parser.add_argument("--seconds", type=_seconds, default=480.0, help="of this call; default: 480")
    parser.add_argument("--device", choices=KINDS, default="auto", help="default: auto, an accelerator first")
    parser.add_argument("--span", type=_seconds, default=60.0, help="seconds of each run; default: 60")
    parser.add_argument(
        "--again", metavar="PART", nargs="+", default=[], help="measure again; all: everything"
    )
    parser.add_argument("--only", metavar="PART", nargs="+", default=[], help="begin no other part; all: any")
    parser.add_argument("--list", action="store_true", help="list the parts and end")
    options = parser.parse_args(arguments)
    for name in (*options.again, *options.only):
        if name not in BY_NAME and name != "all":
            parser.error(f"there is no part {name}; parts: {', '.join(BY_NAME)}")
    try:
        for number in heeded():
            signal.signal(number, _interrupt)
        setting = _setting(options)
        if options.list:
            _list(setting)
            return 0
        setting.folder.mkdir(parents=True, exist_ok=True)
        with held(setting.folder):
            return _measure(setting, options, began + options.seconds)
    except (StateError, OSError) as error:
        print(f"benchmarks/device.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        print(f"benchmarks/device.py: ended by {number.name}; call again to go on", file=sys.stderr)
        return 128 + number


def _measure(setting: Setting, options: argparse.Namespace, until: float) -> int:
    """The exit code. Raises StateError, OSError."""
    measured = opened(setting.folder, {"device": setting.kind, "span": setting.span_seconds})
    forget(measured, options.again)
    identify(measured, setting)
    most = until - monotonic()
    only = options.only if options.only and "all" not in options.only else tuple(BY_NAME)
    go_on(measured, setting, until, _say, only)
    print(f"\n{page(measured)}\n{measured.json}\n{measured.text}")
    left = pending(measured)
    if left:
        longest = max(needed(measured, part, setting) for part in left)
        if longest > most:
            wanted = options.seconds + longest - most + 20
            _say(f"a part needs about {longest:.0f} s: call with --seconds {wanted:.0f} or more")
        return MORE
    return int(any(measured.state(part.name) == FAILED for part in PARTS))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupts once, because the end of a part must not be cut short; a part that outlives it is killed
    anyway."""
    for each in heeded():
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number))


def _setting(options: argparse.Namespace) -> Setting:
    """Raises StateError if torch is missing or sees no such device."""
    try:
        from aiperf.device import choose, count_devices
        from aiperf.errors import AiperfError
    except ModuleNotFoundError as error:
        raise StateError(
            f"the package {error.name} is not installed; `--help` lists what is needed"
        ) from None
    try:
        choice = choose(options.device)
    except AiperfError as error:
        raise StateError(str(error)) from None
    kind = choice.kind
    if choice.note:
        print(choice.note, file=sys.stderr)
    count = count_devices(kind)  # not bound: this process would keep memory of the device, or all of it
    if not count:
        raise StateError(f"torch sees no {kind} device; `aiperf-hpc doctor` looks for what hides it")
    return Setting(kind, options.out.resolve(), options.span, count)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _list(setting: Setting) -> None:
    for part in PARTS:
        print(f"{part.name:<20} about {part.needs(setting):4.0f} s   {part.title}")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
