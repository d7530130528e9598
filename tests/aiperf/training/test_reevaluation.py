"""`validate --reevaluate`: what it evaluates again, and what it refuses to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile

import pytest
import torch

from aiperf.config import with_overrides
from aiperf.data import load
from aiperf.engines.fused import Fused
from aiperf.errors import AiperfError, JournalError
from aiperf.journal import events
from aiperf.journal.events import Began, Closed, Ended, Event, Opened, RankReady
from aiperf.journal.notary import JournalHead, NotaryAnswer
from aiperf.journal.run_files import RunFiles
from aiperf.score.lineage import rebuild
from aiperf.tasks.images.tally import Classified
from aiperf.training.evaluation import Top5
from aiperf.training.kept_network import Kept, write_kept
from aiperf.training.reevaluation import Reevaluation, SecondResult
from nas.graph import Graph
from nas.modules import Network
from nas.seeds import residual
from nas.text_seeds import gpt_4x128
from nas.weights import initial
from tests.aiperf.inference.kept_run import Best, Change, best_of
from tests.journals import Scene, within
from tests.tables import ComesTo

SCENE = Scene(groups=1, minutes=0.1, changes=(("training.format", "fp32"),))
"""In fp32, which every processor multiplies fast."""


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Best:
    return best_of(RunFiles(tmp_path_factory.mktemp("run")), SCENE)


def test_the_right_answers_that_a_network_gives_agree_and_others_do_not(best: Best) -> None:
    """Two test images and one validation image may lie on the fence. Weights that were trained on the test
    images afterwards agree in the test alone."""
    assert (best.test.of, best.validation.of) == (1197, 400)

    def said(more: int, of_validation: int) -> Reevaluation:
        """Where the journal counts so many right answers more."""
        test, validation = best.test + Classified(0, more), best.validation + Classified(0, of_validation)
        results = SecondResult(best.test, test), SecondResult(best.validation, validation)
        return Reevaluation(best.number, *results)

    changed = replace(best, test=said(2, 1).test.recorded, validation=said(2, 1).validation.recorded)
    assert changed.again() == said(2, 1)
    for seen, agree in (
        (said(2, 1), (True, True, True)),
        (said(3, 0), (False, True, False)),
        (said(0, 2), (True, False, False)),
    ):
        assert (seen.test.agrees, seen.validation.agrees, seen.agrees) == agree


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_a_validation_is_made_again_by_the_engine_that_made_it(
    engine: str, best: Best, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rounds in its own way, which decides the answers of a network that has hardly learnt. The test was
    made eagerly."""
    asked: list[Network] = []
    answering = Fused.answering

    def watched(network: Network) -> Network:
        asked.append(answering(network))
        return asked[-1]

    def by_engine(event: Event) -> Event:
        if isinstance(event, Opened):
            return replace(event, config=with_overrides(event.config, {"training.step": engine}))
        return within(event, engine=engine) if isinstance(event, Began) else event

    monkeypatch.setattr(Fused, "answering", staticmethod(watched))
    seen = best.again(by_engine)
    assert (len(asked), seen.test.agrees) == (1 if engine == "fused" else 0, True)


def test_the_five_highest_outputs_are_asked_again_too(best: Best) -> None:
    """Counted once more by numpy, from the whole test part at once."""
    network, data = (
        Network(rebuild(best.replay(), best.number)),
        load(SCENE.config.data, torch.device("cpu"), 1),
    )
    network.load(initial(network.graph, 1))
    network.eval()
    with torch.inference_mode():
        batches = [(network(images), labels) for images, labels in data.test.sweep(1197, 0, 1)]
    (outputs, labels), *more = [(each.numpy(), of.numpy()) for each, of in batches]
    assert not more
    among = int((outputs.argsort(axis=1)[:, -5:] == labels[:, None]).sum())

    def counted(top5: int) -> Reevaluation:
        return best.again(lambda e: within(e, top5=top5) if isinstance(e, events.Tested) else e)

    assert best.test.correct < among < 1197
    seen = counted(among + 3)
    assert seen.top5 == SecondResult(Classified(1197, among), Classified(1197, among + 3))
    assert (seen.test.agrees, seen.agrees) == (True, False)


