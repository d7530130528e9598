"""A layer as a line of PyTorch, for a Python file that needs this program no more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TorchLine:
    """What computes a node: `made` once where it has weights, `computed` at each pass.

    "{own}" in them stands for its module, "{table}" for that of the embedding whose weight it computes with,
    "{0}", "{1}" for what it reads.
    """

    computed: str
    made: str = ""
    helpers: tuple[str, ...] = ()
    """Functions and classes that the lines use, each written into the file once. No node's name begins with
    an underscore, so a name that does is never taken."""

    @property
    def is_parameter(self) -> bool:
        """Whether what is made is the one tensor itself, and not a module that holds tensors."""
        return self.made.startswith("nn.Parameter(")


def side(sides: int | tuple[int, int]) -> str:
    """One number for two equal sides."""
    return str(sides[0] if isinstance(sides, tuple) and sides[0] == sides[1] else sides)


def options(*given: tuple[object, object, str]) -> str:
    """The arguments (value, torch's default, text) whose value is not the default."""
    return "".join(f", {text}" for value, default, text in given if value != default)
