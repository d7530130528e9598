"""What is refused before a run or a further leg of it begins, so before anything is written or measured."""

from __future__ import annotations

from dataclasses import replace

from aiperf.config import BoundsConfig, Config, load_preset, preset_names, with_overrides
from aiperf.errors import ConfigError, JournalError
from aiperf.host.code import code_hash
from aiperf.host.secret_shapes import without_secrets, without_tokens
from aiperf.journal.events import Opened, Origin
from aiperf.journal.names import is_hidden
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import assumed
from aiperf.pretending.rank_report import refuse_no_examples, refuse_notary
from aiperf.proposing.proposals import libraries, morphism_mix, new_search, new_tuner, with_tuner
from aiperf.ranks.ranks import Ranks
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import Examples
from aiperf.wire.formats import AUTO, with_format
from aiperf.wire.layout import refuse_uneven_batch
from nas.graph import Graph
from nas.layers import ShapeError
from nas.search.growth import too_narrow
from nas.search.search import why_it_cannot_grow
from nas.seeds import SeedError, resolve_seed


def check_run(config: Config, ranks: Ranks) -> tuple[Config, Graph, str]:
    """The configuration as this installation and these ranks can run it, its seed, and a line on the tuner.
    Raises AiperfError for what is missing or does not fit, before anything is written."""
    if ranks.options.pretend:
        refuse_no_examples(config)
        refuse_notary(config)
    config, tuner_note = with_tuner(config)
    seed = starting_graph(config)
    new_search(config, seed), new_tuner(config)
    _refuse_no_growth(config, seed)
    ranks.places(config)
    return with_format(config, ranks.first_devices), seed, tuner_note


def _refuse_no_growth(config: Config, seed: Graph) -> None:
    """Refuses a seed that no morphism grows: a run of several trials would end after the first one. Raises
    ConfigError."""
    name, alone = config.seed_architecture, config.limits.max_trials == 1
    if not alone and (reason := why_it_cannot_grow(seed, morphism_mix(config))):
        raise ConfigError(
            f"seed_architecture {name!r} cannot grow: {reason}; choose another seed, or set "
            "limits.max_trials=1 to train it alone"
        )
    fewer = ", omit fewer by search.omit" if config.search.omit else ""
    if not alone and (round_ := too_narrow(seed, config.search.bounds, morphism_mix(config))):
        raise ConfigError(
            f"search.bounds: nothing that was tried grows from the seed {name!r} into the bounds of round "
            f"{round_}; widen them{fewer}, or set search.bounds.growth_rounds=0 with other bounds around 1"
        )


def virtual_config(config: Config, ranks_of_a_group: int, format: str) -> Config:
    """The configuration as a simulation can run it, neither ranked nor notarised. `format` replaces "auto".
    Raises AiperfError if it cannot be run. `ranks_of_a_group` is the number of ranks that share a batch."""
    config, _ = with_tuner(replace(config, ranked=False, notary=False))
    if config.training.format == AUTO:
        config = with_overrides(config, {"training.format": format})
    refuse_uneven_batch(config.training.batch_size, ranks_of_a_group)
    seed = starting_graph(config)
    new_search(config, seed), new_tuner(config)
    return config


def starting_graph(config: Config) -> Graph:
    """The seed of a configuration. Raises ConfigError when it does not fit the data."""
    task = task_of(config.data)
    examples = task.examples(config.data)
    try:
        graph = resolve_seed(config.seed_architecture, examples.input, examples.classes, task.seeds)
    except SeedError as error:  # it names the seed or the file
        raise ConfigError(f"seed_architecture: {error}") from None
    except ShapeError as error:
        raise ConfigError(f"seed_architecture {config.seed_architecture!r}: {error}") from None
    if (reads := Examples.of(graph)) != examples:
        named = f"seed_architecture {config.seed_architecture!r}"
        if (reads.input, reads.classes) == (examples.input, examples.classes):
            # Only a task of another package, or a file of an architecture, can have a head of its own.
            head, asked = (type(each.head).__name__ for each in (reads, examples))
            raise ConfigError(f"{named} has the head {head}; the task {task.name} asks {asked}")
        raise ConfigError(f"{named} is for {reads.text}; the data has {examples.text}")
    if not graph.num_parameters:
        raise ConfigError(f"seed_architecture {config.seed_architecture!r} has no weights to train")
    if in_vain := graph.counted_in_vain:
        raise ConfigError(
            f"seed_architecture {config.seed_architecture!r}: {in_vain}; nobody computes most of what "
            "is counted of it: use a smaller kernel, larger images or fewer experts"
        )
    return graph