def test_of_five_classes_or_a_text_nobody_asks_for_the_five_highest() -> None:
    assert not Top5(Network(residual((1, 8, 8), 5, (4,))), torch.device("cpu")).counts
    assert Top5(Network(residual((1, 8, 8), 6, (4,))), torch.device("cpu")).counts
    assert not Top5(Network(gpt_4x128((16,), 90)), torch.device("cpu")).counts


@dataclass(frozen=True)
class SpotChecked:
    """The run above with a second network, which a notary's answer chose."""

    best: Best
    number: int
    validation: Classified

    def again(self, path: Path, seed: int = 2, wrong: int = 0) -> Reevaluation:
        """From a file with weights of that seed; the journal counts this many right answers less."""
        graph = rebuild(self.best.replay(), self.number)
        files = RunFiles(path)
        copyfile(self.best.files.weights(self.best.number), ready(files.weights(self.best.number)))
        digest = write_kept(files.spot_weights(self.number), Kept(graph, initial(graph, 2), {}))
        write_kept(files.spot_weights(self.number), Kept(graph, initial(graph, seed), {}))
        key, head = "ab" * 32, JournalHead(10**6, 10**9, "cd" * 32)
        answer = NotaryAnswer(key, key, 1, JournalHead(2, 100, key), 0, 0, "", "ef" * 64)
        later = replace(answer, head=head, count=1, previous=answer.signature)
        ready(files.notary_answers(0)).write_text(answer.line() + later.line())

        def kept(event: Event) -> Event:
            if isinstance(event, Ended) and event.finished.trial == self.number:
                return within(event, weights=digest, kept=0)
            if isinstance(event, Closed) and event.segment.trial == self.number:
                return within(event, tally=self.validation + Classified(0, -wrong))
            return event

        return replace(self.best, files=files).again(kept)


def ready(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="module")
def spot_checked(best: Best, tmp_path_factory: pytest.TempPathFactory) -> SpotChecked:
    number = next(
        number
        for number, trial in best.replay().trials.items()
        if number != best.number and trial.best_validation is not None
    )
    unknown = SpotChecked(best, number, Classified(400, 0))
    seen = unknown.again(tmp_path_factory.mktemp("unknown"))
    return replace(unknown, validation=seen.spot_checks[number].found)


def test_a_network_that_a_notary_chose_is_validated_again(spot_checked: SpotChecked, tmp_path: Path) -> None:
    """It decides nothing about the run, whose best network agrees."""
    seen, right = spot_checked.again(tmp_path, wrong=2), spot_checked.validation
    assert seen.spot_checks == {spot_checked.number: SecondResult(right, right + Classified(0, -2))}
    assert (seen.spot_checks[spot_checked.number].agrees, seen.agrees) == (False, True)


def test_another_network_in_its_place_is_refused(spot_checked: SpotChecked, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is not the file that the journal recorded"):
        spot_checked.again(tmp_path, seed=3)


def on_fewer_images(event: Event) -> Event:
    if not isinstance(event, RankReady):
        return event
    return replace(event, ready=replace(event.ready, data={**event.ready.data, "training_examples": 100}))


def untested(event: Event) -> Event | None:
    return None if isinstance(event, events.Tested) else event


def pretended(event: Event) -> Event:
    return replace(event, origin=events.Origin.PRETENDED) if isinstance(event, Opened) else event


def test_another_run_or_file_is_refused(
    best: Best, folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    def refused(change: Change = lambda event: event, own: Best = best) -> str:
        with pytest.raises(AiperfError) as refusal:
            own.again(change)
        return f"{refusal.typename}: {refusal.value}".replace(str(own.files.directory), "…")

    def of_file(graph: Graph | None, is_recorded: bool) -> str:
        """With other weights than those of the run, by the lineage's graph or another one."""
        (files := RunFiles(next(folders))).directory.mkdir()
        graph = graph or rebuild(best.replay(), best.number)
        digest = write_kept(files.weights(best.number), Kept(graph, initial(graph, 2), {}))
        return refused(own=replace(best, files=files, digest=digest if is_recorded else best.digest))

    comes_to_what_was_read("refused_again.txt", {**globals(), "refused": refused, "of_file": of_file})
