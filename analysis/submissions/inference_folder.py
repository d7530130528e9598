"""What `infer` found, as a submission folder of MLPerf Inference's open division.

The form, its rules and the words in capitals below are those of mlcommons/inference, August 2026:
tools/submission/submission_checker, version v6.1. `resnet` is there a benchmark of edge systems alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError, ConfigError
from aiperf.hardware.cpu_names import is_processor
from aiperf.journal.replay import Replay
from aiperf.os_error import unreadable
from aiperf.scenarios.detail_log import read_entries
from aiperf.scenarios.exchange import ACCURACY, PERFORMANCE
from aiperf.scenarios.scenario import user_conf
from aiperf.score.lineage import rebuild
from aiperf.tasks.images.known_sets import IMAGENET_1K
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.tally import Tally
from aiperf.wording import percent
from analysis.exports.inference import Inference, load_all
from analysis.exports.mllog import MlperfEntry, refuse_invalid, refuse_other_data
from analysis.readings.judgement import Judged
from analysis.submissions.loadgen_logs import (
    MOST_BYTES,
    Contradiction,
    LeastWork,
    Log,
    refuse_contradictions,
    refuse_other_answers,
    share_of_bound,
)
from analysis.submissions.system import fields
from nas.bounded import read_bytes
from nas.graph import Graph
from nas.ops import TENSOR_OPS
from nas.products import least_elements, least_products
from nas.record import graph_to_json

SCENARIOS = ("single-stream", "multi-stream", "offline")
"""Required of `resnet` on an edge system. The checker looks for all of them in the closed division only; here
all are required."""
STATUSES = {"cloud": "available", "onprem": "available", "preview": "preview", "research": "rdi"}
"""Status of a machine: MLPerf Inference's word by that of MLPerf Training, which the option `--status` has
for both."""
MODEL = "aiperf-hpc"
"""The open division's own name for a network; model_mapping.json says of which benchmark it is."""
MORE_FIELDS = ("host_network_card_count", "system_type_detail")
"""Fields of MLPerf Inference's system description that MLPerf Training's does not have."""
MEANINGFUL = (
    *("host_processor_model_name", "host_processors_per_node", "host_processor_core_count"),
    *("host_memory_capacity", "host_memory_configuration", "host_storage_capacity", "host_storage_type"),
    *("host_networking", "host_network_card_count", "host_networking_topology", "operating_system"),
    *("accelerator_memory_capacity", "accelerator_host_interconnect", "accelerator_memory_configuration"),
    *("accelerator_interconnect", "cooling"),
)
"""Fields that may not be empty; those that the measurement knows are not among them."""
LOGGED: Mapping[str, Mapping[str, Any]] = {
    PERFORMANCE: {
        # The seeds that the checker asks for: with others the queries come in another order.
        "effective_qsl_rng_seed": 2085463073848966840,
        "effective_sample_index_rng_seed": 2747215439041700203,
        "effective_schedule_rng_seed": 16159082839903944936,
        "result_validity": "VALID",
        **dict.fromkeys(("result_min_duration_met", "result_min_queries_met", "early_stopping_met"), True),
        **dict.fromkeys(("effective_performance_issue_same", "effective_performance_issue_unique"), False),
        "effective_test_mode": "PerformanceOnly",
        "qsl_reported_total_count": IMAGENET_1K.test_examples,
        "num_errors": 0,
    },
    ACCURACY: {
        "effective_accuracy_sample_count": IMAGENET_1K.test_examples,
        "effective_test_mode": "AccuracyOnly",
        "qsl_reported_total_count": IMAGENET_1K.test_examples,
    },
}
"""What LoadGen's log of a test must state."""
LEAST: Mapping[str, Mapping[str, int]] = {
    PERFORMANCE: {"effective_min_duration_ms": 600_000, "effective_performance_sample_count": 1024},
    ACCURACY: {},
}
"""What LoadGen's log of a test must reach: ten minutes, and samples that no cache holds."""
SHOWN_BYTES = 4096
"""Bytes kept of the log of answers at its start, and as many at its end: as truncate_accuracy_log.py does."""


