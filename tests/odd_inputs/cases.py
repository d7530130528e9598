"""The table of what comes from outside: a row for every process that is started, every variable and every
file that is read, with the call that reads it. A place without a row fails `test_odd_inputs.py`.

For a new place, add it, as the test names it, to the case that reads it, or write a case. What only this
program or the kernel writes is listed with that reason; what another test feeds with odd things, with its
file. The file is long because it is one table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiperf.errors import AiperfError
from aiperf.files import RunFiles
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


@dataclass(frozen=True)
class VariableCase:
    """Variables that are read by one call."""

    places: tuple[str, ...]
    names: tuple[str, ...]
    call: Callable[[Environment], object]
    """Is called with the whole environment, which is that of the process, too."""
    given: Environment
    """What else is set."""
    needs_torch: bool = False


def _of(function: str) -> Callable[[Environment], object]:
    return lambda environment: called(function, environment)


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
    hider: Any = called("aiperf.hidden_text:TextHider", lambda kind, value: value)
    called("aiperf.hidden_text:learn_this_process", hider, environment)
    return hider.text("ada has run it in /home/ada")


def _reproduced(environment: Environment) -> object:
    """The file of a validation that was interrupted, written and read again."""
    so_far: Any = called("aiperf.rules.reproduced_so_far:SoFar.of", SimpleNamespace(last_chain="x", lines=1))
    refusal = so_far.keep(3)
    if refusal:
        raise AiperfError(refusal)
    return so_far.read()


TORCHRUN = {
    "RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "x",
    "MASTER_PORT": "1",
}
RANKS = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
VARIABLE_CASES = (
    VariableCase(
        tuple(
            f"aiperf/ranks/launcher.py {name}"
            for name in ("rank_name", "size_name", "FAULT_TOLERANT", "RUN_ID")
        ),
        (*RANKS, "PMI_RANK", "PMI_SIZE", "OMPI_MCA_mpi_ft_enable", *TORCHRUN),
        _of("aiperf.ranks.launcher:launched_rank"),
        {"PMI_RANK": "0", "PMI_SIZE": "2"},
    ),
    VariableCase(
        (
            "aiperf/ranks/torchrun.py 'LOCAL_WORLD_SIZE'",
            "aiperf/ranks/torchrun.py 'MASTER_PORT'",
            "aiperf/ranks/connect.py RUN_ID",
        ),
        ("LOCAL_WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
        _link,
        TORCHRUN,
    ),
    *(
        VariableCase(
            (
                "launch/current_job.py each.job_id",
                "launch/current_job.py scheduler.job_id",
                *(
                    f"launch/{name}.py self.{variable}"
                    for variable in ("job_id", "element")[: 1 + (name == "lsf")]
                ),
                *("launch/slurm.py END",) * (name == "slurm"),
            ),
            (each.job_id, each.element, "SLURM_JOB_END_TIME"),
            _job,
            {each.job_id: "7", "PATH": ""},
        )
        for name, each in SCHEDULERS.items()
    ),
    VariableCase(
        ("aiperf/clash.py 'PYTHONPATH'",),
        ("PYTHONPATH",),
        lambda _: called("aiperf.clash:_remedy", Path("/nowhere")),
        {},
    ),
    VariableCase(
        ("aiperf/doctor/host_report.py name", "aiperf/doctor/host_report.py 'HOME'"),
        ("CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "HOME"),
        lambda environment: [
            called(f"aiperf.doctor.host_report:{name}", environment) for name in ("_visible", "_home")
        ],
        {},
    ),
    VariableCase(
        ("aiperf/hardware/unseen.py name",),
        ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"),
        lambda environment: called(
            "aiperf.hardware.unseen:_hides_all",
            ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"),
            environment,
        ),
        {},
    ),
    VariableCase(
        ("aiperf/hidden_text.py 'HOME'", "aiperf/hidden_text.py name"),
        ("HOME", "USER", "LOGNAME", "SUDO_USER"),
        _learnt,
        {},
    ),
    VariableCase(
        ("aiperf/ranks/start_guard.py name",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
        _of("aiperf.ranks.start_guard:ranks_on_host"),
        {},
    ),
    VariableCase(
        ("aiperf/other_users.py POD",),
        ("KUBERNETES_SERVICE_HOST",),
        lambda _: called("aiperf.other_users:_in_pod"),
        {},
    ),
    VariableCase(
        ("aiperf/own_files.py 'XDG_CACHE_HOME'",),
        ("XDG_CACHE_HOME",),
        _reproduced,
        {},
    ),
    VariableCase(
        ("aiperf/parallel/meeting.py INTERFACES[0]",),
        ("GLOO_SOCKET_IFNAME",),
        lambda _: called("aiperf.parallel.meeting:meet_across_hosts", "127.0.0.1", 1, True),
        {},
        needs_torch=True,
    ),
    VariableCase(
        ("aiperf/device/dynamo.py CACHE", "aiperf/engines/compiled.py CACHE"),
        ("TORCHINDUCTOR_CACHE_DIR",),
        lambda _: [
            called("aiperf.device.dynamo:load_dynamo"),
            called("aiperf.engines.compiled:Compiled.why_not", SimpleNamespace(kind="cpu")),
        ],
        {},
        needs_torch=True,
    ),
    VariableCase(
        ("aiperf/ranks/process.py name",),
        ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"),
        _of("aiperf.ranks.process:environment"),
        {},
    ),
    VariableCase(
        ("aiperf/device/cpu.py STATED",),
        ("OMP_NUM_THREADS",),
        lambda _: called("aiperf.device.cpu:_is_stated"),
        {},
        needs_torch=True,
    ),
    VariableCase(
        ("aiperf/device/cuda.py name",),
        ("PYTORCH_MIOPEN_SUGGEST_NHWC",),
        _of("aiperf.device.cuda:without_nhwc"),
        {},
        needs_torch=True,
    ),
    VariableCase(
        ("aiperf/parallel/ddp.py ASYNC_ERRORS",),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING",),
        lambda environment: called("aiperf.parallel.ddp:allow_capture", dict(environment)),
        {},
        needs_torch=True,
    ),
    VariableCase(
        ("aiperf/device/npu.py VISIBLE",),
        ("ASCEND_RT_VISIBLE_DEVICES",),
        lambda environment: called("aiperf.device.npu:_numbers", environment["ASCEND_RT_VISIBLE_DEVICES"]),
        {},
        needs_torch=True,
    ),
    VariableCase(
        ("aiperf/device/surroundings.py name", "aiperf/device/surroundings.py variable"),
        ("OMP_NUM_THREADS", "NCCL_DEBUG", "APPTAINER_NAME", "SINGULARITY_NAME"),
        _of("aiperf.device.surroundings:read_settings"),
        {},
        needs_torch=True,
    ),
    VariableCase(
        tuple(
            f"aiperf/engines/fused/build.py {name}"
            for name in ("'CC'", "'HOME'", "'PATH'", "'XDG_CACHE_HOME'", "name")
        ),
        ("CC", "HOME", "PATH", "XDG_CACHE_HOME", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"),
        lambda environment: called("aiperf.engines.fused.build:built", environment),
        {"CC": "none", "PATH": "/nowhere"},
        needs_torch=True,
    ),
    VariableCase(
        ("aiperf/engines/compiled.py 'CXX'",),
        ("CXX",),
        _of("aiperf.engines.compiled:compilers"),
        {},
        needs_torch=True,
    ),
)


@dataclass(frozen=True)
class ProcessCase:
    """Programs whose answers one call reads; each prints all CONTENTS, with exit codes 0 and 18."""

    places: tuple[str, ...]
    programs: tuple[str, ...]
    call: Callable[[Path], object]
    """Is called with an empty folder, after PATH has the programs."""
    needs_torch: bool = False


def _submitted(folder: Path) -> object:
    (folder / "script").write_text("true\n")
    return [
        called(f"aiperf.commands.cluster.submission:{name}", scheduler, word)
        for scheduler in SCHEDULERS.values()
        for name, word in (("hand_in", folder / "script"), ("job_states", ["7"]))
        if not _is_refused(f"aiperf.commands.cluster.submission:{name}", scheduler, word)
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
        name: called("aiperf.commands.cluster.launching:_asked", *words)
        for name, words in import_module("launch.site_draft").QUESTIONS.items()
    }
    text = called("launch.site_draft:site_text", answers, "ada", "true")
    return called("launch.site:site_from_toml", text, "s"), called("launch.site_draft:skipped", answers)


def _drivers(folder: Path) -> object:
    """The checks of doctor that read what drivers' tools print."""
    tools = {name: called("aiperf.doctor.host_report:_ask", name, ("-L",), 50.0) for name in DRIVERS}
    seen = SimpleNamespace(
        device_reports=[],
        host_reports=[SimpleNamespace(host="node1", tools=tools, visible={}, load=None, cores=1)],
    )
    return [called(f"aiperf.doctor.judge:{check}", seen) for check in ("_drivers", "_slices")]


