"""Text that goes into a batch script: what stays where it is put, and what is refused.

A site file may hold any command, so this keeps nobody out. It says which value would end its line, or the
quotes around it, before a job has waited for hours to fail in an odd place.
"""

from __future__ import annotations

import re
import shlex

from aiperf.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@/+=%-]*")
UNCLOSED = re.compile(r"\$\{(?![^{}]*\})")
PLAIN = re.compile(r"[\w./:@%+,=~${}-]+")


def line(key: str, value: str) -> None:
    """Of a value that is quoted where it stands, or that is a line of its own."""
    if not value.isprintable():
        raise _refused(key, value, "it must be one line without control characters")


def name(key: str, value: str) -> None:
    """Of a value within a directive: an account, a partition, a resource; or nothing."""
    if value and NAME.fullmatch(value) is None:
        raise _refused(key, value, "in a name, use letters, digits and _ . , : @ / + = % -")


def command(key: str, value: str) -> None:
    """Of a whole line of shell."""
    line(key, value)
    try:  # shlex begins a comment anywhere, bash only at a word
        shlex.split(re.sub(r"(?<=[^\s;&|()<>])#", "_", value), comments=True)
    except ValueError as error:
        raise _refused(key, value, f"as a shell line it is incomplete ({error})") from None
    if re.search(r"(?<!<)<<(?!<)", value) and "((" not in value:
        raise _refused(key, value, "what begins with << ends on another line")
    if (len(value) - len(value.rstrip("\\"))) % 2 or re.search(r"(&&|\|)\s*$", value):
        raise _refused(key, value, "its end takes the next line with it")
    if UNCLOSED.search(re.sub(r"'[^']*'", "", value)):
        raise _refused(key, value, "it has half a ${")


def words(key: str, value: str) -> None:
    """Of shell text within a line: words and variables, no second command."""
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
    """Of a path, which may hold variables and spaces."""
    line(key, value)
    if re.search(r'["`\\\\]|\$[(\[]', value) or UNCLOSED.search(value):
        raise _refused(key, value, 'a path may hold variables and spaces, but not " ` \\ $( $[ or half a ${')


def path_word(value: str) -> str:
    """A path as a word of shell: its variables are filled in, its spaces are kept."""
    if PLAIN.fullmatch(value):
        return value
    return f'"{re.sub("^~(?=/|$)", "$HOME", value)}"'


def _refused(key: str, value: str, why: str) -> ConfigError:
    return ConfigError(f"{key} is {value!r:.120}; {why}")
