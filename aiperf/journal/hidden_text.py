"""What identifies a person or a site in a text, such as the reason of a failure: addresses, paths, devices,
processes, hosts, users and jobs. Each is replaced by a commitment; what looks like a secret is removed.

Hosts, users and jobs are found by their names, which are learnt from the fields that hold them; a host also
by the phrase "rank 3 on HOST", and by a name that differs from a known one in its number.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address

from aiperf.host import variables
from aiperf.host.secret_shapes import DEVICE, without_secrets, without_tokens, words_without_secrets
from aiperf.journal.names import TOKEN

Commit = Callable[[str, str], str]
"""Gives the commitment for a value of a kind."""

LEAST_NAME = 2
"""Fewest characters of a name that is looked for in texts: shorter ones are parts of ordinary text."""
OF_NOBODY = frozenset({"root", "localhost", "nobody"})

_TEXT = re.compile(
    r"(?P<url>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+)"
    r"|(?P<mail>(?<![\w.+-])[\w.+-]+@[A-Za-z0-9][\w.-]*)"
    r"|(?P<quoted>(?<=')(?:[\w.-]+:)?~?/[^'\n]+(?=')|(?<=\")(?:[\w.-]+:)?~?/[^\"\n]+(?=\"))"
    # Also a shared folder, as SERVER:/export. "images/s" and "and/or" are no paths.
    r"|(?P<path>(?:(?<![\w.-])[A-Za-z][\w.-]*:|(?<![\w./)\]}]))(?:~[\w.-]*|\.{1,2})?/(?=[\w.~+@-])[^\s'\":,;()<>|*?\[\]]*)"
    rf"|(?P<device>\b{DEVICE})"
    r"|(?P<address>(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}"
    r"|[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,19})(?![\w.]*\w))"
    r"|(?P<process>(?i:(?<=\bprocess )|(?<=\bprocesses )|(?<=\bpid )|(?<=\bpid=)|(?<=\bpid: ))\d+)"
    r"|(?P<host>(?<=\bon host )[\w.-]*\w|(?<=\bof host )[\w.-]*\w)"
    r"|(?P<before>\brank \d+ (?:on|of) )(?P<of_rank>(?!(?:the|a|its|this|group)\b)[\w.-]*\w)"
)
_KINDS = {"url": "address", "mail": "address", "quoted": "path", "of_rank": "host"}
_PLACES = re.compile(r"(?:--?(?:directory|data|stage|site|output|o|d)|(?:data\.)?(?:path|stage))")
"""Options and keys whose value is a path, whatever it looks like."""
_FILES = re.compile(r".*/.*|.*\.(?:toml|json|safetensors|txt)")


class TextHider:
    """Hides what identifies in texts, by `commit`."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._kinds: dict[str, str] = {}
        """Kinds by the name that was learnt."""
        self._patterns: dict[str, dict[str, None]] = {"path": {}, "name": {}}

    def learn(self, kind: str, name: str) -> None:
        """Remembers a name, or a path of several folders, that is looked for in texts from now on."""
        is_word = kind == "path" and "/" not in name  # such as "data" or "out"
        if len(name) >= LEAST_NAME and not is_word and name not in OF_NOBODY and name not in self._kinds:
            self._kinds[name] = kind
            self._patterns["path" if kind == "path" else "name"][_pattern_of(kind, name)] = None

    def text(self, text: str) -> str:
        """The text without secrets, with commitments for what identifies."""
        return self._names(without_secrets(text))

    def folder(self, name: str) -> str:
        """The same of a folder's name, which may be a hash or a UUID, and has names next to other words:
        "alice-imagenet"."""
        known = "|".join(map(re.escape, sorted(self._kinds, key=len, reverse=True)))
        words = rf"{TOKEN.pattern}|(?<![A-Za-z0-9])(?P<name>{known})(?![A-Za-z0-9])"
        return re.sub(words, self._known, self._names(without_tokens(name))) if known else name

    def _known(self, match: re.Match[str]) -> str:
        name = match["name"]
        return self._commit(self._kinds[name], name) if name else match[0]

    def _names(self, text: str) -> str:
        found = self._by_name("path", text)  # first: a known path may have spaces
        return self._by_name("name", _TEXT.sub(self._hidden, found))

    def command(self, words: tuple[str, ...]) -> list[str]:
        """The words of a command line. A word with a slash is a path or has one, the value of an option that
        takes one is, and so is the name of a file."""
        return [
            self._word(word, _PLACES.fullmatch(before) is not None)
            for before, word in zip(("", *words), words_without_secrets(words))
        ]

    def _word(self, word: str, is_place: bool) -> str:
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[-\w.]+", name):
            return f"{name}={self._word(value, _PLACES.fullmatch(name) is not None)}"
        is_path = (is_place and not word.startswith("-")) or (_FILES.fullmatch(word) and "://" not in word)
        return self._commit("path", word) if word and is_path else self.text(word)

    def _hidden(self, match: re.Match[str]) -> str:
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "address" and not _is_address(value):
            return value
        return (match["before"] or "") + self._commit(_KINDS.get(kind, kind), value)

    def _by_name(self, group: str, text: str) -> str:
        if not (patterns := self._patterns[group]):
            return text
        pattern = "|".join(sorted(patterns, key=len, reverse=True))
        default = "path" if group == "path" else "host"
        return re.sub(pattern, lambda found: self._commit(self._kinds.get(found[0], default), found[0]), text)


def learn_this_process(hider: TextHider, environment: Mapping[str, str]) -> None:
    """Learns who runs this process, where, and in which folder."""
    hider.learn("host", os.uname().nodename)
    users = {variables.word(environment, name) for name in ("USER", "LOGNAME", "SUDO_USER")}
    with suppress(KeyError):  # a container may run as a number without a name
        users.add(pwd.getpwuid(os.getuid()).pw_name)
    for user in users:
        hider.learn("user", user)
    with suppress(OSError):
        hider.learn("path", os.getcwd())
    hider.learn("path", variables.word(environment, "HOME"))


def _pattern_of(kind: str, name: str) -> str:
    if kind == "path":
        return rf"(?<![\w/.]){re.escape(name)}(?=[/\s'\":,;)]|$)(?:/[^\s'\":,;()<>|*?\[\]]*)?"
    if kind == "host" and re.search("[A-Za-z]", name):  # node017.site: also node018, and with any domain
        stem = re.sub(r"\d+", r"\\d+", re.escape(name.partition(".")[0]))
        return rf"(?<![\w.-]){stem}(?:\.[\w-]+)*(?![\w-])"
    return rf"(?<![\w-]){re.escape(name)}(?![\w-])"


def _is_address(text: str) -> bool:
    """Whether it is one of IP or of hardware: "12:30:45" and versions are not."""
    if re.fullmatch(r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,19}", text):
        return True
    try:
        ip_address(text)
    except ValueError:
        return False
    return text != "::"
