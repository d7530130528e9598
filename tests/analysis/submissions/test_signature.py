"""Keys and signatures: made by a library, checked as strictly as it can."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analysis.submissions.signature import SignatureError, make_key, sign, verify

MANIFEST = b'{"form":"aiperf-hpc/package/1"}\n'


def test_what_a_key_signs_its_public_half_verifies(tmp_path: Path) -> None:
    public = make_key(tmp_path / "key")
    assert verify(MANIFEST, dict(sign(MANIFEST, tmp_path / "key"))) == public


def test_a_private_key_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
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