def inference_files(judged: Judged, entry: MlperfEntry, given: Mapping[str, str]) -> dict[str, bytes]:
    """Content by path in the folder. `given` are the fields of the system description that a person filled
    in.

    Raises AiperfError for a run or results that cannot be an entry, with the first reason.
    """
    for option, name in (("--organization", entry.organization), ("--platform", entry.platform)):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ConfigError(f"{option} {name!r} names a folder: use letters, digits, '.', '_' and '-' only")
    refuse_other_data(judged, entry.benchmark, "be written as an MLPerf entry")
    refuse_invalid(judged)
    tested = judged.replay.tested
    assert tested is not None  # a valid run has tested its best network
    trial, every = tested.trial, load_all(judged.files, judged.replay)
    found = {each.scenario: each for each in every if each.trial == trial}
    for name in SCENARIOS:
        if reason := _unfit(judged, name, found.get(name), tested.tally):
            remedy = f"aiperf-hpc infer {judged.files.directory} {trial} --scenario {name} --accuracy"
            raise AiperfError(f"{reason}; run `{remedy}`")
    top = f"{entry.division}/{entry.organization}"
    system = _system([found[name] for name in SCENARIOS], entry, given)
    return {
        f"{top}/systems/{entry.platform}.json": _json(system),
        f"{top}/model_mapping.json": _json({MODEL: entry.benchmark}),
        f"{top}/src/{MODEL}/trial-{trial}.json": _json(graph_to_json(rebuild(judged.replay, trial))),
        **{
            f"{top}/results/{entry.platform}/{MODEL}/{found[name].of.loadgen}/{file}": content
            for name in SCENARIOS
            for file, content in _of_scenario(judged, found[name])
        },
    }


def write_folder(files: Mapping[str, bytes], folder: Path) -> None:
    """Raises AiperfError if the folder is not empty, and OSError."""
    if folder.exists() and any(folder.iterdir()):
        raise AiperfError(f"{folder} is not empty; remove it or choose another folder")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _unfit(judged: Judged, name: str, inference: Inference | None, recorded: Tally) -> str:
    """Why this result cannot be part of a submission; empty if it can."""
    if inference is None:
        required = ", ".join(SCENARIOS)
        return f"{judged.files.inference_directory} has no result of {name}, and MLPerf requires {required}"
    path, accuracy = judged.files.inference(inference.trial, name), inference.measured.accuracy
    if accuracy is None:
        return f"{path} has no accuracy"
    if not accuracy.found.agrees(recorded):
        return f"{path}: the accuracy is not that of the journal"
    try:
        _refuse_logs(judged, inference)
    except Contradiction as error:
        return str(error)
    return ""


def _refuse_logs(judged: Judged, inference: Inference) -> None:
    """Raises Contradiction if LoadGen's logs of a scenario do not have what MLPerf requires, or contradict
    each other or the result of `infer`; AiperfError if they cannot be read."""
    measured, scenario = inference.measured, inference.of
    logs = judged.files.inference_logs(inference.trial, inference.scenario)
    paths = {name: logs / name / "mlperf_log_detail.txt" for name in (PERFORMANCE, ACCURACY)}
    tests = {name: Log(path, read_entries(path)) for name, path in paths.items()}
    for name, log in tests.items():
        _refuse_settings(log, scenario.loadgen, LOGGED[name], LEAST[name])
    performance, accuracy = tests[PERFORMANCE], tests[ACCURACY]
    if accuracy.value("loadgen_version") != performance.value("loadgen_version"):
        raise Contradiction(f"{accuracy.path} is of another version of LoadGen than {performance.path}")
    if performance.value("effective_min_duration_ms") != round(1000 * measured.test_seconds):
        raise Contradiction(f"{performance.path} has another length than `infer` asked for")
    loaded = performance.value("effective_performance_sample_count")
    conf = user_conf(scenario, measured.test_seconds, IMAGENET_1K.test_examples, loaded)
    if _read(logs / "user.conf") != conf.encode():
        raise Contradiction(f"{logs / 'user.conf'} does not have the settings of the logs next to it")
    graph = rebuild(judged.replay, inference.trial)
    if measured.tensor_ops != graph.cost.evaluate.price(TENSOR_OPS):
        raise Contradiction(f"{performance.path}: another network was measured than that of the journal")
    summaries = {
        name: _read(logs / name / "mlperf_log_summary.txt").decode(errors="replace") for name in tests
    }
    refuse_contradictions(scenario, measured, performance, summaries[PERFORMANCE], _least_work(graph))
    assert measured.accuracy is not None
    found = measured.accuracy.found
    assert isinstance(found, Classified)
    refuse_other_answers(accuracy, logs / ACCURACY / "mlperf_log_accuracy.json", found, IMAGENET_1K, scenario)


def _refuse_settings(log: Log, scenario: str, required: Mapping[str, Any], least: Mapping[str, int]) -> None:
    """Raises Contradiction for a setting of a log that is not the required one, or below its least value."""
    for key, value in {"effective_scenario": scenario, **required}.items():
        if log.last(key) != value:
            raise Contradiction(f"{log.path}: {key} is {log.last(key)!r}, and MLPerf requires {value!r}")
    for key, number in least.items():
        if not isinstance(value := log.last(key), int) or value < number:
            raise Contradiction(f"{log.path}: {key} is {value!r}, and MLPerf requires at least {number}")


def _least_work(graph: Graph) -> LeastWork:
    """What one sample costs at the least, whatever the library makes of the network."""
    return LeastWork(TENSOR_OPS.mac * least_products(graph)[1], least_elements(graph)[1])


