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
    """A folder's name has names between other words; of a command the options, numbers and names stay."""

    def command(line: str) -> str:
        return " ".join(map(hidden.shown, hidden.hider.command(tuple(line.split()))))

    def folder(name: str) -> str:
        return hidden.shown(hidden.hider.folder(name))

    names = {"hidden": hidden.text, "stays": lambda text: hidden.text(text) == text}
    comes_to_what_was_read("hidden_texts.txt", {**names, "command": command, "folder": folder})


def test_who_runs_a_process_and_where_is_known(hidden: Hidden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.uname", lambda: type("Uname", (), {"nodename": "login3"}))
    learn_this_process(hidden.hider, {"USER": "carol", "HOME": "/home/carol"})
    assert hidden.text("carol at login12") == "{user:carol} at {host:login12}"
