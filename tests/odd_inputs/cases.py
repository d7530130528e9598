"""The table of what comes from outside: a row for every process that is started, every variable and every
file that is read, with the call that reads it. A place without a row fails `test_odd_inputs.py`.

For a new place, add it, as the test names it, to the case that reads it, or write a case. What only this
program or the kernel writes is listed with that reason; what another test feeds with odd things, with its
file. The file is long because it is one table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from aiperf.tasks.images.known_sets import IMAGENET_1K
from launch import SCHEDULERS

Environment = Mapping[str, str]

CONTENTS: Mapping[str, bytes] = {
    "nothing": b"",
    "a word": b"Unknown\n",
    "a heading": b"CLUSTER: big\n",
    "odd bytes": b"\xff\xfeM\xfcller\x00\n",
    "a control": b"\x1b[2J\r\n",
    "a negative number": b"-1\n",
    "a huge number": b"9" * 100_000,
    "deep brackets": b"[" * 50_000,
    "deep braces": b'{"a":' * 50_000,
    "an object": b'{"a": [1e999, null, "\\ud800"]}\n',
}
"""What a file may hold, or a program print."""
VALUES: Mapping[str, str] = {
    "nothing": "",
    "a space": " ",
    "a word": "Unknown",
    "a negative number": "-1",
    "a fraction": "1.5",
    "an exponent": "1e9",
    "a number of another script": "\u00b2",
    "odd bytes": "M\udcfcller\udcff",
    "a control": "\x1b[2J\n",
    "a path": "../../../nowhere",
    "a huge number": "9" * 100_000,
    "many": "0-99999999999,7",
}
"""What a variable may hold."""
SIZES = 1 << 40
"""Size of a file with a hole, in bytes: it takes no room, and may not be read whole."""


def called(function: str, *arguments: object) -> object:
    """Calls a function by its name, `module:name`: no pure test may import what needs torch."""
    module, _, name = function.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    result: object = found(*arguments)
    return result


WITH_TORCH = tuple(
    f"aiperf/{name}/"
    for name in ("data", "device", "engines", "inference", "measuring", "parallel", "training")
)
"""Folders whose modules import torch, so that a pure run of the tests leaves their cases out."""


@dataclass(frozen=True)
class Case:
    """A row of the tables below."""

    places: tuple[str, ...]
    """The places that the call reads, as `places.py` names them."""

    @property
    def needs_torch(self) -> bool:
        return self.places[0].startswith(WITH_TORCH)


@dataclass(frozen=True)
class VariableCase(Case):
    """Variables that are read by one call."""

    names: tuple[str, ...]
    function: str | Callable[[Environment], object]
    """`module:function` or a function. It is called with the whole environment, which is that of the process,
    too."""
    given: Environment = field(default_factory=dict)
    """What else is set."""

    def call(self, environment: Environment) -> object:
        return (
            called(self.function, environment)
            if isinstance(self.function, str)
            else self.function(environment)
        )


def _job(environment: Environment) -> object:
    calls: list[list[Any]] = [["job_name", environment], ["job_seconds_left", environment, 1.8e9]]
    return [called(f"launch.current_job:{name}", *words) for name, *words in calls]


def _link(environment: Environment) -> object:
    """The socket of a rank that torchrun started."""
    launched = called("aiperf.ranks.launcher:launched_rank", environment)
    if launched is None:
        return None
    link: Any = called("aiperf.ranks.connect:connect", launched)
    return called("aiperf.ranks.connect:disconnect", link)


def _learnt(environment: Environment) -> object:
    """A text that hides who runs a process."""
    hider: Any = called("aiperf.journal.hidden_text:TextHider", lambda kind, value: value)
    called("aiperf.journal.hidden_text:learn_this_process", hider, environment)
    return hider.text("ada has run it in /home/ada")


def _reproduced(environment: Environment) -> object:
    """The file of a validation that was interrupted, written and read again."""
    saved: Any = called(
        "aiperf.rules.reproduction:SavedProgress.of", SimpleNamespace(last_chain="x", lines=1)
    )
    refusal = saved.keep(3)
    if refusal:
        raise AiperfError(refusal)
    return saved.read()


def _ascend(environment: Environment) -> object:
    return called("aiperf.device.npu:_numbers", environment["ASCEND_RT_VISIBLE_DEVICES"])


def _compiler(_: Environment) -> object:
    called("aiperf.device.dynamo:load_dynamo")
    return called("aiperf.engines.compiled:Compiled.why_not", SimpleNamespace(kind="cpu"))


def _visible(environment: Environment) -> object:
    names = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
    return called("aiperf.hardware.host_accelerators:_hides_all", names, environment)


def _host(environment: Environment) -> object:
    return [called(f"aiperf.doctor.host_report:{name}", environment) for name in ("_visible", "_home")]


def _in(path: str, *names: str) -> tuple[str, ...]:
    """Places of one file."""
    return tuple(f"{path} {name}" for name in names)


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "x", "MASTER_PORT": "1"}
RANKS = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "OMPI_MCA_mpi_ft_enable")
COMPILERS = ("CC", "HOME", "PATH", "XDG_CACHE_HOME", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
VARIABLE_CASES = (
    VariableCase(
        _in("aiperf/ranks/launcher.py", "rank_name", "size_name", "FAULT_TOLERANT", "RUN_ID", "SECRET"),
        (*RANKS, *TORCHRUN, "AIPERF_SECRET_FILE"),
        "aiperf.ranks.launcher:launched_rank",
        {"PMI_RANK": "0", "PMI_SIZE": "2"},
    ),
    VariableCase(
        (
            "aiperf/ranks/torchrun.py 'MASTER_PORT'",
            *_in("aiperf/ranks/connect.py", "RUN_ID", "'LOCAL_WORLD_SIZE'"),
        ),
        ("LOCAL_WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
        _link,
        TORCHRUN,
    ),
    VariableCase(
        _in("aiperf/ranks/meeting.py", "SECRET", "'MASTER_ADDR'", "'MASTER_PORT'"),
        ("AIPERF_SECRET_FILE", "MASTER_ADDR", "MASTER_PORT"),
        lambda environment: called("aiperf.ranks.meeting:meeting_of", environment, "torchrun"),
        {"AIPERF_SECRET_FILE": "/proc/self/cmdline", "MASTER_ADDR": "node1", "MASTER_PORT": "29400"},
    ),
    *(
        VariableCase(
            (
                "launch/scheduler.py self.job_id",
                # A pod does not ask for its time.
                *_in(f"launch/{name}.py", *("self.job_id",) * (name != "kubernetes")),
                *_in(f"launch/{name}.py", *("self.element",) * (name in ("lsf", "sge"))),
                *("launch/slurm.py END",) * (name == "slurm"),
            ),
            tuple(filter(None, (each.job_id, each.element, "SLURM_JOB_END_TIME"))),
            _job,
            {"PATH": ""} | {word: "7" for word in (each.job_id, each.element) if word},
        )
        for name, each in SCHEDULERS.items()
    ),
    VariableCase(
        ("aiperf/host/package_clash.py 'PYTHONPATH'",),
        ("PYTHONPATH",),
        lambda _: called("aiperf.host.package_clash:_remedy", Path("/nowhere")),
    ),
    VariableCase(
        _in("aiperf/doctor/host_report.py", "name", "'HOME'"),
        ("CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "HOME"),
        _host,
    ),
    VariableCase(
        ("aiperf/hardware/host_accelerators.py name",),
        ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"),
        _visible,
    ),
    VariableCase(
        _in("aiperf/journal/hidden_text.py", "'HOME'", "name"),
        ("HOME", "USER", "LOGNAME", "SUDO_USER"),
        _learnt,
    ),
    VariableCase(
        ("aiperf/ranks/start_guard.py name",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
        "aiperf.ranks.start_guard:ranks_on_host",
    ),
    VariableCase(
        ("aiperf/host/other_users.py POD",),
        ("KUBERNETES_SERVICE_HOST",),
        lambda _: called("aiperf.host.other_users:_in_pod"),
    ),
    VariableCase(("aiperf/host/user_cache.py 'XDG_CACHE_HOME'",), ("XDG_CACHE_HOME",), _reproduced),
    VariableCase(
        ("aiperf/parallel/ddp.py INTERFACES[0]",),
        ("GLOO_SOCKET_IFNAME",),
        lambda _: called("aiperf.parallel.ddp:meet_across_hosts", "127.0.0.1", 1, True),
    ),
    VariableCase(
        ("aiperf/measuring/fabric.py INTERFACES[0]",),
        ("GLOO_SOCKET_IFNAME",),
        "aiperf.measuring.fabric:gloo_transport",
    ),
    VariableCase(
        ("aiperf/measuring/fabric.py ELSEWHERE",),
        ("NCCL_DEBUG_FILE",),
        lambda environment: called("aiperf.measuring.fabric:ask_for_report", dict(environment)),
    ),
    VariableCase(
        ("aiperf/device/dynamo.py CACHE", "aiperf/engines/compiled.py CACHE"),
        ("TORCHINDUCTOR_CACHE_DIR",),
        _compiler,
    ),
    VariableCase(
        ("aiperf/ranks/process.py name",),
        ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"),
        "aiperf.ranks.process:environment",
    ),
    VariableCase(
        ("aiperf/device/cpu.py STATED",),
        ("OMP_NUM_THREADS",),
        lambda _: called("aiperf.device.cpu:_is_stated"),
    ),
    VariableCase(
        ("aiperf/commands/command_groups.py BLAS_THREADS",),
        ("OPENBLAS_NUM_THREADS",),
        lambda _: called("aiperf.commands.command_groups:_imported.__wrapped__", "aiperf.commands.peak:peak"),
    ),
    VariableCase(
        ("aiperf/device/cuda.py name",), ("PYTORCH_MIOPEN_SUGGEST_NHWC",), "aiperf.device.cuda:without_nhwc"
    ),
    VariableCase(
        ("aiperf/parallel/ddp.py ASYNC_ERRORS",),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING",),
        lambda environment: called("aiperf.parallel.ddp:allow_capture", dict(environment)),
    ),
    VariableCase(("aiperf/device/npu.py VISIBLE",), ("ASCEND_RT_VISIBLE_DEVICES",), _ascend),
    VariableCase(
        _in("aiperf/training/surroundings.py", "name", "variable"),
        ("OMP_NUM_THREADS", "NCCL_DEBUG", "APPTAINER_NAME", "SINGULARITY_NAME"),
        "aiperf.training.surroundings:read_settings",
    ),
    VariableCase(
        _in("aiperf/engines/fused/kernels.py", "'CC'", "'HOME'", "'PATH'", "'XDG_CACHE_HOME'", "name"),
        COMPILERS,
        "aiperf.engines.fused.kernels:built",
        {"CC": "none", "PATH": "/nowhere"},
    ),
    VariableCase(("aiperf/engines/compiled.py 'CXX'",), ("CXX",), "aiperf.engines.compiled:compilers"),
)


@dataclass(frozen=True)
class ProcessCase(Case):
    """Programs whose answers one call reads; each prints all CONTENTS, with exit codes 0 and 18."""

    programs: tuple[str, ...]
    call: Callable[[Path], object]
    """Is called with an empty folder, after PATH has the programs."""


def _submitted(folder: Path) -> object:
    (folder / "script").write_text("true\n")
    return [
        called(f"aiperf.commands.batch_jobs:{name}", scheduler, word)
        for scheduler in SCHEDULERS.values()
        for name, word in (("hand_in", folder / "script"), ("job_states", ["7"]))
        if not _is_refused(f"aiperf.commands.batch_jobs:{name}", scheduler, word)
    ]


def _is_refused(function: str, *arguments: object) -> bool:
    """Whether it is one line; the calls after it are made nevertheless."""
    try:
        called(function, *arguments)
    except AiperfError as error:
        return "\n" not in str(error)
    return False


def _first_site(folder: Path) -> object:
    """What the machine reports becomes a site file that can be read."""
    answers = {
        name: called("aiperf.commands.launch:_answer", *words)
        for name, words in import_module("launch.site_draft").QUESTIONS.items()
    }
    text = called("launch.site_draft:site_text", answers, "ada", "true")
    return called("launch.site:site_from_toml", text, "s"), called("launch.site_draft:skipped", answers)


def _drivers(folder: Path) -> object:
    """The checks of doctor that read what drivers' tools print."""
    tools = {name: called("aiperf.doctor.host_report:_ask", name, ("-L",), 50.0) for name in DRIVERS}
    host = SimpleNamespace(host="node1", tools=tools, visible={}, load=None, cores=1)
    examination = SimpleNamespace(device_reports=[], host_reports=[host])
    return [called(f"aiperf.doctor.judge:{check}", examination) for check in ("_drivers", "_slices")]


