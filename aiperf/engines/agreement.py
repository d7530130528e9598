"""Checks that an engine makes the same step as the eager one: the same loss and gradients, within a bound."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import isfinite, sqrt
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from aiperf.device.device import SIXTEEN_BIT, memory_errors
from aiperf.engines.engine import Engine, has_layout_of, unchanged
from aiperf.wording import gist
from nas.frozen import frozen
from nas.modules import Network

log = logging.getLogger(__name__)

BOUNDS: Mapping[str, float] = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 2e-2, "fp16": 2e-2}
"""Relative difference of the loss, and of each tensor's gradient, from the expected one that is allowed, by
number format. Another order of additions makes a smaller difference."""
ROUNDINGS: Mapping[str, float] = {"whole": 2.0, "tensor": 6.0}
"""Additional difference that is allowed, as a multiple of the difference between the eager step and one in
higher precision, for all gradients together and for each tensor's. In bf16 the gradients of deep networks are
off by a tenth; in fp32 a sum over many examples loses digits. If the step is compared with the eager one
instead of the precise one, once more is allowed, because both are rounded. The largest multiples that were
seen are 1.2 and 3.1 (docs/limits.md)."""
NUM_BATCHES = 3
"""Number of batches on which a step must differ before its engine is refused. An activation close to 0 may be
rounded to either side of it, which changes a part of the gradient: of 48 batches of random examples, torch's
own eager step of the same examples in another order was beyond the bounds on 6."""
FEW = 16
"""Examples of the step in higher precision, unless a CPU makes it in fp64. A step of a whole batch in fp32
would take long, and twice the memory of the one in 16 bits."""

FACTOR_STEP = 16.0
"""Divisor of the factor of the loss in fp16, as long as gradients overflow. From the 2^13 of a trial, at most
four more steps are made."""
LEAST = 1e-30
"""Size of a gradient that is divided by, at least. It keeps a gradient that is exactly zero from a division
by zero."""

ELSEWHERE = "on another rank of its group"
"""Reason on the ranks on which nothing failed; the rank on which it did knows more."""

StepResult = tuple[Tensor, dict[str, Tensor]]
"""The loss () of a step, and its gradients by name."""
Work = TypeVar("Work")


@frozen
class Precise:
    """A step in higher precision, and if it is one of fewer examples, the eager step of these."""

    exact: StepResult
    rounded: StepResult | None = None
    """The eager step of the same few examples, which shows how far rounding takes a step. None if `exact` has
    the whole batch."""


Expected = tuple[StepResult, Precise | None]
"""The eager step, and the one in higher precision if there is one."""


@frozen
class Rounding:
    """Distances of the eager step from the exact one: of the loss, of each gradient, of all together."""

    loss: float
    tensors: Mapping[str, float]
    whole: float
    """That of all gradients as one vector."""


class Collectives(Protocol):
    """The collectives that are used here, a part of `aiperf.parallel.parallel.Parallel`."""

    ranks: int

    def sum(self, values: Tensor) -> Tensor: ...

    def total(self, *numbers: int) -> tuple[int, ...]: ...


def prepare_and_check(
    kind: type[Engine], eager: Engine, examples: Tensor, labels: Tensor, group: Collectives
) -> tuple[Engine, str]:
    """An engine of that kind, prepared and checked, and an empty reason; or the eager one, and the reason why
    no rank of the group uses the engine.

    A compiler, or a library that is captured, may raise anything, which is then the reason. As long as one
    rank may fail alone, no other rank waits for it: the preparation uses no collectives, and afterwards all
    ranks agree. The steps of a wrapped network do use collectives: what they raise is raised here, and ends
    the group as it does in any step. `examples` and `labels` are the first batch of the trial. The engine is
    prepared with them in another order, so that a captured step that ignores its inputs is detected.
    """

    with _factor_restored(eager.passes.scaler):
        # The eager step comes before the preparation, and frees its memory: a graph keeps its own.
        first = _eager_step(eager, examples, labels) if eager.is_wrapped else None

        def prepared() -> tuple[Expected, Engine]:
            by_eager = first or _eager_step(eager, examples, labels)
            expected = by_eager, _precise(eager, examples, labels)
            return expected, _prepared(kind, eager, examples.flip(0), labels.flip(0))

        made, reason = _tried(kind.name, group, prepared)
        if made is None or reason:
            return eager, reason
        expected, engine = made
        if eager.is_wrapped:  # only once: what its steps raise ends the group, and memory may be short by now
            reason = _of_all(group, _differs(eager, engine, examples, labels, group, expected))
        else:
            reason = _differs_always(eager, engine, examples, labels, group, expected)
        if reason:
            engine.release()
            return eager, reason
        return engine, ""


def _differs_always(
    eager: Engine, engine: Engine, examples: Tensor, labels: Tensor, group: Collectives, expected: Expected
) -> str:
    """How the engine's step differs on this batch, if it also differs on other ones, on any rank; or what it
    raised. Empty if it agrees on one of them. The number of rounds is the same on all ranks, because they
    agree on each result before the next one."""
    reason = ""
    for places in range(NUM_BATCHES):
        known = None if places else expected
        differs = partial(_differs, eager, engine, _moved(examples, places), labels, group, known)
        found, raised = _tried(engine.name, group, differs)
        here = raised or _of_all(group, found or "")
        if not here:
            return ""
        reason = reason or here
        if raised:
            break
    return reason


def _moved(examples: Tensor, places: int) -> Tensor:
    """Other examples of the same kind and layout: each moved along its last dimension."""
    # `empty_like` keeps the strides of the examples; a captured or compiled step may depend on them.
    return torch.empty_like(examples).copy_(examples.roll(places, -1)) if places else examples


def _differs(
    eager: Engine,
    engine: Engine,
    examples: Tensor,
    labels: Tensor,
    group: Collectives,
    expected: Expected | None,
) -> str:
    """How the engine's step differs from the expected one on this rank; empty if it does not."""
    by_eager, precise = expected or (_eager_step(eager, examples, labels), _precise(eager, examples, labels))
    if eager.is_wrapped:
        precise = _over_group(precise, group)
    return _compared(BOUNDS[eager.passes.format], precise, by_eager, _made(engine, examples, labels))