def refuse_secrets(config: Config) -> None:
    """The configuration is recorded as it is used, so nothing can be left out of it. Raises ConfigError,
    without showing the value."""
    named = {**vars(config), **{f"data.{name}": value for name, value in vars(config.data).items()}}
    for name, value in named.items():
        # A folder may be named by a hash, and its path is hidden in the journal.
        without = without_tokens if name in ("data.path", "data.stage") else without_secrets
        if isinstance(value, str) and without(value) != value:
            raise ConfigError(
                f"{name} looks like a secret, such as a token or a password, or contains one, and the "
                "configuration is recorded in the journal; give it without the secret"
            )


def other_bounds_text(config: Config) -> str:
    """Says that a seed is not searched within the bounds of its preset, which are those of the preset's
    own."""
    if config.preset not in preset_names() or config.search.bounds != BoundsConfig():
        return ""
    preset = load_preset(config.preset)
    if preset.search.bounds == BoundsConfig() or preset.seed_architecture == config.seed_architecture:
        return ""
    name = config.seed_architecture
    return f"search.bounds of the preset {config.preset} are for its own seed; {name} has the default bounds"


def refuse_unknown_place(config: Config, files: RunFiles) -> None:
    """Raises JournalError if the private file lacks the line with a folder of the data."""
    for name in ("path", "stage"):
        if is_hidden(getattr(config.data, name)):
            raise JournalError(
                f"{files.private} lacks the line with data.{name}, which the journal hides; put the whole "
                "file back to continue the run, or start a new run"
            )


def refuse_other_origin(replay: Replay, ranks: Ranks, files: RunFiles) -> None:
    """Refuses to continue a measured run with pretending workers, a pretended one without, or with another
    machine model: figures of different origins cannot be added up. Raises ConfigError."""
    origin, pretend = replay.opened.origin, ranks.options.pretend
    if origin is not Origin.PRETENDED and pretend is not None:
        raise ConfigError(
            f"{files.journal} belongs to a run that was {origin.value}; resume it without --pretend"
        )
    if origin is not Origin.PRETENDED:
        return
    go_on = f"resume it with --pretend {files.assumptions}"
    if pretend is None:
        raise ConfigError(f"{files.journal}: its workers pretended to train; {go_on}")
    if assumed(str(files.assumptions)) != pretend:
        raise ConfigError(f"{files.journal}: its workers pretended with another machine model; {go_on}")


def refuse_other_program(opened: Opened, files: RunFiles) -> None:
    """Refuses a resume by another version of the program or of a library that proposes trials, because all
    proposals of a run must follow from one program. Raises JournalError."""
    if opened.code_hash != code_hash():
        raise JournalError(
            f"{files.journal} was started by another version of the program ({opened.program}, code "
            f"{opened.code_hash[:12]}); resume it with that version, or start a new run"
        )
    here = libraries(opened.config)
    if other := [f"{name} {was}" for name, was in opened.libraries.items() if here.get(name) != was]:
        raise JournalError(
            f"{files.journal}: its proposals depend on {', '.join(other)}; here it is "
            f"{', '.join(f'{name} {now}' for name, now in here.items())}; resume it with those"
        )


def refuse_edited(config: Config, files: RunFiles) -> None:
    """Refuses a run directory whose config.toml was edited after the start: the configuration is in the
    journal, so the change would silently have no effect. Raises ConfigError."""
    if files.config.exists() and load_preset(str(files.config)) != config:
        raise ConfigError(
            f"{files.config} was edited after the run started, but a run has one configuration; remove the "
            f"file to continue as before, or start a new run: aiperf-hpc run --preset {files.config}"
        )