def _time_left(folder: Path) -> object:
    jobs = [each.job_id for each in SCHEDULERS.values()]
    return [called("launch.current_job:job_seconds_left", {job: "7"}, 0.0) for job in jobs]


def _compiled(folder: Path) -> object:
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(folder)}
    return called("aiperf.engines.fused.kernels:built", environment)


DRIVERS = ("nvidia-smi", "rocm-smi", "npu-smi", "xpu-smi")
QUEUES = tuple(each.ask(["7"])[0] for each in SCHEDULERS.values())
SUBMITTERS = tuple(each.submit()[0] for each in SCHEDULERS.values())
PROCESS_CASES = (
    ProcessCase(("launch/current_job.py _answer",), QUEUES, _time_left),
    ProcessCase(("aiperf/commands/batch_jobs.py _output_of",), (*QUEUES, *SUBMITTERS), _submitted),
    ProcessCase(
        ("aiperf/commands/batch_jobs.py _refuse_broken",),
        ("bash",),
        lambda folder: called("aiperf.commands.batch_jobs:write_script", folder / "script", "true\n"),
    ),
    ProcessCase(
        ("aiperf/commands/launch.py _answer",),
        ("sinfo", "srun", "sacctmgr", "nvidia-smi", "bash"),
        _first_site,
    ),
    ProcessCase(
        ("aiperf/hardware/host_accelerators.py _ask_tool",),
        DRIVERS,
        lambda _: called("aiperf.hardware.host_accelerators:refuse_unseen", "2.6", {}, {}),
    ),
    ProcessCase(("aiperf/doctor/host_report.py _ask",), DRIVERS, _drivers),
    ProcessCase(_in("aiperf/engines/fused/kernels.py", "_version", "_compile"), ("cc",), _compiled),
)


