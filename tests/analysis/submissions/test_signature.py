"""What is signed has one form, and a signature is checked as strictly as it can be."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from aiperf.errors import AiperfError
from analysis.submissions.canonical import CanonicalError, canonical, parse
from analysis.submissions.keys import read_keys
from analysis.submissions.signature import CONTEXT, SignatureError, fits, make_key, sign, verify
from tests.tables import ComesTo

# All characters but surrogates, by number: hypothesis else works out for seconds what each encodes to.
TEXT = st.text((st.integers(0, 0xD7FF) | st.integers(0xE000, 0x10FFFF)).map(chr))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inside: st.lists(inside) | st.dictionaries(TEXT, inside),
    max_leaves=10,
)


@given(JSON)
def test_what_is_written_is_read(value: Any) -> None:
    assert parse(canonical(value)) == value
    assert canonical(parse(canonical(value))) == canonical(value)


def test_the_form_is_this() -> None:
    value = {"b": [1, 0.1, 1e300, True, None], "a": 'ä\n"</script>'}
    assert canonical(value) == '{"a":"ä\\n\\"</script>","b":[1,0.1,1e+300,true,null]}\n'.encode()


def test_any_other_form_is_refused_and_what_json_does_not_have_is_not_written(
    comes_to_what_was_read: ComesTo,
) -> None:
    comes_to_what_was_read("refused_forms.txt", {"parse": parse})
    for data in (b'{"a":' + b"9" * 5000 + b"}\n", b"[" * 100_000 + b"\n", b"\xff\xfe{}\n"):
        with pytest.raises(CanonicalError):
            parse(data)
    for value in (float("nan"), float("inf"), {"a": [-float("inf")]}, "\ud800"):
        with pytest.raises(CanonicalError):
            canonical(value)


MANIFEST = b'{"form":"aiperf-hpc/package/1"}\n'


def test_a_key_is_its_owners_and_never_overwritten(tmp_path: Path) -> None:
    public = make_key(tmp_path / "key")
    assert verify(MANIFEST, dict(sign(MANIFEST, tmp_path / "key"))) == public
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(SignatureError, match="never overwritten"):
        make_key(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == before


@pytest.mark.parametrize("field", ["algorithm", "public_key", "signature"])
def test_every_part_of_a_seal_counts(field: str, tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    seal = sign(MANIFEST, tmp_path / "key")
    wrong = ["", "00", "zz", seal[field][::-1], "0" * len(seal[field]), 7, None]
    for value in wrong:
        with pytest.raises(SignatureError):
            verify(MANIFEST, {**seal, field: value})
    with pytest.raises(SignatureError):
        verify(MANIFEST, {name: value for name, value in seal.items() if name != field})
    with pytest.raises(SignatureError, match="does not match"):
        verify(MANIFEST + b" ", dict(seal))


def test_a_signature_of_the_bare_bytes_is_none_of_a_manifest(tmp_path: Path) -> None:
    """Signed elsewhere, for another purpose, by the same key."""
    key = Ed25519PrivateKey.generate()
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    seal = {"algorithm": "Ed25519", "public_key": raw.hex(), "signature": key.sign(MANIFEST).hex()}
    with pytest.raises(SignatureError, match="does not match"):
        verify(MANIFEST, seal)


Y_OF_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


@pytest.mark.parametrize("y", [0, 1, -1, Y_OF_ORDER_8, -Y_OF_ORDER_8])
def test_a_key_with_which_anybody_can_sign_is_refused(y: int, tmp_path: Path) -> None:
    """With the neutral point as R and 0 as S, a signature that nobody made fits one manifest of every few."""
    prime, neutral = 2**255 - 19, (1).to_bytes(32, "little") + bytes(32)
    manifests = [b"%d" % number for number in range(200)]
    key = Ed25519PublicKey.from_public_bytes((y % prime).to_bytes(32, "little"))
    assert any(_fits(key, neutral, manifest) for manifest in manifests)
    for number in {y % prime, y % prime + prime if y % prime < 19 else y % prime}:
        for sign_of_x in (0, 1 << 255):
            public = (number + sign_of_x).to_bytes(32, "little").hex()
            seal = {"algorithm": "Ed25519", "public_key": public, "signature": neutral.hex()}
            with pytest.raises(SignatureError, match="anybody can sign with this public key"):
                verify(MANIFEST, seal)
            assert not any(fits(public, CONTEXT + each, neutral.hex()) for each in manifests)
            (tmp_path / "register").write_text(f"{public} Site A")
            with pytest.raises(AiperfError, match=r"line 1: with the public key .* anybody can sign"):
                read_keys(tmp_path / "register")


def _fits(key: Ed25519PublicKey, signature: bytes, manifest: bytes) -> bool:
    try:
        key.verify(signature, CONTEXT + manifest)
    except InvalidSignature:
        return False
    return True


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (tmp_path / "rsa").write_bytes(other.private_bytes(*pem, serialization.NoEncryption()))
    locked = Ed25519PrivateKey.generate()
    (tmp_path / "locked").write_bytes(
        locked.private_bytes(*pem, serialization.BestAvailableEncryption(b"password"))
    )
    for name, match in (
        ("text", "not an unencrypted private key"),
        ("rsa", "not an Ed25519 key"),
        ("locked", "unencrypted private key"),
        ("absent", "No such file"),
    ):
        with pytest.raises(SignatureError, match=match):
            sign(MANIFEST, tmp_path / name)
