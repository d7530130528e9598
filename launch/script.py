"""The text of a batch script: the same steps under every scheduler, in the order in which they happen. A
section is a list of lines; `script_text` says their order. `scheduler.py` has what a scheduler words in its
own way, and what it does not have is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from shlex import join, quote

from aiperf.errors import ConfigError
from aiperf.journal.run_files import RunFiles
from aiperf.journal.words import TERMINATED, TESTED
from launch.job import WARNING_SECONDS, Job
from launch.scheduler import TORCHRUN, Launcher, Scheduler, marked
from launch.shell_text import line, path_word
from launch.site import Site

WIDTH = 100
"""Columns of a line of words; directives may be longer."""

KNOW_MODULE = "type module >/dev/null 2>&1 || source /etc/profile # a batch shell is not a login shell"
"""Line that defines `module`, if the batch shell does not know it."""
FOUND = (
    'type -P "${program[0]}" >/dev/null ||',
    '    { echo "${program[0]} is not in PATH; edit the line below EDIT 3" >&2; exit 1; }',
)
"""Lines that stop the job if the program is not on PATH, before any rank starts."""
# Other users know the number of a job, and could make the folder first, or a link with its name.
OWN_FOLDER = (
    '"${each[@]}" bash -c \'mkdir -pm 700 "$1" && [[ -O $1 && ! -L $1 ]] ||',
    '    { echo "$HOSTNAME: $1 does not belong to this user; set scratch.directory" >&2; exit 1; }\' \\',
    '    _ "$scratch" || exit 1',
)
STRICT = "set -uo pipefail # only now, because a site's scripts may read variables that are not set"
"""Line from which on a variable that is not set is an error."""
COMPLETE, STOPPED = f'"type":"{TESTED}"', f'"reason":"(error: )?{TERMINATED}'
"""Patterns of the last line of a journal: of a run that has its test, and of one that was stopped in time."""


def script_text(scheduler: Scheduler, site: Site, job: Job) -> str:
    """The whole script. Raises ConfigError where the site cannot do what the job wants."""
    launcher = scheduler.chosen_launcher(site.mpi)
    if launcher is TORCHRUN and job.nodes > 1:
        raise ConfigError(f"mpi.launcher is torchrun, which starts ranks on one node; --nodes is {job.nodes}")
    if job.repeat > 1 and not scheduler.element:
        raise ConfigError(
            f"--repeats is {job.repeat}, but {scheduler.name} has no arrays of jobs; submit one job for each "
            "run"
        )
    one = [
        _ranks(scheduler, [*launcher.ranks(site.mpi), *scheduler.rank_options(site)]),
        _staging(scheduler, site, launcher),
        _doctor(site),
        _run(scheduler, launcher, job),
    ]
    sections = [
        scheduler.directives(site, job),
        [*([scheduler.workdir] if scheduler.workdir else []), *_setup(site, launcher)],
        _wanted(scheduler, job),
        _machine(scheduler, site, job),
        _warning(scheduler, launcher),
        *([_each_size(job, one)] if job.sizes else one),
        *([_spread(scheduler, job)] if job.repeat > 1 else []),
        _end(scheduler, launcher),
    ]
    return scheduler.document(site, job, _title(scheduler, job), _paragraphs(sections))


def table_text(scheduler: Scheduler, site: Site, job: Job, study: Path) -> str:
    """The script that makes a study's table when its jobs have ended: one process, no device."""
    line("the directory of the study", str(study))
    machine = replace(site, devices=replace(site.devices, per_node=1, request="none", cores_per_node=0))
    status = f'"${{program[@]}}" launch status {quote(str(study))} --table'
    sections = [
        ["# The table of a scaling study.", *scheduler.directives(machine, job)],
        [*([scheduler.workdir] if scheduler.workdir else []), *_setup(machine)],
        [status],
    ]
    return "#!/usr/bin/env bash\n" + _paragraphs(sections)


def _title(scheduler: Scheduler, job: Job) -> list[str]:
    """Comments at the top: what the script is for, and how it is submitted."""
    where = "one node" if job.nodes == 1 else "several nodes"
    if job.sizes:
        where = f"{', '.join(map(str, job.sizes))} nodes, one after another: weak scaling in one job"
    how = f"then: {join(scheduler.submit())} < THIS FILE"
    if scheduler.by_hand:
        how = f"then: {scheduler.by_hand} THIS FILE [options of `aiperf-hpc run`]"
    return [f"# aiperf-hpc on {where}.", f"# Edit the line below each EDIT, {how}"]