@dataclass(frozen=True)
class FileCase(Case):
    """A file that one call reads."""

    name: str
    """Path of the file in a folder with a run, `run`, a study and a site file."""
    reader: str | Callable[[Path], object]
    """`module:function`, which is called with the path and `more`; the words of a command, which is typed in
    the folder; or a function, which is called with the folder."""
    more: tuple[object, ...] = ()

    def call(self, folder: Path) -> object:
        """The result, whole; for a command, its words."""
        if not isinstance(self.reader, str):
            return self.reader(folder)
        if ":" not in self.reader:
            return self.reader.split()
        result = called(self.reader, folder / self.name, *self.more)
        return list(result) if isinstance(result, Iterator) else result


def _names_of_run(folder: Path) -> object:
    """Names and salt of a run that hides names."""
    run = RunFiles(folder / "run")
    return called("aiperf.journal.names:Names.at", run.private, "0" * 64), called(
        "aiperf.journal.names:salt_of", run.private, run.journal
    )


def _findings(folder: Path) -> object:
    kept = called("aiperf.host.user_cache:OwnFile", folder / "findings.json")
    return called("analysis.readings.validation:decoded", kept)


def _other_answers(folder: Path) -> object:
    log = SimpleNamespace(entries={}, values=lambda key: [], refuse_repeated=lambda: None)
    scenario = SimpleNamespace(name="offline")
    function = "analysis.submissions.loadgen_logs:refuse_other_answers"
    return called(function, log, folder / "answers.json", None, IMAGENET_1K, scenario)