DRIVERS = ("nvidia-smi", "rocm-smi", "npu-smi", "xpu-smi")
SCHEDULERS_PROGRAMS = ("squeue", "qstat", "bjobs")
PROCESS_CASES = (
    ProcessCase(
        ("launch/current_job.py _answer",),
        SCHEDULERS_PROGRAMS,
        lambda _: [
            called("launch.current_job:job_seconds_left", {each.job_id: "7"}, 0.0)
            for each in SCHEDULERS.values()
        ],
    ),
    ProcessCase(
        ("aiperf/commands/cluster/submission.py _ran",),
        (*SCHEDULERS_PROGRAMS, "sbatch", "qsub", "bsub"),
        _submitted,
    ),
    ProcessCase(
        ("aiperf/commands/cluster/submission.py _refuse_broken",),
        ("bash",),
        lambda folder: called("aiperf.commands.cluster.submission:write_script", folder / "script", "true\n"),
    ),
    ProcessCase(
        ("aiperf/commands/cluster/launching.py _asked",),
        ("sinfo", "srun", "sacctmgr", "nvidia-smi", "bash"),
        _first_site,
    ),
    ProcessCase(
        ("aiperf/hardware/unseen.py _ask_tool",),
        DRIVERS,
        lambda _: called("aiperf.hardware.unseen:refuse_unseen", "2.6", {}, {}),
    ),
    ProcessCase(("aiperf/doctor/host_report.py _ask",), DRIVERS, _drivers),
    ProcessCase(
        ("aiperf/engines/fused/build.py _version", "aiperf/engines/fused/build.py _compile"),
        ("cc",),
        lambda folder: called(
            "aiperf.engines.fused.build:built", {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(folder)}
        ),
        needs_torch=True,
    ),
)


