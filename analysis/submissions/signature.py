"""The seal of a package: the hash of its manifest and, if the site has a key, the site's signature of it.

Ed25519 (RFC 8032), by the library `cryptography`. The private key stays with the site; its public half
is in the package. A signature says who packed, not that what was packed is true.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError, MissingExtra
from aiperf.os_error import unreadable, unwritable
from analysis.submissions.weak_keys import is_weak
from nas.bounded import read_bytes

CONTEXT = b"aiperf-hpc package manifest 1\n"
"""Prefix of what is signed, so that a signature of anything else cannot be passed off as one of a
manifest."""


class SignatureError(AiperfError):
    """The file is not a key, or the signature does not fit."""


def make_key(path: Path) -> str:
    """Writes a new private key, readable by its owner only; gives the public one as text."""
    keys, serialization = _library()
    key = keys.Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(text)
    except FileExistsError:
        raise SignatureError(f"{path} already exists; a key is never overwritten") from None
    except OSError as error:
        raise SignatureError(unwritable(error, path)) from None
    return _public(key, serialization)


def public_key(path: Path) -> str:
    """The public half of the private key in that file, as text. Raises SignatureError."""
    return _public(_private(path), _library()[1])


def sign(manifest: bytes, path: Path) -> dict[str, str]:
    """Algorithm, public key and signature, by the private key in that file. Raises SignatureError."""
    public, signed = signer(path)
    return {"algorithm": "Ed25519", "public_key": public, "signature": signed(CONTEXT + manifest)}


def signer(path: Path) -> tuple[str, Callable[[bytes], str]]:
    """The public half of the private key in that file, and what signs with it; the content states its own
    context. Raises SignatureError."""
    key = _private(path)
    return _public(key, _library()[1]), lambda content: str(key.sign(content).hex())


def fits(public: str, content: bytes, signature: str) -> bool:
    """Whether the owner of this public key signed exactly this content."""
    keys, _ = _library()
    from cryptography.exceptions import InvalidSignature

    raw = bytes.fromhex(public)
    if is_weak(raw):
        return False
    try:
        keys.Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def verify(manifest: bytes, seal: dict[str, Any]) -> str:
    """The public key that signed the manifest. Raises SignatureError when it did not."""
    keys, _ = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        if seal["algorithm"] != "Ed25519":
            raise SignatureError(f"the algorithm {seal['algorithm']!r:.40} is not supported; use Ed25519")
        raw = bytes.fromhex(str(seal["public_key"]))
        if is_weak(raw):
            raise SignatureError("anybody can sign with this public key; `aiperf-hpc key` creates another")
        key = keys.Ed25519PublicKey.from_public_bytes(raw)
        key.verify(bytes.fromhex(str(seal["signature"])), CONTEXT + manifest)
    except (KeyError, ValueError) as error:
        raise SignatureError(f"the signature cannot be read: {error}") from None
    except InvalidSignature:
        raise SignatureError("the signature does not match the manifest") from None
    return raw.hex()  # a key has one text: a seal may write it in capitals


def _private(path: Path) -> Any:
    keys, serialization = _library()
    try:
        key = serialization.load_pem_private_key(read_bytes(path), password=None)
    except OSError as error:
        raise SignatureError(unreadable(error, path, "give a private key file")) from None
    except (ValueError, TypeError) as error:
        raise SignatureError(f"{path} is not an unencrypted private key: {error}") from None
    if not isinstance(key, keys.Ed25519PrivateKey):
        raise SignatureError(f"{path} is not an Ed25519 key; `aiperf-hpc key` creates one")
    return key


def _public(key: Any, serialization: Any) -> str:
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return str(raw.hex())


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra("cryptography", "sign") from None
    return ed25519, serialization
