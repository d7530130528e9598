"""A first site file, from what a machine's own commands answer. `aiperf-hpc launch init-site` runs the
commands and writes the file; this makes its text from their answers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiperf.host.programs import rows
from aiperf.host.variables import number
from aiperf.wording import counted
from nas.frozen import frozen

MARK = "aiperf-hpc:modules"
"""Stands before and after the modules: a site's profile may greet, and say goodbye."""
# The commands that are run; the answer of one that is missing or fails is left out.
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "sinfo": ("sinfo", "--noheader", "--format=%P|%D|%c|%G|%l|%a"),
    "mpi": ("srun", "--mpi=list"),
    "accounts": ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=account,user"),
    "devices": ("nvidia-smi", "--list-gpus"),
    "modules": ("bash", "-lc", f"echo {MARK}; module -t list 2>&1 && echo {MARK}"),
}
Answers = Mapping[str, str]
"""What the commands printed, by the name of the question."""
FORMS: Mapping[str, str] = {
    "sinfo": r"([\w.,:@/+=%-]+)(\*?)\|(\d{1,9}(?:\.\d+)?[KMG]?)\|(\d{1,9})(\+?)"
    r"\|([^|]*)\|([\w:.,/ -]*)\|(\w+)",
    "accounts": r"([\w.,:@/+=%-]*)\|([\w.,:@/+=%-]*)",
}
"""What a line of an answer is; a cluster's heading and a site's banner are other lines."""
PLUGINS = ("pmix", "pmi2", "cray_shasta")
"""Values of srun --mpi, the best first."""
REQUEST = '"gpus", "none", or the name of a resource, such as "npu"'
"""What `devices.request` may be."""
HEAD = "# What a batch script must know about this machine, as found by `launch init-site`: check it.\n"
"""First line of a draft."""
GUESSED = "guessed: check this"
"""Marks a value that no command of the machine reported, or of which several were reported."""


@frozen
class Partition:
    """A partition as `sinfo` reports it."""

    name: str
    is_default: bool
    nodes: int
    cores: int
    alike: bool
    """Whether all nodes have the same number of cores."""
    resource: str
    """Name of its accelerators as the scheduler knows them: gpu, npu; empty for none."""
    kinds: Mapping[str, int]
    """Number of devices of a node by kind: a100; empty if the scheduler knows none."""
    limit: str
    """Longest time of a job, as Slurm writes it."""

    @property
    def devices(self) -> int:
        """Number of devices of a node."""
        return sum(self.kinds.values())


def partitions(sinfo: str) -> list[Partition]:
    """The partitions that are up, the likeliest first: with accelerators, then the default one, then the
    largest. `sinfo` is its output, a line for each partition and kind of node."""
    found = []
    for row in rows(sinfo, FORMS["sinfo"]).found:
        name, default, nodes, cores, several, resources, limit, state = row.groups()
        if state == "up":
            resource, kinds = _devices(resources)
            alike = not several  # 64+: nodes of several sizes
            found.append(
                Partition(name, bool(default), _nodes(nodes), int(cores), alike, resource, kinds, limit)
            )
    return sorted(found, key=lambda each: (not each.devices, not each.is_default, -each.nodes))


def skipped(answers: Answers) -> Mapping[str, tuple[str, ...]]:
    """Lines of each answer that are of another form than expected, by the name of the command. They are
    shown, so that a site's own form of an answer is noticed."""
    return {QUESTIONS[name][0]: rows(answers.get(name, ""), form).skipped for name, form in FORMS.items()}