def prepare_only(
    kind: type[Engine], eager: Engine, examples: Tensor, labels: Tensor, group: Collectives
) -> tuple[Engine, str]:
    """The same without the check, for an engine that is not made anew for each network, and made the step of
    the run's typical network correctly before the span."""

    engine, reason = _tried(kind.name, group, lambda: _prepared(kind, eager, examples, labels))
    return (eager, reason) if engine is None or reason else (engine, "")


def prepare_again(engine: Engine, examples: Tensor, labels: Tensor, group: Collectives) -> str:
    """Prepares an engine again after the group has moved its network's tensors. Returns the reason why it can
    make no further steps, on any rank; empty if it can. `examples` and `labels` are a batch of the usual
    shape."""

    def again() -> None:
        with unchanged(engine.passes):
            engine.moved(examples, labels)

    return _tried(engine.name, group, again)[1]


def difference(eager: Engine, other: Engine, examples: Tensor, labels: Tensor) -> str:
    """How the step of `other` differs from the eager one on this batch and rank; empty if it does not.

    `other` is prepared on the same examples in another order, so that a step that ignores its examples is
    detected. Statistics and the random state are restored, gradients are removed. Raises what `other` raises.
    """
    with _factor_restored(eager.passes.scaler):
        by_eager, precise = _eager_step(eager, examples, labels), _precise(eager, examples, labels)
        with unchanged(eager.passes):
            other.prepare(examples.flip(0), labels.flip(0))
        return _compared(BOUNDS[eager.passes.format], precise, by_eager, _made(other, examples, labels))


def _prepared(kind: type[Engine], eager: Engine, examples: Tensor, labels: Tensor) -> Engine:
    """An engine of that kind for the same passes, prepared. It steps through the wrapped module if the eager
    one does, so that its gradients are averaged over the group too. Raises what its preparation raises."""
    engine = kind(eager.passes)
    engine.module = eager.module if eager.is_wrapped else engine.module
    try:
        with unchanged(eager.passes):
            engine.prepare(examples, labels)
    except BaseException:
        engine.release()
        raise
    return engine


