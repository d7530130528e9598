"""One word for one thing: the words that the glossary rules out are nowhere, in code or in prose.

Docstrings are sentences or noun phrases: none begins with "Of", which leaves out what it is about.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.tree import ROOT, expect_none, files, pairs
from tests.tables import ComesTo

# What is said instead. Compared without plural and case, in parts of identifiers too.
SAID_INSTEAD = pairs("ruled_out.txt")
PHRASES = re.compile(
    r"\bspeed-up|\bfor now\b|\bXXX\b"
    r"|\bsimulated workers?\b|\bpretended (?:clock|study)\b",  # workers pretend, a clock is simulated
    re.IGNORECASE,
)
# Few lines hold one of the words anywhere, and only these are taken apart.
SUSPECT = re.compile("|".join([*SAID_INSTEAD, PHRASES.pattern]), re.IGNORECASE)
# Most files have none of these, and need not be parsed: to parse all of them takes seconds.
BEGINS_WITH_OF = re.compile(r"[\"']\s*Of\b")

# Other programs' own names for their own things.
FOREIGN = re.compile(
    r"dcmi_get_card_id_device_id_from_logicid"
    r"|FlopCounterMode|flop_counter|get_(?:total|peak)_flops|get_flop_counts|gpu-flops-bench"
    r"|\bmutates_args\b|with_flops|event\.flops|\"card0\""  # torch.profiler, rocm-smi
    r"|model cards|nni\.experiment|: inherit\b|control_slaves"
    r"|experimentName|nni-experiments|host_network_card_count|MutationObserver"
)
# The licence is not ours to phrase; the others are of the words themselves.
OF_WORDS = ("test_words.py", "planted_words.txt", "ruled_out.txt")
UNREAD = ("LICENSE", *(f"tests/house/{name}" for name in OF_WORDS))
READ = (".py", ".md", ".toml", ".txt", ".sh", ".sbatch", ".cfg", ".yml", ".yaml", ".html", ".js", ".css")


def words(line: str) -> Iterator[str]:
    """Lower-case words, identifiers taken apart: numSlaves, NUM_SLAVES and num_slaves are num, slave."""
    for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", line):
        yield word.lower() if word.lower() in SAID_INSTEAD else word.lower().removesuffix("s")


def faults(path: str, text: str) -> list[str]:
    return [
        f"{path}:{number}: {word!r}, say: {SAID_INSTEAD.get(word, 'nothing')}"
        for number, line in enumerate(text.splitlines(), start=1)
        if SUSPECT.search(line)
        for word in [*words(FOREIGN.sub("", line)), *PHRASES.findall(line)]
        if (word in SAID_INSTEAD or PHRASES.match(word))
    ]


def prose() -> list[str]:
    """Files that people read, whatever their ending."""
    return [path for path in files() if path not in UNREAD and (path.endswith(READ) or "." not in path[1:])]


def fragments(path: str, text: str) -> list[str]:
    """Docstrings that begin with "Of": of a module, a class or a function, or below a field or a constant."""
    if not BEGINS_WITH_OF.search(text):
        return []
    return [
        f"{path}:{node.lineno}: a docstring begins with 'Of'; name its subject, as in 'Bytes of a line'"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str) and re.match(r"\s*Of\b", node.value.value)
    ]


def test_no_word_that_the_glossary_rules_out() -> None:
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in prose()}
    expect_none(fault for path, text in texts.items() for fault in faults(path, text))


def test_no_docstring_begins_with_of() -> None:
    sources = [path for path in files() if path.endswith((".py", ".pyi"))]
    expect_none(
        fault for path in sources for fault in fragments(path, (ROOT / path).read_text(encoding="utf-8"))
    )


def test_what_is_planted_is_found(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("planted_words.txt", {"faults": faults, "fragments": fragments})
