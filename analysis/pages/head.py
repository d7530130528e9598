"""What a report says first: the answer on the run, and the figures that may stand beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiperf.rules.ending import Answer
from analysis.readings import facts
from analysis.readings.judged import Judged
from analysis.readings.key import Figure, figures

KEY = (
    "ops_per_second",
    "regulated_score",
    "error",
    "ops_per_second_per_device",
    "tensor_ops_per_second",
    "mfu",
    "control_examples_per_second",
    "goodput",
    "aiperf1_ops_per_second",
)
"""Figures that are read first."""
STYLES = {
    Answer.VALID: "",
    Answer.INVALID: "refuted",
    Answer.SIMULATED: "",
    Answer.NO_RESULT: "empty",
    Answer.INCOMPLETE: "so-far",
}
"""How the page stands, by the style sheet: figures crossed out or grey."""


@dataclass(frozen=True)
class PageHead:
    """As the template shows it."""

    headline: str
    """Beside the run's name."""
    word: str
    outcome: str
    """Colour of the word: passed, failed or unknown."""
    text: str
    style: str
    key: Sequence[Figure]
    """None of a run without a result."""


def head(judged: Judged) -> PageHead:
    verdict, known = judged.verdict, figures(judged.replay, judged.score)
    sound = "passed" if judged.validated else "unknown"
    key = [known[name] for name in KEY]
    if verdict.answer is Answer.INCOMPLETE:  # the control was timed before the span, and is what it is
        before = known["control_examples_per_second"]
        key = [one if one is before else replace(one, name=f"{one.name} so far") for one in key]
    return PageHead(
        headline=known["ops_per_second"].text if verdict.valid else verdict.answer.value,
        word=facts.verdict_word(verdict, judged.validated),
        outcome={Answer.VALID: sound, Answer.INVALID: "failed"}.get(verdict.answer, "unknown"),
        text=facts.verdict_text(verdict, judged.validated),
        style=STYLES[verdict.answer],
        key=[] if verdict.answer is Answer.NO_RESULT else key,
    )
