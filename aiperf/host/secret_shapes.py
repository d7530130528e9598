"""What looks like a secret, so that it is never written: tokens by their published prefixes, keys, passwords
in addresses, values whose name says what they are, and long random words.

A short password without a name next to it cannot be told from a word, so it is not found.
"""

from __future__ import annotations

import re
from itertools import pairwise

SECRET = "[secret]"
"""What is written instead."""

_NAME = (
    r"[\w.-]*?(?:token(?!s|iz)|secret|passw(?:or)?d|passphrase|pwd|credential"
    r"|(?:api|access|private|encryption|signing)[_-]?key|authorization|auth(?![a-z])|bearer|cookie)[\w.-]*"
)
"""Names of values that are secrets; `tokens` are those of a text."""

_SHAPES = re.compile(
    "|".join(
        (
            # PEM and OpenSSH (RFC 7468), to its end or to that of the text.
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:(?s:.)*?-----END [A-Z0-9 ]*PRIVATE KEY-----|(?s:.)*)",
            r"AGE-SECRET-KEY-1[A-Z0-9]+",
            # JSON Web Tokens (RFC 7519): the header is a JSON object in base64url.
            r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)*",
            # Published prefixes: AWS, GitHub, GitLab, Hugging Face, OpenAI and Anthropic, Slack, Google, npm,
            # PyPI, Stripe, NVIDIA NGC, Docker, HashiCorp Vault, DigitalOcean, SendGrid, Databricks,
            # Replicate.
            r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ABIA|ACCA)[A-Z0-9]{12,}",
            r"\b(?:gh[pousr]_|github_pat_|glpat-|gl[a-z]{2,6}-|hf_|api_org_|npm_|pypi-|dckr_[a-z]+_)[\w-]{16,}",
            r"\b(?:sk|pk|rk)[-_][\w-]{16,}",
            r"\b(?:xox[a-z]|xapp)-[\w-]{8,}|\bAIza[\w-]{24,}|\bya29\.[\w.-]{16,}",
            r"\b(?:nvapi-|hv[sbr]\.|do[opr]_v1_|SG\.|dapi|r8_)[\w.-]{20,}",
        )
    )
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
"""The user information of a URL (RFC 3986): a password, or a token in the place of the user."""
_NAMED = re.compile(
    rf"(?i)(?<![\w.-])(-{{0,2}}{_NAME}[\"']?\s*(?:=|:(?!//))\s*[\"']?(?:(?:bearer|basic|token)\s+)?|bearer\s+)"
    r"([^\s\"',;&]+)"
)
_OPTION = re.compile(rf"(?i)-{{1,2}}{_NAME}")
_WORD = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
DEVICE = rf"(?:GPU|MIG|NPU|XPU)-{UUID}"
"""The identity of a device, which is no secret. A UUID without this prefix may be a token."""
_UUID = re.compile(rf"(?<![\w-]){UUID}(?![\w-])")
LEAST_MIXED, LEAST_LOWER, LEAST_HEX = 16, 24, 32
"""Fewest characters of a random word in capitals, small letters and digits (96 bits), in small letters or
capitals with digits (124 bits), and in hexadecimal digits (128 bits)."""
CHANGES, CHANGES_IF_LONG, LEAST_LONG = 0.42, 0.25, 32
"""Least share of neighbouring characters of different kind in a random word, and in one of 32 characters or
more. Random base64 has 0.64, base64 of text 0.3 to 0.5; names in capitals and small letters have 0.2 to 0.4
and are shorter. Words with one kind of letter change less often: half of this suffices."""


def without_secrets(text: str) -> str:
    """The text with `SECRET` for whatever looks like one."""
    text = _UUID.sub(SECRET, without_tokens(text))
    return _WORD.sub(
        lambda found: SECRET if _is_random(found[0], found.string, found.start()) else found[0], text
    )


def without_tokens(text: str) -> str:
    """The text without secrets of a known form; random words stay, which in a folder's name are a hash."""
    text = _SHAPES.sub(SECRET, text)
    text = _IN_ADDRESS.sub(SECRET, text)
    return _NAMED.sub(lambda found: found[1] + SECRET, text)


def words_without_secrets(words: tuple[str, ...]) -> list[str]:
    """The words of a command line. The value of an option whose name says so is a secret, whatever it is."""
    return [
        SECRET if before and _OPTION.fullmatch(before) and not word.startswith("-") else without_secrets(word)
        for before, word in zip(("", *words), words)
    ]


def _is_random(word: str, text: str, start: int) -> bool:
    """Whether a word, or a part of it between `-` and `_`, is random. A part of an absolute path is not: a
    folder may be named by a hash, and a path is never published in the clear anyway."""
    before = text[:start].rsplit(None, 1)[-1:] if start and not text[start - 1].isspace() else []
    if (
        re.fullmatch(DEVICE, word)
        or word.startswith("/")
        or re.search(r"(?:^|[\s'\"=:(])[.~]{0,2}/", "".join(before))
    ):
        return False
    # Base64 has both cases; in words of one case a slash is that of a relative path.
    parts = re.split(r"[-_]" if re.search("[A-Z]", word) else r"[-_/]", word)
    return any(map(_random, [*parts, "".join(parts)] if re.search("[A-Z]", word) else parts))


def _random(part: str) -> bool:
    kinds = [_kind(character) for character in part]
    share = sum(a != b for a, b in pairwise(kinds)) / max(1, len(part) - 1)
    if {"A", "a"} <= set(kinds):
        is_long, has_digits = len(part) >= LEAST_LONG, "0" in kinds
        least = CHANGES_IF_LONG if is_long and has_digits else CHANGES
        return len(part) >= LEAST_MIXED and (is_long or has_digits) and share >= least
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", part) and {"0"} < set(kinds):
        return len(part) >= LEAST_HEX
    return "0" in kinds and len(set(kinds)) > 1 and len(part) >= LEAST_LOWER and share >= CHANGES / 2


def _kind(character: str) -> str:
    return "0" if character.isdigit() else "A" if character.isupper() else "a" if character.islower() else "+"