def _tried(name: str, group: Collectives, work: Callable[[], Work]) -> tuple[Work | None, str]:
    """The result of the work, and the reason why it failed on any rank of the group; empty if it did not.
    Whatever is raised becomes a reason: a compiler and a capture are foreign code."""
    found, reason = None, ""
    try:
        with memory_errors():
            found = work()
    except Exception as error:
        log.exception("no %s steps", name)
        reason = gist(f"{type(error).__name__}: {error}")
    return found, _of_all(group, reason)


def _of_all(group: Collectives, reason: str) -> str:
    """The reason of this rank, or a note that another rank has one; empty if none has."""
    # A collective: every rank of the group calls this function equally often.
    (failing,) = group.total(int(bool(reason)))
    return reason or (ELSEWHERE if failing else "")


def _over_group(own: Precise | None, group: Collectives) -> Precise | None:
    """The steps with gradients averaged over all ranks, as a wrapped network makes them; None if one rank has
    no step in higher precision."""
    if _of_all(group, "" if own else "none") or own is None:
        return None

    def averaged(step: StepResult) -> StepResult:
        return step[0], {name: group.sum(gradient) / group.ranks for name, gradient in step[1].items()}

    return Precise(averaged(own.exact), own.rounded and averaged(own.rounded))


def _precise(eager: Engine, examples: Tensor, labels: Tensor) -> Precise | None:
    """The step in higher precision, by the bare network on this rank's own examples: in fp64 on a CPU, in
    fp32 and of FEW examples if the device multiplies in 16 bits. None in other cases, and if there is not
    enough memory."""
    passes = replace(eager.passes, format="fp32")
    engine, device = Engine(passes), passes.device
    if device.kind == "cpu" and not eager.is_wrapped:
        with _doubled(passes.network):
            wide = examples.double() if examples.is_floating_point() else examples
            return Precise(_made(engine, wide, labels))
    if eager.passes.format not in SIXTEEN_BIT:
        return None
    few = examples[:FEW], labels[:FEW]
    try:
        with memory_errors(), device.untuned():
            return Precise(_made(engine, *few), _made(Engine(eager.passes), *few))
    except torch.OutOfMemoryError:
        device.clean()
        return None


@contextlib.contextmanager
def _doubled(network: Network) -> Iterator[None]:
    """A context in which the network's tensors are fp64. Afterwards they are exactly what they were, because
    fp64 contains all fp32 values."""
    network.double()
    try:
        yield
    finally:
        network.float()


def _eager_step(eager: Engine, examples: Tensor, labels: Tensor) -> StepResult:
    """The eager step. In fp16 the factor of the loss is lowered until no gradient overflows, because infinite
    ones can be compared with nothing; `_factor_restored` ends that."""
    made, scaler = _made(eager, examples, labels), eager.passes.scaler
    while scaler.is_enabled() and scaler.get_scale() > 1 and not isfinite(_norm(made[1].values())):
        scaler.update(scaler.get_scale() / FACTOR_STEP)
        made = _made(eager, examples, labels)
    return made


@contextlib.contextmanager
def _factor_restored(scaler: torch.amp.GradScaler) -> Iterator[None]:
    """A context after which the factor of the loss is what it was."""
    before = scaler.get_scale()
    try:
        yield
    finally:
        if scaler.get_scale() != before:
            scaler.update(before)


def _made(engine: Engine, examples: Tensor, labels: Tensor) -> StepResult:
    """The loss of one step and its gradients, as copies: a graphed step writes the next ones to the same
    memory."""
    tensors = engine.passes.network.tensors()
    with unchanged(engine.passes):
        loss = engine.step(examples, labels).clone()
        return loss, {name: each.grad.clone() for name, each in tensors.items() if each.grad is not None}


