"""Checks of text that goes into a batch script.

A site file may hold any command, so these checks are no protection. They find a value that would end its
line, or the quotes around it, before a job that has waited for hours fails in an unrelated place.
"""

from __future__ import annotations

import re
import shlex

from aiperf.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@/+=%-]*")
"""A value within a directive: it can end neither the line nor the option."""
UNCLOSED = re.compile(r"\$\{(?![^{}]*\})")
"""A `${` without its brace."""
PLAIN = re.compile(r"[\w./:@%+,=~${}-]+")
"""A path that is one word of shell without quotes."""


def line(key: str, value: str) -> None:
    """Checks a value that is quoted where it stands, or that is a whole line. Raises ConfigError, as all of
    these."""
    if not value.isprintable():
        raise _refused(key, value, "it must be one line without control characters")


def name(key: str, value: str) -> None:
    """Checks a value within a directive: an account, a partition, a resource. It may be empty."""
    if value and NAME.fullmatch(value) is None:
        raise _refused(key, value, "in a name, use letters, digits and _ . , : @ / + = % -")


def command(key: str, value: str) -> None:
    """Checks a whole line of shell."""
    line(key, value)
    try:  # shlex begins a comment anywhere, bash only at a word
        shlex.split(re.sub(r"(?<=[^\s;&|()<>])#", "_", value), comments=True)
    except ValueError as error:
        raise _refused(key, value, f"as a shell line it is incomplete ({error})") from None
    if re.search(r"(?<!<)<<(?!<)", value) and "((" not in value:
        raise _refused(key, value, "a here-document (<<) does not fit on one line")
    if (len(value) - len(value.rstrip("\\"))) % 2 or re.search(r"(&&|\|)\s*$", value):
        raise _refused(key, value, "it continues on the next line")
    if UNCLOSED.search(re.sub(r"'[^']*'", "", value)):
        raise _refused(key, value, "a ${ in it is not closed")


def words(key: str, value: str) -> None:
    """Checks shell text within a line: words and variables, but no second command."""
    command(key, value)
    lexer = shlex.shlex(value, posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        more = any(set(word) <= set("();<>|&") or word[0] == "#" for word in lexer)
    except ValueError:  # a quote behind a comment
        more = True
    if more or re.search(r"`|\$[(['\"]", value):
        raise _refused(key, value, "it must be words and variables, without a comment or a second command")


def path(key: str, value: str) -> None:
    """Checks a path, which may hold variables and spaces."""
    line(key, value)
    if re.search(r'["`\\\\]|\$[(\[]', value) or UNCLOSED.search(value):
        raise _refused(key, value, 'a path may hold variables and spaces, but not " ` \\ $( $[ or an open ${')


def path_word(value: str) -> str:
    """A path as a word of shell: its variables are filled in, its spaces are kept. Only a tilde at the
    beginning means the home folder."""
    if PLAIN.fullmatch(value):
        return value
    return f'"{re.sub("^~(?=/|$)", "$HOME", value)}"'


def _refused(key: str, value: str, why: str) -> ConfigError:
    """The error on a value, shortened, with what it must be."""
    return ConfigError(f"{key} is {value!r:.120}; {why}")