@dataclass(frozen=True)
class FileCase:
    """A file that one call reads."""

    places: tuple[str, ...]
    name: str
    """Path of the file in the folder that the call is given, which holds a run, `run`, and a site file."""
    call: Callable[[Path], object]
    """Is called with that folder; a list of words is a command."""
    needs_torch: bool = False


def _command(*words: str) -> Callable[[Path], object]:
    """A command as a person types it, in the folder."""
    return lambda folder: list(words)


def _path(function: str, name: str) -> Callable[[Path], object]:
    return lambda folder: called(function, folder / name)


def _names_of_run(folder: Path) -> object:
    """Names and salt of a run that hides names."""
    run = RunFiles(folder / "run")
    return called("aiperf.names:Names.at", run.private, "0" * 64), called(
        "aiperf.names:salt_of", run.private, run.journal
    )


PACKAGE = "p.tar.gz"
STEPS = "run/logs/node1.rank1.steps.jsonl"
READ_BY_COMMANDS = {
    "aiperf/commands/architectures.py _best": f"count {PACKAGE}",
    "aiperf/commands/architectures.py graph": f"graph {PACKAGE} 0",
    "aiperf/commands/looking/comparing.py compare": f"compare run {PACKAGE}",
    "aiperf/commands/looking/comparing.py spread_of": f"spread {PACKAGE} run",
    "aiperf/commands/looking/costing.py cost": f"cost {PACKAGE} --error 0.5",
    "aiperf/commands/looking/exporting.py export": f"export {PACKAGE} --csv",
    "aiperf/commands/looking/reporting.py report": f"report {PACKAGE} --json",
    "aiperf/commands/looking/results.py score": f"score {PACKAGE}",
    "analysis/submissions/archive.py read_archive": f"validate {PACKAGE}",
}
"""Commands that take a package in the place of a run."""
FILE_CASES = (
    *(FileCase((place,), PACKAGE, _command(*words.split())) for place, words in READ_BY_COMMANDS.items()),
    FileCase(
        ("analysis/readings/references.py _own",),
        "references.toml",
        lambda folder: called("analysis.readings.references:references"),
    ),
    FileCase(
        ("launch/site.py load_site",), "site.toml", _command("launch", "slurm", "--", "--preset", "digits")
    ),
    FileCase(
        ("aiperf/commands/cluster/submission.py write_script",),
        "x.sbatch",
        _command("launch", "slurm", "-o", "x.sbatch", "--", "--preset", "digits"),
    ),
    FileCase(
        ("aiperf/commands/cluster/submission.py free_name",),
        "aiperf-hpc-1.sbatch",
        _command("launch", "slurm", "--", "--preset", "digits"),
    ),
    FileCase(
        ("aiperf/commands/cluster/submission.py hand_in",),
        "job.sbatch",
        lambda folder: called(
            "aiperf.commands.cluster.submission:hand_in", SCHEDULERS["slurm"], folder / "job.sbatch"
        ),
    ),
    FileCase(
        ("aiperf/commands/cluster/studying.py _read",),
        "study/study.json",
        _command("launch", "status", "study"),
    ),
    FileCase(
        ("aiperf/commands/cluster/studying.py _read",),
        "study/config.toml",
        _command("launch", "status", "study"),
    ),
    FileCase(
        ("aiperf/commands/cluster/studying.py _job_id",),
        "study/nodes-0001/job.id",
        lambda folder: called(
            "aiperf.commands.cluster.studying:_job_id",
            import_module("launch.study").StudyFiles(folder / "study"),
            1,
        ),
    ),
    FileCase(("nas/seeds.py _read",), "seed.json", _command("count", "--seed", "seed.json")),
    FileCase(
        ("aiperf/commands/reference_run.py config_like",),
        PACKAGE,
        lambda folder: called("aiperf.commands.reference_run:config_like", folder / PACKAGE, {}),
    ),
    FileCase(
        ("aiperf/config.py load_preset",),
        "own.toml",
        lambda folder: called("aiperf.config:load_preset", str(folder / "own.toml")),
    ),
    FileCase(
        ("aiperf/pretending/assumptions.py assumed",),
        "machine.toml",
        lambda folder: called("aiperf.pretending.assumptions:assumed", str(folder / "machine.toml")),
    ),
    FileCase(
        ("analysis/readings/limits.py read_limits",),
        "peak.json",
        _command("count", "--roofline", "--ceiling", "peak.json"),
    ),
    FileCase(
        ("aiperf/commands/looking/accepting.py _text", "aiperf/commands/looking/accepting.py accept"),
        "criteria.toml",
        _command("accept", "run", "--criteria", "criteria.toml"),
    ),
    FileCase(
        ("aiperf/commands/system_description.py given_system",),
        "system.json",
        _command("package", "run", "--system", "system.json", "--print-system"),
    ),
    FileCase(
        ("aiperf/commands/looking/comparing.py _bytes",),
        "spread.json",
        _command("compare", "run", "run", "--spread", "spread.json"),
    ),
    FileCase(
        ("analysis/submissions/keys.py read_keys",),
        "keys",
        _path("analysis.submissions.keys:read_keys", "keys"),
    ),
    FileCase(
        ("analysis/submissions/signature.py _private",),
        "key",
        _path("analysis.submissions.signature:_private", "key"),
    ),
    FileCase(
        ("analysis/submissions/unpacking.py parsed",),
        "system.json",
        lambda folder: called(
            "analysis.submissions.unpacking:parsed", folder / "system.json", "system.json", ["system.json"]
        ),
    ),
    FileCase(
        ("aiperf/journal/notary.py answers",),
        "answers.jsonl",
        lambda folder: list(called("aiperf.journal.notary:answers", folder / "answers.jsonl")),  # type: ignore[call-overload]
    ),
    FileCase(
        ("aiperf/journal/file.py positions",),
        "run/journal.jsonl",
        lambda folder: called("aiperf.journal.file:positions", folder / "run/journal.jsonl", {1, 2}),
    ),
    FileCase(
        ("aiperf/journal/file.py JournalReader.new_lines", "aiperf/journal/place.py never_begun"),
        "run/journal.jsonl",
        _command("status", "run"),
    ),
    FileCase(("aiperf/rules/rank_logs.py _read",), STEPS, _path("aiperf.rules.rank_logs:_read", STEPS)),
    FileCase(
        ("analysis/readings/power_file.py read_power",),
        "site.csv",
        _command("power", "run", "site.csv", "--level", "L1"),
    ),
    FileCase(
        ("analysis/readings/power_file.py read_power",),
        "run/power/L2.csv",
        _command("score", "run"),
    ),
    FileCase(
        ("analysis/readings/telemetry.py records",),
        "run/telemetry/node1.jsonl",
        lambda folder: list(
            called("analysis.readings.telemetry:records", folder / "run/telemetry/node1.jsonl")  # type: ignore[call-overload]
        ),
    ),
    FileCase(
        ("aiperf/own_files.py OwnFile.content",),
        "findings.json",
        lambda folder: called(
            "analysis.readings.validation:decoded",
            called("aiperf.own_files:OwnFile", folder / "findings.json"),
        ),
    ),
    FileCase(
        ("analysis/exports/inference.py load_all",),
        "run/inference/0-offline.json",
        lambda folder: called("analysis.exports.inference:load_all", RunFiles(folder / "run"), None),
    ),
    FileCase(
        ("analysis/submissions/inference_folder.py _read",),
        "system.json",
        lambda folder: called("analysis.submissions.inference_folder:_read", folder / "system.json"),
    ),
    FileCase(
        ("aiperf/scenarios/detail_log.py read_entries",),
        "detail.txt",
        _path("aiperf.scenarios.detail_log:read_values", "detail.txt"),
    ),
    FileCase(
        ("analysis/submissions/loadgen_logs.py refuse_other_answers",),
        "answers.json",
        lambda folder: called(
            "analysis.submissions.loadgen_logs:refuse_other_answers",
            SimpleNamespace(entries={}, values=lambda key: [], refuse_repeated=lambda: None),
            folder / "answers.json",
            None,
            IMAGENET_1K,
            SimpleNamespace(name="offline"),
        ),
    ),
    FileCase(
        ("aiperf/on_nni/trial_messages.py call",),
        "run/nni.address",
        lambda folder: called("aiperf.on_nni.trial_messages:call", RunFiles(folder / "run")),
    ),
    FileCase(
        ("aiperf/data/folder_contents.py beginning",),
        "text",
        _path("aiperf.data.folder_contents:is_text", "text"),
        needs_torch=True,
    ),
    FileCase(
        ("aiperf/names.py Names._new_records", "aiperf/names.py _salt_of"), "run/private.jsonl", _names_of_run
    ),
    FileCase(
        ("analysis/submissions/package.py _copy_telemetry",),
        "run/telemetry/node1.jsonl",
        lambda folder: called(
            "analysis.submissions.package:_copy_telemetry",
            folder / "run/telemetry/node1.jsonl",
            folder / "copied.jsonl",
        ),
    ),
    FileCase(
        ("analysis/submissions/peaks.py read_peaks",),
        "peaks.toml",
        _path("analysis.submissions.peaks:read_peaks", "peaks.toml"),
    ),
    FileCase(("nas/bounded.py system_text",), "cpuinfo", _path("nas.bounded:system_text", "cpuinfo")),
    FileCase(("aiperf/clash.py _text",), "RECORD", _path("aiperf.clash:_text", "RECORD")),
    FileCase(
        ("aiperf/ranks/process.py _last_line",),
        "rank.log",
        _path("aiperf.ranks.process:_last_line", "rank.log"),
    ),
    FileCase(
        ("aiperf/doctor/host_report.py _sees",),
        "probe",
        lambda folder: called("aiperf.doctor.host_report:_sees", folder / "probe", "nonce", 50.0),
    ),
    FileCase(
        ("aiperf/training/kept_network.py read_any_kept",),
        "run/weights/0.safetensors",
        _path("aiperf.training.kept_network:read_any_kept", "run/weights/0.safetensors"),
        needs_torch=True,
    ),
    FileCase(
        ("aiperf/training/probe.py sees_run",),
        "run/.probe",
        lambda folder: called("aiperf.training.probe:sees_run", RunFiles(folder / "run"), "nonce"),
        needs_torch=True,
    ),
    FileCase(
        ("aiperf/inference/loadgen.py logged_answers",),
        "mlperf_log_accuracy.json",
        lambda folder: called("aiperf.inference.loadgen:logged_answers", folder),
        needs_torch=True,
    ),
    FileCase(
        ("aiperf/data/decode.py _open", "aiperf/data/decode.py check_file"),
        "images/train/cat/1.png",
        lambda folder: called("aiperf.data.decode:check_file", folder / "images/train/cat/1.png"),
        needs_torch=True,
    ),
    *(
        FileCase(
            (place,),
            name,
            lambda folder: called("aiperf.data.image_files:look", folder / "set"),
            needs_torch=True,
        )
        for place, name in (
            ("aiperf/data/idx.py _opened", "set/train-images-idx3-ubyte"),
            ("aiperf/data/idx.py _opened", "set/train-images-idx3-ubyte.gz"),
            ("aiperf/data/idx.py _begins", "set/train-labels-idx1-ubyte"),
            ("aiperf/data/cifar10.py _read", "set/test_batch.bin"),
            ("aiperf/data/packed/shards.py is_packed", "set/manifest.json"),
            ("aiperf/data/packed/shards.py read_manifest", "set/manifest.json"),
        )
    ),
    FileCase(
        ("aiperf/data/packed/shards.py mapped",),
        "shard",
        _path("aiperf.data.packed.shards:mapped", "shard"),
        needs_torch=True,
    ),
    FileCase(
        ("aiperf/data/packed/packing_record.py PackingRecord.lines",),
        "packing",
        lambda folder: list(
            called("aiperf.data.packed.packing_record:PackingRecord.lines", folder / "packing")  # type: ignore[call-overload]
        ),
        needs_torch=True,
    ),
)

ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "tests/aiperf/test_child.py": (
        "aiperf/child.py Child.__init__",
        "aiperf/commands/inferring.py _answered",
        "aiperf/doctor/own_process.py data_process",
        "aiperf/doctor/own_process.py device_process",
        "aiperf/ranks/process.py describe_device",
        "aiperf/ranks/process.py infer_data",
        "aiperf/ranks/process.py visible_devices",
    ),
    "tests/aiperf/test_programs.py": ("aiperf/programs.py ask",),
    "tests/aiperf/doctor/test_host_report.py": ("aiperf/doctor/onednn.py see_onednn",),
    "tests/nas/test_bounded.py": tuple(
        f"nas/bounded.py {name}" for name in ("_opened", "file_digest", "opened", "read_text")
    ),
    "tests/aiperf/data/texts/test_reading.py": ("aiperf/data/texts/reading.py MappedText.chunks",),
    "tests/aiperf/data/packed/test_packing.py": ("aiperf/data/packed/staging.py _blocks",),
    "tests/analysis/submissions/test_notary.py": tuple(
        f"analysis/submissions/notary.py {name}" for name in ("_Leg.read", "_folder", "_has", "_read")
    ),
    "tests/analysis/submissions/test_archive.py": (
        "analysis/submissions/unpacking.py _sealed",
        "analysis/submissions/verify.py _run",
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
        "aiperf/data/packed/packing_process.py packing_processes",
        "aiperf/on_nni/tuner.py SearchTuner.update_search_space",
        "aiperf/profiling/local_ranks.py _start",
        "aiperf/ranks/process.py WorkerProcess.__init__",
        "aiperf/rules/side_by_side.py _started",
    ),
    "this Python, without any file of a site": ("aiperf/hardware/unseen.py _try_files",),
    "a file of this program or of a library": (
        "aiperf/clash.py _again",
        "aiperf/code.py code_hash",
        "aiperf/commands/command_groups.py first_sentence",
        "aiperf/config.py preset_text",
        "aiperf/data/decode.py pillow_fault",
        "aiperf/data/digits.py _digits",
        "aiperf/data/digits.py _pinned",
        "aiperf/data/texts/loading.py bundled_text",
        "aiperf/engines/fused/build.py _digest",
        "aiperf/engines/fused/build.py _kind",
        "analysis/comparing/published.py published",
        "analysis/pages/page.py _text",
        "analysis/readings/references.py references",
        "analysis/submissions/schema.py schema",
    ),
    "a file that this program has written a moment before, or is about to": (
        "aiperf/data/packed/packing_record.py PackingRecord.__init__",
        "aiperf/data/packed/shards.py to_disk",
        "aiperf/journal/file.py JournalWriter.begin",
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
        "aiperf/telemetry/node.py _number",
        "aiperf/telemetry/node.py _text",
    ),
}
"""Places where nobody else can put anything odd, by the reason."""


def study() -> str:
    """A study of one size."""
    return json.dumps({"scheduler": "slurm", "nodes": [1], "hours": 1.0, "options": [], "config_hash": ""})