def _compared(bound: float, precise: Precise | None, by_eager: StepResult, found: StepResult) -> str:
    """How a step differs, beyond the bounds, from the precise one, or from the eager one if the precise one
    has fewer examples; empty if it does not."""
    if precise is None:
        return _beyond(bound, by_eager, by_eager, _rounding(by_eager, by_eager), 0.0, found)
    if precise.rounded is None:
        return _beyond(bound, precise.exact, by_eager, _rounding(precise.exact, by_eager), 0.0, found)
    rounding = _rounding(precise.exact, precise.rounded)
    relative = Rounding(
        rounding.loss,
        {
            name: _of_size(each, precise.exact[1][name], by_eager[1][name])
            for name, each in rounding.tensors.items()
        },
        rounding.whole * _norm(by_eager[1].values()) / max(_norm(precise.exact[1].values()), LEAST),
    )
    return _beyond(bound, by_eager, by_eager, relative, 1.0, found)


def _rounding(exact: StepResult, rounded: StepResult) -> Rounding:
    """The distances between two steps of the same examples: the absolute difference of the losses, and the
    Euclidean norms of the differences of the gradients."""
    apart = {name: float((rounded[1][name] - tensor).norm()) for name, tensor in exact[1].items()}
    whole = sqrt(sum(each**2 for each in apart.values()))
    return Rounding(abs(float(rounded[0]) - float(exact[0])), apart, whole)


def _of_size(distance: float, of: Tensor, other: Tensor) -> float:
    """A distance from a gradient of few examples, as a distance from that of a whole batch; at most its
    size, because the gradient of few examples may be almost zero by chance."""
    return min(1.0, distance / max(float(of.norm()), LEAST)) * float(other.norm())


def _beyond(
    bound: float,
    expected: StepResult,
    by_eager: StepResult,
    rounding: Rounding,
    more: float,
    found: StepResult,
) -> str:
    """How a step differs from the expected one, if it is allowed the rounding `more` often than ROUNDINGS
    says. Comparisons are written as `not … <= …`, so that NaN counts as a difference.

    `bound` is relative to the size of a gradient, or to the loss, if that is more than 1. `by_eager` says
    which strides the gradients must have.
    """
    times = {part: each + more for part, each in ROUNDINGS.items()}
    if expected[1].keys() != found[1].keys():
        return f"gradients of {len(found[1])} tensors instead of {len(expected[1])}"
    for name, gradient in by_eager[1].items():
        # A norm does not see strides, but a fused optimizer computes wrong weights from a gradient that has
        # others.
        if not has_layout_of(gradient, found[1][name]):
            strides = found[1][name].stride()
            return f"the gradient of {name} has the strides {strides} instead of {gradient.stride()}"
    wanted, loss = float(expected[0]), float(found[0])
    if not all(isfinite(_norm(each[1].values())) for each in (expected, by_eager)):
        return ""  # whatever the factor of the loss: there is nothing to compare with
    if not abs(loss - wanted) <= times["tensor"] * rounding.loss + bound * max(1.0, abs(wanted)):
        return f"the loss is {loss:.6g} instead of {wanted:.6g}"
    size, rounded = _norm(expected[1].values()), rounding.whole
    entries = sum(tensor.numel() for tensor in expected[1].values())
    for name, gradient in expected[1].items():
        # In a small tensor the eager step may round well by chance, or the gradient may be almost zero. So
        # each tensor is also allowed its share, by size, of the rounding of all.
        share = sqrt(gradient.numel() / entries)
        own = rounding.tensors[name] + share * rounded
        most = times["tensor"] * own + bound * (float(gradient.norm()) + share * size)
        if not (away := float((found[1][name] - gradient).norm())) <= most:
            return f"the gradient of {name} is {away:.3g} from the expected one, and may be {most:.3g}"
    if not (away := _distance(found, expected)) <= (most := times["whole"] * rounded + bound * size):
        return f"the gradient is {away:.3g} from the expected one, and may be {most:.3g}"
    return ""


def _distance(one: StepResult, other: StepResult) -> float:
    """The Euclidean distance of all gradients of two steps as one vector."""
    return _norm(one[1][name] - tensor for name, tensor in other[1].items())


def _norm(tensors: Iterable[Tensor]) -> float:
    return sqrt(sum(float(tensor.norm()) ** 2 for tensor in tensors))
