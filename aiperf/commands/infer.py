"""`infer`: the inference of a network, measured with MLPerf's LoadGen.

LoadGen decides what is asked when and whether a test is valid, so the figures compare with other results of
MLPerf Inference as far as the networks do: docs/beyond.md.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

import click

from aiperf.commands.arguments import Number, Whole, device_option, only_with, run_argument
from aiperf.commands.graph import best_trial
from aiperf.commands.messages import say_line
from aiperf.commands.optional_libraries import refuse_no_run
from aiperf.commands.site_options import node_price, price_option, site_option
from aiperf.commands.user_files import writing
from aiperf.errors import AiperfError, MissingExtra
from aiperf.host.child_process import Child, NoReply
from aiperf.journal.file import read_journal
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.ranks.process import environment
from aiperf.scenarios.exchange import Measured, Request
from aiperf.scenarios.scenario import RULE_SECONDS, SCENARIOS
from analysis.exports.inference import SINGLE, Inference, found, inference_text, save
from launch.price import Price
from nas.record import decode, encode

ALL, SEARCH = "all", "search"
"""Words of options: all scenarios, and the search for the highest rate."""
LOADGEN = "mlperf_loadgen"
"""Module of MLPerf's LoadGen, which needs the extra `infer`. It is looked for and not imported: a fault in
its library would end this process."""


def _rate(context: click.Context, param: click.Parameter, value: str) -> float | None:
    """A positive number, or None for a search."""
    if value == SEARCH:
        return None
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not (isfinite(rate) and rate > 0):
        raise click.BadParameter(f"{value!r} is neither a positive number nor {SEARCH}.", context, param)
    return rate


@click.command()
@run_argument
@click.argument("trial", metavar="[TRIAL]", type=Whole(0), required=False)
@click.option(
    "--scenario",
    type=click.Choice((*SCENARIOS, ALL)),
    default=ALL,
    help="LoadGen scenario: how queries arrive.",
)
@click.option(
    "--seconds",
    type=Number(1, 36_000),
    default=RULE_SECONDS,
    help="Length of each test [s]; MLPerf requires 600.",
)
@click.option(
    "--latency-ms",
    type=Number(0, 60_000, min_open=True),
    default=15.0,
    help="For server: bound on the 99th percentile of the latency [ms].",
)
@click.option(
    "--qps",
    callback=_rate,
    default=SEARCH,
    metavar=f"RATE|{SEARCH}",
    help="For server: queries per second; search: find the highest within the bound.",
)
@click.option("--accuracy", is_flag=True, help="Also run all test examples, and compare with the journal.")
@click.option(
    "--data", metavar="PATH", default="", show_default=False, help="Where the data is now, if it was moved."
)
@device_option
@price_option
@site_option("its price")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all digits.")
def infer(
    directory: Path,
    trial: int | None,
    scenario: str,
    seconds: float,
    latency_ms: float,
    qps: float | None,
    accuracy: bool,
    data: str,
    device: str,
    price_text: str | None,
    site: Path | None,
    as_json: bool,
) -> int:
    """Measure the inference of a found network with MLPerf LoadGen: latencies, rates, accuracy.

    TRIAL defaults to the best network; its weights must be in the run directory. Results and LoadGen logs
    are written into RUN/inference. Exit code 1 if LoadGen finds a test INVALID, if no rate is within the
    bound, or if the accuracy differs from the journal. With --accuracy, single-stream and a price, also shows
    DAWNBench's cost of 10,000 images, one at a time.
    """
    one_at_a_time = accuracy and scenario in (ALL, SINGLE)
    only_with(f"--accuracy with --scenario {SINGLE} or {ALL}", one_at_a_time, "price_text", "site")
    price = node_price(price_text, site) if one_at_a_time else None
    refuse_no_run()
    from aiperf.training.found_network import kept_trial

    if find_spec(LOADGEN) is None:
        raise MissingExtra(LOADGEN, "infer")
    files = RunFiles(directory)
    run = replay(read_journal(files.journal))
    refuse_marked(run.opened.origin, directory, "be measured at inference")
    number = best_trial(run, files) if trial is None else trial
    kept_trial(run, files, number)  # in good time: each scenario reads it again, in a process of its own
    results = []
    for name in SCENARIOS if scenario == ALL else (scenario,):
        request = Request(
            str(directory), number, name, seconds, latency_ms / 1000, qps, accuracy, device, data
        )
        results.append(_measured(files, run, request))
        if not as_json:
            text = inference_text(results[-1], price)
            click.echo(f"{text}\nresult{'':18}{files.inference(number, name)}\n")
    if as_json:
        click.echo(json.dumps([_json(result, price) for result in results]))
    return 0 if all(map(_holds, results)) else 1


def _json(inference: Inference, price: Price | None) -> dict[str, Any]:
    """The result as JSON, with the price and the cost if there is a price; the stored result has none of
    them."""
    money = None if price is None else inference.dawnbench_cost(price)
    record = dict(encode(inference))
    return record if price is None else record | {"price": str(price), "dawnbench_cost": money}


def _measured(files: RunFiles, run: Replay, request: Request) -> Inference:
    """Measures a scenario in a separate process, and stores the result. An earlier result is replaced only
    once there is a new one. Raises AiperfError."""
    logs, result = (of(request.trial, request.scenario) for of in (files.inference_logs, files.inference))
    with _in_place_of(logs, result):
        inference = _answered(files, run, request, logs)
        with writing(result):
            save(files, inference)
    return inference


@contextmanager
def _in_place_of(logs: Path, result: Path) -> Iterator[None]:
    """A context with an empty folder for logs. Earlier logs are moved aside, and moved back if there is no
    new result; so are those that a killed process had moved aside."""
    earlier = logs.with_name(f"{logs.name}.earlier")
    with writing(logs):
        if not earlier.exists() and result.exists() and logs.exists():
            logs.rename(earlier)
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(logs, ignore_errors=True)
        if earlier.exists():
            earlier.rename(logs)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _answered(files: RunFiles, run: Replay, request: Request, logs: Path) -> Inference:
    """Measures one scenario in a separate process, because LoadGen ends the process in which it fails. Its
    errors go to this terminal. Raises AiperfError if it gives no answer. Its output is JSON in a file, so
    that nothing LoadGen prints is taken for it."""
    what = f"{request.scenario}: trial {request.trial}, tests of {request.seconds:g} s"
    say_line(f"{what}, logs in {logs}")
    words = ("aiperf.inference.measuring:answered", json.dumps(encode(request)))
    try:
        answer = Child(*words, environment=environment(os.environ), errors=None).answer()
    except NoReply as error:
        raise AiperfError(f"{request.scenario}: {error}") from None
    return found(files, run, request.trial, request.scenario, decode(Measured, answer))


def _holds(inference: Inference) -> bool:
    """Whether LoadGen calls the test valid, and the accuracy is that of the journal if both are known."""
    detail, accuracy = inference.measured.detail, inference.measured.accuracy
    agrees = accuracy is None or accuracy.recorded is None or accuracy.found.agrees(accuracy.recorded)
    return detail is not None and detail.valid and agrees
