"""Where the program starts a process, reads an environment variable, or reads a file: found in its syntax
tree, each as "file function" or "file expression"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

PROCESSES = {"ask", "Child", "Popen", "ProcessPoolExecutor", "Process", "Pool", "fork", "forkpty", "system"}
PROCESSES |= {"popen", "run", "call", "check_call", "check_output", "getoutput", "get_context", "posix_spawn"}
PROCESSES |= {"create_subprocess_exec", "create_subprocess_shell", "execv", "execve", "execvp"}
MODULES = {"subprocess", "os", "multiprocessing", "asyncio", "pty"}
"""Modules whose functions with these names start a process."""
FILES = {"open", "read_text", "read_bytes", "opened", "safe_open", "fdopen", "memmap", "fromfile", "loadtxt"}
WRITES = {"w", "a", "x", "wb", "ab", "xb", "w+b", "O_WRONLY", "O_CREAT"}
"""Modes in which a file is only written."""
READERS = {"raw", "word", "whole"}
"""Functions of `aiperf/host/variables.py`."""
ENVIRONMENTS = {"environment", "environ", "environb"}
ANY = re.compile(
    r"open|read_(?:text|bytes)|environ|getenv|variables|subprocess|\bask\(|Child\(|[Pp]rocess|Pool"
)
VARIABLES = "aiperf/host/variables.py"


@dataclass(frozen=True)
class Places:
    processes: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    """Reads of a variable that go around the reader."""


def places(texts: Mapping[str, str]) -> Places:
    """The places of files, given as texts by path."""
    found = Places()
    for path, text in texts.items():
        # A third of the files have none; to parse is what takes time.
        for function, node in _inside(ast.parse(text), "") if ANY.search(text) else ():
            if isinstance(node, ast.Call):
                before, name = _called(node)
                if name in PROCESSES and (
                    before in MODULES or (not before and (name[0].isupper() or name == "ask"))
                ):
                    found.processes.add(f"{path} {function}")
                if name in FILES and not _words(node) & WRITES:
                    found.files.add(f"{path} {function}")
                if before == "variables" and name in READERS:
                    found.variables.add(f"{path} {ast.unparse(node.args[1])}")
            if path != VARIABLES and _goes_around(node):
                found.unread.add(f"{path}:{node.lineno}")
    return found


def _goes_around(node: ast.Call | ast.Subscript | ast.Compare) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and _last(node.value) in ENVIRONMENTS
    if isinstance(node, ast.Compare):
        is_in = isinstance(node.ops[0], ast.In | ast.NotIn)
        return is_in and _last(node.comparators[0]) in ENVIRONMENTS
    before, name = _called(node)
    return name == "getenv" or (before in ENVIRONMENTS and name in ("get", "pop"))


def _called(node: ast.Call) -> tuple[str, str]:
    """The last word before the name of the function that is called, and the name."""
    if isinstance(node.func, ast.Attribute):
        return _last(node.func.value), node.func.attr
    return "", _last(node.func)


def _last(node: ast.AST) -> str:
    """The name of a variable or of an attribute; "()" for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else "()"


def _words(node: ast.Call) -> set[object]:
    """Constants and attributes among the arguments: the mode."""
    inner = [each for word in (*node.args, *(key.value for key in node.keywords)) for each in ast.walk(word)]
    return {_last(each) for each in inner} | {each.value for each in inner if isinstance(each, ast.Constant)}


def _inside(parent: ast.AST, function: str) -> Iterator[tuple[str, ast.Call | ast.Subscript | ast.Compare]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Call | ast.Subscript | ast.Compare):
            yield function, node
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _inside(node, f"{function}.{node.name}".lstrip(".") if is_named else function)