def _setup(site: Site, launcher: Launcher | None = None) -> list[str]:
    """Modules, variables, and where the program is.

    The site's variables come after its modules, which may set the same ones, and shell options after both.
    Without a launcher the variables of MPI are left out, as in the script of a table.
    """
    lines = []
    if site.modules:
        lines = [KNOW_MODULE, "module purge", f"module load {join(site.modules)} || exit 1"]
    if launcher and launcher.environment:
        lines += [f"# {launcher.why}"]
        lines += [f"export {name}={value}" for name, value in launcher.environment.items()]
    lines += [f"export {name}={quote(value)}" for name, value in site.environment.items()]
    program = ["aiperf-hpc"]
    if site.container.image:
        program = [site.container.command, "exec", *site.container.options]
        program += [path_word(site.container.image), "aiperf-hpc"]
    own = [*site.setup, f"program=({' '.join(program)})"]
    edited = max(0, len(site.setup) - 1)
    own[edited : edited + 1] = marked(own[edited], 3, "where the program is")
    return [*lines, *own, *FOUND, STRICT]


def _wanted(scheduler: Scheduler, job: Job) -> list[str]:
    """The run's options and its directory, which is the same when the job is queued again. AIPERF_DIRECTORY
    is the directory of a run to be continued, unless the job has one of its own."""
    options = join([*job.options, "--hours", f"{job.hours:g}"])
    job_id = scheduler.array_id if job.repeat > 1 else scheduler.job_id
    own = f"${{AIPERF_DIRECTORY:-runs/{job.name}-${job_id}}}"
    lines = ["# Options of the run.", f"set -- {options}"]
    if scheduler.by_hand:
        lines = ["# Options of the run: those given to this script, otherwise these."]
        lines += [f"(($#)) || set -- {options}"]
    return [
        *lines,
        "# The run directory: one per job, and the same one if the job is requeued.",
        *["# Each repeated run has a subdirectory."] * (job.repeat > 1),
        f"directory={quote(job.directory) if job.directory else own}",
    ]


def _machine(scheduler: Scheduler, site: Site, job: Job) -> list[str]:
    """Lines that set the numbers of nodes, devices and cores."""
    return [
        *([] if job.sizes else [f"nodes={scheduler.nodes}"]),
        *scheduler.devices(site),
        *scheduler.cores(site),
    ]


def _warning(scheduler: Scheduler, launcher: Launcher) -> list[str]:
    """Lines that pass a warning on. They come before all others, so that a warning during `doctor` counts,
    too. Until the run has begun, the warning is only noted, and the run is then not started."""
    return [
        "# A warning before the job's limit is passed on to the run, which stops in time.",
        "run= warned=",
        f"trap 'warned=1; [[ -z $run ]] || {launcher.warn}' {scheduler.warnings}",
    ]


def _ranks(scheduler: Scheduler, words: list[str]) -> list[str]:
    """Lines that say where ranks are, and set the words that start one at each of these places. `$hosts` then
    has a line for each rank, the master's first."""
    return [
        *scheduler.host_lines(),
        "ranks=(",
        *_filled(words),
        ")",
    ]


def _staging(scheduler: Scheduler, site: Site, launcher: Launcher) -> list[str]:
    """Lines that make a folder on each node, copy the data there, and remove it at the end; none without a
    local disk. The trap also removes what a job leaves that ends early."""
    if not site.scratch.directory:
        return []
    stage = site.scratch.stage
    return [
        "# A folder for this job on the local disk of every node; it is removed at the end.",
        "once=$(mktemp)",
        'uniq "$hosts" >"$once"',
        f"export scratch={path_word(f'{site.scratch.directory}/aiperf-hpc-${scheduler.job_id}')}",
        "export TMPDIR=$scratch",
        f"each=({' '.join(launcher.once_a_node)})",
        'trap \'"${each[@]}" rm -rf "$scratch"; rm -f "$hosts" "$once"\' EXIT',
        *OWN_FOLDER,
        *([f'"${{each[@]}}" bash -c {quote(stage)} || exit 1'] if stage else []),
    ]


def _doctor(site: Site) -> list[str]:
    """Lines that check the machine before the run: an hour of waiting must not end in a missing library. A
    check that a warning ended is no failure."""
    words = ['"${ranks[@]}"', '"${program[@]}"', "doctor"]
    words += [f"--wait-seconds {site.doctor_seconds:g}"] * bool(site.doctor_seconds)
    words += ['--directory "$directory"', '"$@"']
    return [
        "# Check that the machine is ready for this run.",
        f"{' '.join(words)} || [[ -n $warned ]] || exit 1",
    ]


