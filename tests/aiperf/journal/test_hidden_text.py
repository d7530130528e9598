"""What identifies is found in texts and command lines, and ordinary text stays."""

from __future__ import annotations

import pytest

from aiperf.journal.hidden_text import TextHider, learn_this_process
from aiperf.journal.names import TOKEN
from tests.tables import ComesTo

LEARNT = {
    "node017.site.org": "host",
    "jupiter": "host",
    "alice": "user",
    "/scratch/my data": "path",
    "4711": "job",
    "out": "path",
    "root": "user",
}


class Hidden:
    """A hider whose commitments can be read: they are shown as "{kind:value}"."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.hider = TextHider(self._commit)
        for name, kind in LEARNT.items():
            self.hider.learn(kind, name)

    def _commit(self, kind: str, value: str) -> str:
        token = f"{kind}-{len(self.values):012x}"
        self.values[token] = f"{{{kind}:{value}}}"
        return token

    def shown(self, hidden: str) -> str:
        return TOKEN.sub(lambda found: self.values[found[0]], hidden)

    def text(self, text: str) -> str:
        return self.shown(self.hider.text(text))


@pytest.fixture
def hidden() -> Hidden:
    return Hidden()


def test_what_identifies_is_hidden_and_other_text_stays(
    hidden: Hidden, comes_to_what_was_read: ComesTo
) -> None:
    comes_to_what_was_read(
        "hidden_texts.txt", {"hidden": hidden.text, "stays": lambda text: hidden.text(text) == text}
    )


def test_a_folders_name_has_names_between_other_words(hidden: Hidden) -> None:
    folders = {
        "alice-imagenet_jupiter.2": "{user:alice}-imagenet_{host:jupiter}.2",
        "malice-9f86d081884c7d659a2feaa0c55ad015": "malice-9f86d081884c7d659a2feaa0c55ad015",
    }
    assert {name: hidden.shown(hidden.hider.folder(name)) for name in folders} == folders


def test_of_a_command_the_options_numbers_and_names_stay(hidden: Hidden) -> None:
    words = ["/opt/bin/aiperf-hpc", "run", "--preset", "digits", "--data", "mine", "--directory=out"]
    words += [
        "--set",
        "data.path=/x/y",
        "--set",
        "training.epochs=[2,4]",
        "--seed",
        "net.json",
        "--minutes",
        "3",
    ]
    safe = ["{path:/opt/bin/aiperf-hpc}", "run", "--preset", "digits", "--data", "{path:mine}"]
    safe += ["--directory={path:out}", "--set", "data.path={path:/x/y}", "--set", "training.epochs=[2,4]"]
    safe += ["--seed", "{path:net.json}", "--minutes", "3"]
    assert [hidden.shown(word) for word in hidden.hider.command(tuple(words))] == safe


def test_who_runs_a_process_and_where_is_known(hidden: Hidden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.uname", lambda: type("Uname", (), {"nodename": "login3"}))
    learn_this_process(hidden.hider, {"USER": "carol", "HOME": "/home/carol"})
    assert hidden.text("carol at login12") == "{user:carol} at {host:login12}"