def site_text(answers: Answers, user: str, setup: str) -> str:
    """A site file to be read and edited; `setup` is a line of shell that finds this installation."""
    known = partitions(answers.get("sinfo", ""))
    first = known[0] if known else None
    devices = first.devices if first else 0
    alike = (
        first is not None
        and len(first.kinds) == 1
        and all(each.kinds == first.kinds for each in known if each.name == first.name)
    )
    counted = sum(line.startswith("GPU ") for line in answers.get("devices", "").splitlines())
    request = "gpus" if first is None or first.resource in ("gpu", "") else first.resource
    accounts = _accounts(answers.get("accounts", ""), user)
    plugins = [name for name in PLUGINS if re.search(rf"\b{name}\b", answers.get("mpi", ""))]
    launcher = "srun" if "mpi" in answers else "mpiexec"
    # Guessed is a default, one of several answers, and what this host has, which need not be a compute node.
    lines = [
        _line(
            "modules",
            f"[{_loaded(answers.get('modules', ''))}]",
            "loaded in this order, after `module purge`",
            "modules" in answers,
        ),
        _line("setup", f"[{_quoted(setup)}]", "commands that put `aiperf-hpc` on PATH"),
        _line("name", _quoted(""), "of the machine, for the titles of reports; empty: not shown"),
        _line("owner", _quoted(""), "owner of the machine; empty: not shown"),
        _line("doctor_seconds", "0.0", "time limit of the check before each run; 0: its default of 50 s"),
        _line("price", _quoted(""), 'of a node, such as "12.5USD/node-hour", for `cost` and `report`'),
        _heading("queue", _seen_partitions(known)),
        _line("account", _quoted(accounts[0] if accounts else ""), _others(accounts), len(accounts) == 1),
        _line("partition", _quoted(first.name if first else ""), "", len(known) == 1),
        _line("options", "[]", 'further options of sbatch, such as "--constraint=h100"'),
        _line("parallel_environment", _quoted(""), "for SGE: one of `qconf -spl`"),
        _heading("devices"),
        _line(
            "per_node",
            str(devices or counted or 1),
            f"devices of a node, one rank for each{_kinds(first)}",
            bool(devices) and alike,
        ),
        _line("request", _quoted(request if devices or counted else "none"), REQUEST, bool(devices)),
        _line(
            "cores_per_node",
            str(first.cores if first else 0),
            "for PBS, LSF and SGE; Slurm reports them",
            first is not None and first.alike,
        ),
        _heading("mpi"),
        _line(
            "launcher",
            _quoted(launcher),
            "srun, mpiexec or mpirun; torchrun inside one node",
            "mpi" in answers,
        ),
        _line("plugin", _quoted([*plugins, "pmix"][0]), f"of srun --mpi{_and(plugins[1:])}", bool(plugins)),
        _line("options", "[]", "of the launcher"),
        _heading("container"),
        _line("image", _quoted(""), "an Apptainer image that holds the program; empty: none"),
        _heading("scratch"),
        _line("directory", _quoted(""), 'on each node\'s own disk, such as "/local"; empty: none'),
        _line("stage", _quoted(""), "run once on every node, to copy the images into $scratch"),
        _heading("environment"),
    ]
    return HEAD + "".join(lines)


def _heading(name: str, comment: str = "") -> str:
    """The beginning of a table of TOML, with a comment of several lines."""
    return f"\n[{name}]\n" + "".join(f"# {line}\n" for line in comment.splitlines())


def _line(name: str, value: str, comment: str, is_known: bool = True) -> str:
    """A key with its value and a comment. `is_known`: whether the value need not be checked by a person."""
    words = "; ".join(filter(None, ("" if is_known else GUESSED, comment)))
    return f"{f'{name} = {value}':<34} # {words}".rstrip(" #") + "\n"


def _nodes(text: str) -> int:
    """The number of nodes, which sinfo shortens: 1.2K."""
    return round(float(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1))


def _devices(resources: str) -> tuple[str, Mapping[str, int]]:
    """Name of the first kind of accelerators in Slurm's list of generic resources, and their number by kind:
    gpu:a100:8(S:0-1),nvme:1."""
    first, kinds = "", dict[str, int]()
    for resource in re.sub(r"\(.*?\)", "", resources).split(","):  # (S:0,2): of sockets
        name, *words = resource.strip().split(":")
        count = number(words[-1]) if words else None
        if name in ("gpu", "npu", "xpu", "dcu", "mlu") and count and first in ("", name):
            first, kind = name, words[0] if words[1:] else ""
            kinds[kind] = kinds.get(kind, 0) + count
    return first, kinds


def _kinds(first: Partition | None) -> str:
    """What a person must decide where a node has devices of several kinds."""
    if first is None or len(first.kinds) < 2:
        return ""
    told = " + ".join(f"{count} x {kind or first.resource}" for kind, count in first.kinds.items())
    return f"; {told} of different kinds: to use one kind, count it alone, and request it in options"


def _accounts(answer: str, user: str) -> list[str]:
    """Accounts that this user may charge, sorted."""
    told = (row.groups() for row in rows(answer, FORMS["accounts"]).found)
    return sorted({account for account, owner in told if owner == user and account})


def _loaded(answer: str) -> str:
    """The modules in the output of `module -t list`: a heading, then one name per line. Without the mark, the
    whole output is read."""
    own = answer.split(MARK)[1] if MARK in answer else answer
    names = rows(own, r"[\w.+-]+(/[\w.+-]+)*").found
    return ", ".join(_quoted(name[0]) for name in names)


def _seen_partitions(known: list[Partition]) -> str:
    """One line per partition, so that a person can choose another one."""
    return "\n".join(
        f"{each.name}: {counted(each.nodes, 'node')}, {counted(each.cores, 'core')}"
        f"{f', {each.devices} x {each.resource}' if each.devices else ''}, up to {each.limit}"
        for each in known
    )


def _others(accounts: list[str]) -> str:
    """The comment on the account: the others that would work."""
    return f"or {', '.join(accounts[1:])}" if accounts[1:] else "account that jobs are charged to"


def _and(plugins: list[str]) -> str:
    """The comment on the plugin of MPI: the others that would work."""
    return f"; {', '.join(plugins)} would also work" if plugins else ""


def _quoted(text: str) -> str:
    """The text as a string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