def _system(found: list[Inference], entry: MlperfEntry, given: Mapping[str, str]) -> dict[str, str]:
    """The description of one node with the one device that answered.

    Raises AiperfError for another device in `given`, and for scenarios that were measured on different
    devices.
    """
    measured = found[0].measured
    if any(
        (m := each.measured).device != measured.device or m.software != measured.software for each in found
    ):
        raise AiperfError(
            "the scenarios were measured on different devices or with different software; run `aiperf-hpc "
            "infer` with --scenario all"
        )
    on_host, named = is_processor(measured.device), given.get("accelerator_model_name", "")
    if named not in ("", measured.device):
        raise AiperfError(
            f"--system: accelerator_model_name is {named!r}, but `infer` measured {measured.device!r}; "
            "correct the file"
        )
    absent = "N/A" if on_host else ""
    known = {name: absent if name.startswith("accelerator_") else "" for name in (*fields(), *MORE_FIELDS)}
    system = known | {name: text for name, text in given.items() if text}
    if missing := [name for name in MEANINGFUL if not system[name]]:
        raise AiperfError(
            f"the system description lacks {', '.join(missing)}; add them to the file of --system, 'N/A' for "
            "what the machine does not have (`package --print-system` prints a template)"
        )
    return system | {
        "submitter": entry.organization,
        "division": entry.division,
        "status": STATUSES[entry.status],
        "system_name": entry.platform,
        "system_type": "edge",
        "number_of_nodes": "1",
        "accelerators_per_node": "0" if on_host else "1",
        "accelerator_model_name": "N/A" if on_host else measured.device,
        "framework": f"PyTorch {measured.software.get('torch', 'unknown')}",
        "other_software_stack": ", ".join(f"{name} {text}" for name, text in measured.software.items()),
    }


def _of_scenario(judged: Judged, inference: Inference) -> Iterator[tuple[str, bytes]]:
    """Content by path in the scenario's folder."""
    logs = judged.files.inference_logs(inference.trial, inference.scenario)
    yield "user.conf", _read(logs / "user.conf")
    for name in ("mlperf_log_summary.txt", "mlperf_log_detail.txt"):
        yield f"performance/run_1/{name}", _read(logs / PERFORMANCE / name)
        yield f"accuracy/{name}", _read(logs / ACCURACY / name)
    answers, accuracy = _read(logs / ACCURACY / "mlperf_log_accuracy.json"), inference.measured.accuracy
    assert accuracy is not None
    assert isinstance(accuracy.found, Classified)
    tally, digest = accuracy.found, sha256(answers).hexdigest()
    yield "accuracy/mlperf_log_accuracy.json", _truncated(answers)
    counted = f"accuracy={100 * tally.accuracy:.3f}%, good={tally.correct}, total={tally.of}\nhash={digest}\n"
    yield "accuracy/accuracy.txt", counted.encode()
    yield "measurements.json", _json(_measurements(judged.replay, inference))
    yield "README.md", _readme(judged.replay, inference).encode()


def _measurements(replay: Replay, inference: Inference) -> dict[str, str]:
    """The content of measurements.json: how weights and inputs were stored, and where the weights come
    from."""
    format, weights = inference.measured.format, replay.trials[inference.trial].attempts[-1].weights
    is_cast = format not in ("fp32", "tf32")  # TF32 rounds within a product, and stores nothing
    return {
        "input_data_types": "fp32",
        "retraining": f"yes: the network was found and trained by a search on {IMAGENET_1K.title}",
        "starting_weights_filename": f"{inference.trial}.safetensors, SHA-256 {weights}",
        "weight_data_types": format if is_cast else "fp32",
        "weight_transformations": f"from fp32 to {format} by torch.autocast" if is_cast else "none",
    }


def _readme(replay: Replay, inference: Inference) -> str:
    """The text that says from which run the results come, and how they can be measured again."""
    trial, run = inference.trial, replay.opened
    share = share_of_bound(inference.of, inference.measured, _least_work(rebuild(replay, trial)))
    bound = f"{percent(share, 1)} of the most that the device can do" if share is not None else "unknown"
    return f"""\
# {inference.of.loadgen}

Trial {trial} of the run {run.run_id} of aiperf-hpc {run.program}.
Its network is in src/{MODEL}/trial-{trial}.json.
The last line of the run's journal has the hash {replay.last_chain}.
Measured by `aiperf-hpc infer RUN {trial} --scenario {inference.scenario} --accuracy`.
The whole log of answers is kept beside the journal; the one here is truncated.
Rate: {bound}.
"""


def _truncated(content: bytes) -> bytes:
    """The beginning and the end of the log of answers, which is too large for a submission."""
    if len(content) <= 2 * SHOWN_BYTES:
        return content
    return content[:SHOWN_BYTES] + b"\n\n...\n\n" + content[-SHOWN_BYTES:]


def _read(path: Path) -> bytes:
    """A file that `infer` left. Raises AiperfError if it is missing or too large."""
    try:
        return read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise AiperfError(unreadable(error, path, "run `aiperf-hpc infer` again")) from None


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
