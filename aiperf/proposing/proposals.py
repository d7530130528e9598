"""The search and the tuner that a configuration names, and the libraries that they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from aiperf.config import Config
from aiperf.errors import MissingExtra
from nas.graph import Graph
from nas.search import SEARCHES, Search
from nas.tuning import TUNERS, Tuner, installed

SEARCH_VERSION = 1
"""Of all that decides what is proposed: searches, morphisms, tuners, epochs and hyper-parameters of a trial.
Raised only when a run would be proposed other trials than before, so that a journal written by older code can
still be checked against the search that it was made by."""

LIBRARY_OF_A_SEARCH = {"bayesian": "scikit-learn"}  # of the extra run
DRAWS = "numpy"  # whose generator every tuner and surrogate draws from
FITTED = ("foresight",)  # searches that fit by it alone


def new_search(config: Config, seed: Graph) -> Search:
    """Raises MissingExtra."""
    settings = config.search
    try:
        return SEARCHES[settings.name](
            seed, config.random_seed, settings.bounds, settings.population, settings.morphisms
        )
    except ModuleNotFoundError:
        raise MissingExtra(LIBRARY_OF_A_SEARCH[settings.name], "run") from None


def new_tuner(config: Config) -> Tuner:
    """Raises MissingExtra."""
    kind = TUNERS[config.tuning.name]
    if not installed(kind.library):
        raise MissingExtra(kind.library, config.tuning.name)
    return kind(config.random_seed)


def resolved(config: Config) -> tuple[Config, str]:
    """The configuration with the tuner that "auto" comes to here, and a line that says which."""
    if config.tuning.name != "auto":
        return config, ""
    found = [name for name, kind in TUNERS.items() if kind.library and installed(kind.library)]
    name = (found or ["none"])[0]
    told = (
        f"hyper-parameters are tuned by {name}"
        if found
        else "hyper-parameters are not tuned: neither nni nor optuna is installed; remedy: pip install "
        "'aiperf-hpc[nni]'"
    )
    return replace(config, tuning=replace(config.tuning, name=name)), told


def libraries(config: Config) -> Mapping[str, str]:
    """Versions of those that the proposals follow from, beside this program; of what is installed."""
    wanted = [TUNERS[config.tuning.name].library] if TUNERS[config.tuning.name].library else []
    wanted += [LIBRARY_OF_A_SEARCH[config.search.name]] if config.search.name in LIBRARY_OF_A_SEARCH else []
    found = {}
    for name in [*wanted, DRAWS] if wanted or config.search.name in FITTED else []:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