def _packed_system(folder: Path) -> object:
    return called(
        "analysis.submissions.unpacking:parsed", folder / "system.json", "system.json", ["system.json"]
    )


def _copied(folder: Path) -> object:
    return called("analysis.submissions.package:_copy_telemetry", folder / TELEMETRY, folder / "copied.jsonl")


def _job_of_size(folder: Path) -> object:
    study = import_module("launch.study").StudyFiles(folder / "study")
    return called("aiperf.commands.scaling_study:_job_id", study, 1)


PACKAGE = "p.tar.gz"
STEPS, TELEMETRY = "run/logs/node1.rank1.steps.jsonl", "run/telemetry/node1.jsonl"
COMMANDS, DATA = "aiperf/commands", "aiperf/data"
PACKAGE_READERS = {
    f"{COMMANDS}/count.py _best": f"count {PACKAGE}",
    f"{COMMANDS}/graph.py graph": f"graph {PACKAGE} 0",
    f"{COMMANDS}/compare.py compare": f"compare run {PACKAGE}",
    f"{COMMANDS}/compare.py spread_of": f"spread {PACKAGE} run",
    f"{COMMANDS}/cost.py cost": f"cost {PACKAGE} --error 0.5",
    f"{COMMANDS}/export.py export": f"export {PACKAGE} --csv",
    f"{COMMANDS}/report.py report": f"report {PACKAGE} --json",
    f"{COMMANDS}/score.py score": f"score {PACKAGE}",
    "analysis/submissions/archive.py read_archive": f"validate {PACKAGE}",
}
"""Commands that take a package in the place of a run."""
WRITE_JOB = "launch slurm -- --preset digits"
SLURM = SCHEDULERS["slurm"]
FILE_READERS: tuple[tuple[Any, ...], ...] = (
    (
        "analysis/readings/references.py references",
        "references.toml",
        lambda _: called("analysis.readings.references:references"),
    ),
    ("launch/site.py load_site", "site.toml", WRITE_JOB),
    (f"{COMMANDS}/batch_jobs.py write_script", "x.sbatch", "launch slurm -o x.sbatch -- --preset digits"),
    (f"{COMMANDS}/batch_jobs.py free_name", "aiperf-hpc-1.sbatch", WRITE_JOB),
    (
        f"{COMMANDS}/batch_jobs.py hand_in",
        "job.sbatch",
        lambda folder: called("aiperf.commands.batch_jobs:hand_in", SLURM, folder / "job.sbatch"),
    ),
    (f"{COMMANDS}/scaling_study.py _read", "study/study.json", "launch status study"),
    (f"{COMMANDS}/scaling_study.py _read", "study/config.toml", "launch status study"),
    (f"{COMMANDS}/scaling_study.py _job_id", "study/nodes-0001/job.id", _job_of_size),
    ("nas/seeds.py _read", "seed.json", "count --seed seed.json"),
    (f"{COMMANDS}/reference_run.py config_like", PACKAGE, "aiperf.commands.reference_run:config_like", {}),
    (
        "aiperf/config.py load_preset",
        "own.toml",
        lambda folder: called("aiperf.config:load_preset", str(folder / "own.toml")),
    ),
    (
        "aiperf/pretending/assumptions.py assumed",
        "machine.toml",
        lambda folder: called("aiperf.pretending.assumptions:assumed", str(folder / "machine.toml")),
    ),
    ("analysis/readings/limits.py read_limits", "peak.json", "count --roofline --ceiling peak.json"),
    (f"{COMMANDS}/accept.py accept", "criteria.toml", "accept run --criteria criteria.toml"),
    (
        f"{COMMANDS}/system_description.py given_system",
        "system.json",
        "package run --system system.json --print-system",
    ),
    (f"{COMMANDS}/compare.py compare", "spread.json", "compare run run --spread spread.json"),
    ("analysis/submissions/keys.py read_keys", "keys", "analysis.submissions.keys:read_keys"),
    ("analysis/submissions/signature.py _private", "key", "analysis.submissions.signature:_private"),
    ("analysis/submissions/unpacking.py parsed", "system.json", _packed_system),
    ("aiperf/journal/notary.py answers", "answers.jsonl", "aiperf.journal.notary:answers"),
    ("aiperf/journal/file.py positions", "run/journal.jsonl", "aiperf.journal.file:positions", {1, 2}),
    (
        "aiperf/journal/file.py JournalReader._new_raw_lines, aiperf/journal/writer.py never_begun",
        "run/journal.jsonl",
        "status run",
    ),
    ("aiperf/rules/rank_logs.py _read", STEPS, "aiperf.rules.rank_logs:_read"),
    ("analysis/readings/power_file.py read_power", "site.csv", "power run site.csv --level L1"),
    ("analysis/readings/power_file.py read_power", "run/power/L2.csv", "score run"),
    ("analysis/readings/telemetry.py records", TELEMETRY, "analysis.readings.telemetry:records"),
    ("aiperf/host/user_cache.py OwnFile.content", "findings.json", _findings),
    (
        "analysis/exports/inference.py load_all",
        "run/inference/0-offline.json",
        lambda folder: called("analysis.exports.inference:load_all", RunFiles(folder / "run"), None),
    ),
    (
        "analysis/submissions/inference_folder.py _read",
        "system.json",
        "analysis.submissions.inference_folder:_read",
    ),
    ("aiperf/scenarios/detail_log.py read_entries", "detail.txt", "aiperf.scenarios.detail_log:read_values"),
    ("analysis/submissions/loadgen_logs.py refuse_other_answers", "answers.json", _other_answers),
    (
        "aiperf/on_nni/trial_messages.py call",
        "run/nni.address",
        lambda folder: called("aiperf.on_nni.trial_messages:call", RunFiles(folder / "run")),
    ),
    (
        "aiperf/journal/names.py Names._new_records, aiperf/journal/names.py _salt_of",
        "run/private.jsonl",
        _names_of_run,
    ),
    ("analysis/submissions/package.py _copy_telemetry", TELEMETRY, _copied),
    ("analysis/submissions/peaks.py read_peaks", "peaks.toml", "analysis.submissions.peaks:read_peaks"),
    ("nas/bounded.py system_text", "cpuinfo", "nas.bounded:system_text"),
    ("aiperf/host/package_clash.py _text", "RECORD", "aiperf.host.package_clash:_text"),
    ("aiperf/ranks/process.py _last_words", "rank.log", "aiperf.ranks.process:_last_words"),
    (
        "aiperf/doctor/host_report.py _is_visible",
        *("probe", "aiperf.doctor.host_report:_is_visible", "nonce", 50.0),
    ),
    (
        "aiperf/training/kept_network.py read_any_kept",
        "run/weights/0.safetensors",
        "aiperf.training.kept_network:read_any_kept",
    ),
    (
        "aiperf/training/driver.py sees_run",
        "run/.probe",
        lambda folder: called("aiperf.training.driver:sees_run", RunFiles(folder / "run"), "nonce"),
    ),
    (
        "aiperf/inference/loadgen.py logged_answers",
        "mlperf_log_accuracy.json",
        lambda folder: called("aiperf.inference.loadgen:logged_answers", folder),
    ),
    (f"{DATA}/folder_contents.py beginning", "text", "aiperf.data.folder_contents:is_text"),
    (
        f"{DATA}/decode.py _open, {DATA}/decode.py check_file",
        "images/train/cat/1.png",
        "aiperf.data.decode:check_file",
    ),
    (f"{DATA}/packed/shards.py map_file", "shard", "aiperf.data.packed.shards:map_file"),
    (
        f"{DATA}/packed/packing_plan.py PackingRecord.lines",
        "packing",
        "aiperf.data.packed.packing_plan:PackingRecord.lines",
    ),
)
"""Places, the file that is read there, what reads it, and what else this takes: see `FileCase`."""
IMAGE_FILES = (
    (f"{DATA}/idx.py _opened", "set/train-images-idx3-ubyte"),
    (f"{DATA}/idx.py _opened", "set/train-images-idx3-ubyte.gz"),
    (f"{DATA}/idx.py _begins", "set/train-labels-idx1-ubyte"),
    (f"{DATA}/cifar10.py _read", "set/test_batch.bin"),
    (f"{DATA}/packed/shards.py is_packed", "set/manifest.json"),
    (f"{DATA}/packed/shards.py read_manifest", "set/manifest.json"),
)
"""A place and a file of a set of images, which is looked at as a whole."""
FILE_CASES = (
    *(FileCase((place,), PACKAGE, words) for place, words in PACKAGE_READERS.items()),
    *(
        FileCase(tuple(places.split(", ")), name, reader, tuple(more))
        for places, name, reader, *more in FILE_READERS
    ),
    *(
        FileCase((place,), name, lambda folder: called("aiperf.data.image_files:look", folder / "set"))
        for place, name in IMAGE_FILES
    ),
)

ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "tests/aiperf/host/test_child_process.py": (
        "aiperf/host/child_process.py Child.__init__",
        "aiperf/commands/infer.py _answered",
        "aiperf/doctor/examination.py data_process",
        "aiperf/doctor/examination.py device_process",
        "aiperf/ranks/process.py describe_device",
        "aiperf/ranks/process.py infer_data",
        "aiperf/ranks/process.py visible_devices",
        "aiperf/training/fabric.py _measured",
    ),
    "tests/aiperf/host/test_programs.py": ("aiperf/host/programs.py ask",),
    "tests/aiperf/commands/test_running.py": ("aiperf/journal/lock.py seconds_until_dead",),
    "tests/aiperf/ranks/test_meeting.py": ("aiperf/host/other_users.py private_bytes",),
    "tests/aiperf/doctor/test_host_report.py": ("aiperf/doctor/host_report.py examine_onednn",),
    "tests/nas/test_bounded.py": tuple(
        f"nas/bounded.py {name}" for name in ("_opened", "file_digest", "opened", "read_text")
    ),
    "tests/aiperf/data/texts/test_reading.py": ("aiperf/data/texts/reading.py MappedText.chunks",),
    "tests/aiperf/data/packed/test_reading.py": ("aiperf/data/packed/staging.py _blocks",),
    "tests/analysis/submissions/test_notary.py": tuple(
        f"analysis/submissions/notary.py {name}" for name in ("_Leg.read", "_folder", "_has", "_read")
    ),
    "tests/analysis/submissions/test_archive.py": (
        "analysis/submissions/unpacking.py _sealed",
        "analysis/submissions/verify.py _wrong_config",
    ),
}
"""Places that a test of their own feeds with odd things."""
OWN: Mapping[str, tuple[str, ...]] = {
    "its answer is not read": (
        "aiperf/ranks/connect.py _after",
        "aiperf/ranks/ranks.py run_for_this",
        "aiperf/ranks/start_guard.py guarded",
    ),
    "it answers over a socket, a pipe or a file of its own": (
        "aiperf/telemetry/recorder.py Recorder.__init__",
        "aiperf/data/decoders.py server",
        "aiperf/data/packed/packing.py packing_processes",
        "aiperf/on_nni/tuner.py SearchTuner.update_search_space",
        "aiperf/profiling/local_ranks.py _start",
        "aiperf/ranks/process.py WorkerProcess.__init__",
        "aiperf/rules/reproduction.py _started",
    ),
    "this Python, without any file of a site": ("aiperf/hardware/host_accelerators.py _try_files",),
    "a file of this program or of a library": (
        "aiperf/host/package_clash.py _again",
        "aiperf/host/code.py code_hash",
        "aiperf/config.py preset_text",
        "aiperf/data/decode.py pillow_fault",
        "aiperf/data/digits.py _digits",
        "aiperf/data/digits.py _pinned",
        "aiperf/data/texts/loading.py bundled_text",
        "aiperf/engines/fused/kernels.py _digest",
        "aiperf/engines/fused/kernels.py _kind",
        "analysis/comparing/published.py published",
        "analysis/pages/page.py _text",
        "analysis/submissions/schema.py schema",
    ),
    "a file that this program has written a moment before, or is about to": (
        "aiperf/data/packed/packing_plan.py PackingRecord.__init__",
        "aiperf/data/packed/shards.py to_disk",
        "aiperf/journal/writer.py JournalWriter.begin",
        "aiperf/profiling/local_ranks.py _read",
        "aiperf/profiling/local_ranks.py _reason",
        "aiperf/profiling/rank_process.py _joined.hear",
        "aiperf/profiling/rank_process.py main",
        "aiperf/ranks/shipping.py _pieces",
        "aiperf/training/rank_log.py StepLog._read",
        "analysis/submissions/archive.py _write",
    ),
    "a journal that was read before": (
        "aiperf/simulation/load_figures.py _journal_bytes",
        "analysis/submissions/package.py _published_id",
    ),
    "a file of the kernel": (
        "aiperf/device/cgroup.py _folders",
        "aiperf/device/cgroup.py _numbers",
        "aiperf/ranks/connect.py abort",
        "aiperf/ranks/start_guard.py end_job",
        "aiperf/ranks/start_guard.py ranks_of",
        "aiperf/telemetry/host_use.py _scheduled_seconds",
        "aiperf/telemetry/node.py read_number",
        "aiperf/telemetry/node.py read_word",
    ),
}
"""Places where nobody else can put anything odd, by the reason."""


def study() -> str:
    """A study of one size."""
    return json.dumps({"scheduler": "slurm", "nodes": [1], "hours": 1.0, "options": [], "config_hash": ""})
