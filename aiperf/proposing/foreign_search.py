"""A search of another package. It may raise anything, which becomes an error of one line that names it."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiperf.errors import AiperfError
from nas.morphisms import Morphism
from nas.search import Candidate, Exhausted, Observation, Search, entry_of
from nas.search.trials import Living
from nas.search_names import MOST_MORPHISMS


class SearchFailed(AiperfError):
    """A search of another package raised an exception that is not part of the interface."""


class ForeignSearch(Search):
    """Passes all calls on to the search. Raises SearchFailed for exceptions that are not part of the
    interface."""

    def __init__(self, name: str, made: Callable[[], Search]) -> None:
        """Makes the search. Raises ModuleNotFoundError if a library that it needs is not installed."""
        self.name = name
        with self._boundary("when it was made", ModuleNotFoundError):
            self._search = made()

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        with self._boundary("in choose"):
            return self._search.choose(rng, living)

    def ask(self, number: int, round_: int) -> Candidate:
        with self._boundary(f"when asked for trial {number}", Exhausted):
            candidate: object = self._search.ask(number, round_)
            if not isinstance(candidate, Candidate):
                raise TypeError(f"its answer is a {type(candidate).__name__}, not a Candidate")
            if (num := len(candidate.morphisms)) > MOST_MORPHISMS:
                raise ValueError(
                    f"its answer has {num:,} morphisms; at most {MOST_MORPHISMS:,} can be checked"
                )
            return candidate

    def dispatched(self, number: int, parent: int | None, morphisms: tuple[Morphism, ...]) -> Candidate:
        """Repeats a dispatch. Raises ValueError or LookupError if it cannot follow from the earlier ones."""
        with self._boundary(f"when trial {number} was repeated", ValueError, LookupError):
            return self._search.dispatched(number, parent, morphisms)

    def tell(self, observation: Observation) -> None:
        with self._boundary(f"when trial {observation.number} was reported to it"):
            self._search.tell(observation)

    def drop(self, number: int) -> None:
        with self._boundary(f"when trial {number} was dropped"):
            self._search.drop(number)

    @property
    def living(self) -> Container[int]:
        with self._boundary("in living"):
            return self._search.living

    def alive(self) -> frozenset[int]:
        with self._boundary("in alive"):
            return self._search.alive()

    @contextmanager
    def _boundary(self, when: str, *foreseen: type[Exception]) -> Iterator[None]:
        """Turns what the search raises into a SearchFailed that says when; `foreseen` exceptions pass."""
        try:
            yield
        except foreseen:
            raise
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise SearchFailed(
                f"the search {self.name!r} ({entry_of(self.name)}) failed {when}: {said} "
                f"({Path(last.filename).name}, line {last.lineno}); correct it, or choose another with "
                "--search"
            ) from error
