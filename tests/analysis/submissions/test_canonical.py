"""One form, one hash: what one writes the other reads, and nothing else."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.submissions.canonical import CanonicalError, canonical, digest, parse
from nas.bounded import file_digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=10,
)


@given(JSON)
def test_what_is_written_is_read(value: Any) -> None:
    assert parse(canonical(value)) == value
    assert canonical(parse(canonical(value))) == canonical(value)


def test_the_form_is_this() -> None:
    value = {"b": [1, 0.1, 1e300, True, None], "a": 'ä\n"</script>'}
    assert canonical(value) == '{"a":"ä\\n\\"</script>","b":[1,0.1,1e+300,true,null]}\n'.encode()
    assert digest(value) == sha256(canonical(value)).hexdigest()


def test_a_file_has_the_digest_of_its_value(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(canonical({"a": list(range(500_000))}))
    assert file_digest(path) == digest({"a": list(range(500_000))})


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}\n',
        b'{"a":1}',
        b'{"b":1,"a":1}\n',
        b'{"a":1,"a":1}\n',
        b'{"a":1.0e0}\n',
        b'{"a":"\\u00e4"}\n',
        b'{"a":NaN}\n',
        b'{"a":1e999}\n',
        b'{"a":' + b"9" * 5000 + b"}\n",
        b"[" * 100_000 + b"]" * 100_000 + b"\n",
        b"\xff\xfe{}\n",
        b"",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_any_other_form_is_refused(data: bytes) -> None:
    with pytest.raises(CanonicalError):
        parse(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [-float("inf")]}, "\ud800"])
def test_what_json_does_not_have_is_not_written(value: Any) -> None:
    with pytest.raises(CanonicalError):
        canonical(value)
