"""The search and the tuner that a configuration names, and the libraries that they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from aiperf.config import Config
from aiperf.errors import ConfigError, MissingExtra, installation
from aiperf.proposing.foreign_search import ForeignSearch
from aiperf.proposing.hyper import configured_point
from aiperf.tasks.data import distribution_of
from aiperf.tasks.registry import TASKS, task_of
from aiperf.wording import suggestion
from nas.graph import Graph
from nas.morphisms import Morphism
from nas.search import SEARCHES, Search, SearchError, distributions_of_search, search_named
from nas.tuning import TUNERS, Tuner, installed

DRAWS = "numpy"  # whose generator every tuner and surrogate draws from


def new_search(config: Config, seed: Graph) -> Search:
    """Raises MissingExtra; ConfigError for a search of another package that is not there, and SearchFailed
    for one that raises something."""
    settings, mix = config.search, morphism_mix(config)
    try:
        kind = search_named(settings.name)
        made = partial(
            kind, seed, config.random_seed, settings.bounds, settings.population, settings.morphisms, mix
        )
        return made() if settings.name in SEARCHES else ForeignSearch(settings.name, made)
    except SearchError as error:
        raise ConfigError(str(error)) from None
    except ModuleNotFoundError as error:
        if settings.name in SEARCHES:
            raise MissingExtra(kind.libraries[0], "run") from None
        raise ConfigError(
            f"the search {settings.name!r} needs {error.name}, which is not installed; install it"
        ) from None


def proposals_version(config: Config) -> int:
    """The version of all that decides what a run proposes. It is raised with the task's version and with the
    search's own, so that a change of one search leaves runs of the others as they were."""
    name, of_task = config.search.name, task_of(config.data).search_version(config.tuning.name)
    return of_task + (SEARCHES[name].version - 1 if name in SEARCHES else 0)


def morphism_mix(config: Config) -> Mapping[type[Morphism], float]:
    """The kinds of morphisms of a run, with the weight by which each is drawn. Raises ConfigError if one to
    be omitted is not a kind of the task, and if none is left."""
    mix, omitted = task_of(config.data).morphisms, config.search.omit
    names = [kind.__name__ for kind in mix]
    for name in omitted:
        if name not in names:
            also = suggestion(name, names) or ";"
            raise ConfigError(f"search.omit: no kind of morphism {name!r}{also} kinds: {', '.join(names)}")
    left = {kind: share for kind, share in mix.items() if share and kind.__name__ not in omitted}
    if not left:
        raise ConfigError("search.omit names every kind of morphism; leave one")
    return left


def new_tuner(config: Config) -> Tuner:
    """Raises MissingExtra."""
    kind = TUNERS[config.tuning.name]
    if not installed(kind.library):
        raise MissingExtra(kind.library, config.tuning.name)
    return kind(config.random_seed, task_of(config.data).space(configured_point(config.training)))


def with_tuner(config: Config) -> tuple[Config, str]:
    """The configuration with "auto" replaced by the tuner that is installed here, and a line that names
    it."""
    if config.tuning.name != "auto":
        return config, ""
    found = [name for name, kind in TUNERS.items() if kind.library and installed(kind.library)]
    name = (found or ["none"])[0]
    told = (
        f"hyper-parameters are tuned by {name}"
        if found
        else "hyper-parameters are not tuned: neither nni nor optuna is installed; remedy: "
        + installation("nni")
    )
    return replace(config, tuning=replace(config.tuning, name=name)), told


def libraries(config: Config) -> Mapping[str, str]:
    """Installed versions of the libraries on which the proposals depend, in addition to this program. A task
    of another package is one of them, because its morphisms are drawn.

    Raises ConfigError if the search is from another package that is not installed.
    """
    try:
        of_search = distributions_of_search(config.search.name)
    except SearchError as error:
        raise ConfigError(str(error)) from None
    of_task = distribution_of(config.data.name) if task_of(config.data) not in TASKS else ""
    wanted = [name for name in (TUNERS[config.tuning.name].library, *of_search, of_task) if name]
    if not wanted:
        return {}
    from importlib.metadata import PackageNotFoundError, version  # and with it the parsers of email

    found = {}
    for name in dict.fromkeys([*wanted, DRAWS]):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
