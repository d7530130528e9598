"""The seal of a package: the hash of its manifest and, if the site has a key, the site's signature of it.

Ed25519 (RFC 8032), by the library `cryptography`. The private key stays with the site; its public half
is in the package. A signature says who packed, not that what was packed is true.

With some public keys anything can be signed without a private key. They are the points whose order divides 8:
of any number times such a point there are only eight values, so a made-up signature fits every eighth
manifest, and for the neutral point every one. RFC 8032 leaves it to the reader to refuse them; see Chalkias,
Garillot, Nikolaenko, "Taming the many EdDSAs", SSR 2020, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError, MissingExtra
from aiperf.os_error import unreadable, unwritable
from nas.bounded import read_bytes

CONTEXT = b"aiperf-hpc package manifest 1\n"
"""Prefix of what is signed, so that a signature of anything else cannot be passed off as one of a
manifest."""
_PRIME = 2**255 - 19
"""The prime of the field over which the curve is defined."""
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
"""y of a point of order 8; the other such points have this y or its negative."""
_WEAK = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""y of all points of orders 4, 1, 2 and 8."""


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
    raw = bytes.fromhex(public)
    try:
        return not is_weak(raw) and _is_signed(raw, content, bytes.fromhex(signature))
    except ValueError:  # not a point of the curve, or not a signature's length
        return False


def verify(manifest: bytes, seal: dict[str, Any]) -> str:
    """The public key that signed the manifest. Raises SignatureError when it did not."""
    try:
        if seal["algorithm"] != "Ed25519":
            raise SignatureError(f"the algorithm {seal['algorithm']!r:.40} is not supported; use Ed25519")
        raw = bytes.fromhex(str(seal["public_key"]))
        if is_weak(raw):
            raise SignatureError("anybody can sign with this public key; `aiperf-hpc key` creates another")
        if not _is_signed(raw, CONTEXT + manifest, bytes.fromhex(str(seal["signature"]))):
            raise SignatureError("the signature does not match the manifest")
    except (KeyError, ValueError) as error:
        raise SignatureError(f"the signature cannot be read: {error}") from None
    return raw.hex()  # a key has one text: a seal may write it in capitals


def _is_signed(public: bytes, content: bytes, signature: bytes) -> bool:
    """Whether the signature is that of this content. Raises ValueError for what is not a public key."""
    keys, _ = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        keys.Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except InvalidSignature:
        return False
    return True


def is_weak(public: bytes) -> bool:
    """Whether a public key of 32 bytes is such a point, in whatever way it is written: the last bit is the
    sign of x, and y may be written with or without the prime added to it."""
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    return y % _PRIME in _WEAK


def _private(path: Path) -> Any:
    """The private key in a file. Raises SignatureError for a file that has none, or one with a password."""
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
    """The public half of a key as 64 hexadecimal digits."""
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return str(raw.hex())


def _library() -> tuple[Any, Any]:
    """The two modules of `cryptography` that are needed, imported only here because it is an extra."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra("cryptography", "sign") from None
    return ed25519, serialization