def _run(scheduler: Scheduler, launcher: Launcher, job: Job) -> list[str]:
    """Lines that make the run in the background, because bash handles no signal while a command runs in the
    foreground.

    A signal interrupts `wait` with a code above 128, although the run goes on; so the script waits again.
    75 is the code of a run that was stopped in time and can be continued. The run itself is always started
    with `--resume`: a job that was queued again continues, and a new one has nothing to continue."""
    words = ['"${ranks[@]}"', '"${program[@]}"', "run", "--resume", '"$@"']
    words += [f'--directory "{_place(scheduler, job)}"']
    if not job.ranked and (job.sizes or job.repeat > 1):
        words += [f'--random-seed "${"nodes" if job.sizes else scheduler.element}"']
    if not scheduler.warns:
        words = [
            f"timeout --preserve-status --signal=USR1 $(({job.limit_seconds - WARNING_SECONDS} - SECONDS))",
            *words,
        ]
    return [
        "# The run, unless the job has been warned already.",
        "code=75",
        "if [[ -z $warned ]]; then",
        f"    {' '.join(words)} &",
        "    run=$!",
        f"    [[ -z $warned ]] || {launcher.warn} # it was warned before $run was known",
        '    wait "$run"',
        "    code=$?",
        '    while ((code > 128)) && kill -0 "$run" 2>/dev/null; do',
        '        wait "$run"',
        "        code=$?",
        "    done",
        '    ((code <= 128)) || { wait "$run"; code=$?; } # it ended right after a warning',
        "    run=",
        "    # A launcher may return 0 when its job is preempted; a complete run has a test at its end.",
        f"    ((code)) || tail -n 1 {_journal(scheduler, job)} | grep -q {quote(COMPLETE)} || code=75",
        "    # A warning kills a rank whose libraries are still being loaded; MPICH returns the bare signal.",
        "    [[ -z $warned ]] || ((code % 128 != $(kill -l USR1))) || code=75",
        *_lost_code(scheduler, launcher, job),
        *_pretended_code(launcher, job),
        "fi",
    ]


def _pretended_code(launcher: Launcher, job: Job) -> list[str]:
    """Lines that take the verdict SIMULATED for success, because the user chose workers that pretend."""
    if not job.pretends:
        return []
    return [f"    ((code == 4)) && code=0 && {_explained(launcher, 4, 'nothing was measured')}"]


def _explained(launcher: Launcher, code: int, means: str) -> str:
    """Shell that explains an exit code other than 0, which a launcher such as srun reports as an error."""
    return f'echo "{launcher.name} may report exit code {code} as an error; it only means that {means}"'


def _lost_code(scheduler: Scheduler, launcher: Launcher, job: Job) -> list[str]:
    """Lines that find out from the journal whether a run was stopped in time, for a launcher that loses the
    exit code."""
    if launcher is not TORCHRUN:
        return []
    told = f"tail -n 1 {_journal(scheduler, job)} | grep -qE {quote(STOPPED)}"
    return [
        "    # torchrun does not return the exit code of a rank.",
        f"    [[ -n $warned ]] && {told} && code=75",
    ]


def _journal(scheduler: Scheduler, job: Job) -> str:
    """Shell text of the path of the journal."""
    return f'"{RunFiles(Path(_place(scheduler, job))).journal}"'


def _place(scheduler: Scheduler, job: Job) -> str:
    """The directory of one of the job's runs. Runs of several sizes have a folder for each number of nodes,
    repeated ones for each number of the array."""
    if job.sizes:
        return "$directory/$nodes"
    return f"$directory/${scheduler.element}" if job.repeat > 1 else "$directory"


def _each_size(job: Job, one: Iterable[list[str]]) -> list[str]:
    """A loop over the sizes around the lines of one run, and the table of the study after it. A size that
    failed ends the loop: larger ones cost more, and there may be no time left for them."""
    body = _paragraphs(one).splitlines()
    return [
        f"for nodes in {' '.join(map(str, job.sizes))}; do",
        *(f"    {line}" if line else "" for line in body),
        "    ((code == 0)) || break",
        "done",
        '((code == 0)) && "${program[@]}" scaling "$directory"/[0-9]* --output "$directory/scaling"',
    ]


def _spread(scheduler: Scheduler, job: Job) -> list[str]:
    """Lines that show how far repeated runs differ, from the second one on."""
    return [
        "# The spread of the runs, once there are several.",
        f'((code == 0 && {scheduler.element} > 1)) && "${{program[@]}}" spread "$directory"',
    ]


def _end(scheduler: Scheduler, launcher: Launcher) -> list[str]:
    """Lines that say how it ended, and queue the job again if the run can be continued. Exit code 75 is a run
    that can be continued, anything else but 0 a failure."""
    return [
        "case $code in",
        *_done(scheduler),
        "75)",
        '    echo "stopped in time; can be continued: $directory"',
        f"    {_explained(launcher, 75, 'the run can be continued')}",
        *(f"    {line}" for line in scheduler.requeue),
        "    ;;",
        '*) echo "failed with exit code $code: $directory" >&2 ;;',
        "esac",
        'exit "$code"',
    ]


def _done(scheduler: Scheduler) -> list[str]:
    """The lines of a complete run."""
    end = 'echo "done: $directory"'
    if not scheduler.done:
        return [f"0) {end} ;;"]
    return ["0)", f"    {end}", *(f"    {line}" for line in scheduler.done), "    ;;"]


def _paragraphs(sections: Iterable[list[str]]) -> str:
    """Sections with an empty line between them; empty ones are left out."""
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _filled(words: Iterable[str]) -> list[str]:
    """Words in lines of up to 100 columns."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else f"    {word}"
    return lines
