"""What identifies is found in texts and command lines, and ordinary text stays."""

from __future__ import annotations

import pytest

from aiperf.journal.hidden_text import TextHider, learn_this_process
from aiperf.journal.names import TOKEN

LEARNT = {
    "node017.site.org": "host",
    "jupiter": "host",
    "alice": "user",
    "/scratch/my data": "path",
    "4711": "job",
    "out": "path",
    "root": "user",
}
TEXTS = {
    "rank 3 on gpu7: RuntimeError": "rank 3 on {host:gpu7}: RuntimeError",
    "rank 3 of node9 and rank 4 on the host": "rank 3 of {host:node9} and rank 4 on the host",
    "node018, node017.other; jupiter, jupiters": (
        "{host:node018}, {host:node017.other}; {host:jupiter}, jupiters"
    ),
    "alice and alice-x and root": "{user:alice} and alice-x and root",
    "Slurm 4711, 14711 images": "Slurm {job:4711}, 14711 images",
    "(process 31), PID 32, pid=33, 34": "(process {process:31}), PID {process:32}, pid={process:33}, 34",
    "No such file: '/home/a b/c d'": "No such file: '{path:/home/a b/c d}'",
    'File "/usr/lib/x.py", line 3': 'File "{path:/usr/lib/x.py}", line 3',
    "at /a/b.py:12 (/c/d) ~/x ~bob/y ../z ./w": (
        "at {path:/a/b.py}:12 ({path:/c/d}) {path:~/x} {path:~bob/y} {path:../z} {path:./w}"
    ),
    "nfs01:/export/home is stale": "{path:nfs01:/export/home} is stale",
    "/scratch/my data/train is missing": "{path:/scratch/my data/train} is missing",
    "10.1.2.3:29500, tcp://login.site:80/x": "{address:10.1.2.3}:29500, {address:tcp://login.site:80/x}",
    "fe80::1 [2001:db8::1]:80 aa:bb:cc:dd:ee:ff": (
        "{address:fe80::1} [{address:2001:db8::1}]:80 {address:aa:bb:cc:dd:ee:ff}"
    ),
    "built by root@build.site": "built by {address:root@build.site}",
    "GPU-123e4567-e89b-12d3-a456-426614174000 fell": "{device:GPU-123e4567-e89b-12d3-a456-426614174000} fell",
    "https://u:pw@h/x": "{address:https://[secret]@h/x}",
}
ORDINARY = [
    *("images/s, and/or 1/2 GB/s", "12:30:45 on 2026-11-26", "torch 2.13.0+cpu, driver 535.183.01"),
    *("at::native::add", "PCI 0000:3b:00.0", "{0:4},{4:4}", "a / b", "mlx5_0:1", "^docker0,lo", "hsn0"),
    *(
        "CUDA out of memory",
        "error: free some space",
        "1.43 times as fast as eager on the seed",
        "trial 3, segment 4711x",
    ),
]


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


def test_what_identifies_is_hidden_and_other_text_stays(hidden: Hidden) -> None:
    assert {text: hidden.text(text) for text in TEXTS} == TEXTS
    assert [hidden.text(text) for text in ORDINARY] == ORDINARY


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
