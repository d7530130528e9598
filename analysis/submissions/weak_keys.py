"""Public keys of Ed25519 with which anything can be signed without a private key.

They are the points whose order divides 8: of any number times such a point there are only eight values, so a
made-up signature fits every eighth manifest, and for the neutral point every one. RFC 8032 leaves it to the
reader to refuse them; see Chalkias, Garillot, Nikolaenko, "Taming the many EdDSAs", SSR 2020, section 3.
"""

from __future__ import annotations

_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
"""y of a point of order 8; the other such points have this y or its negative."""
_WEAK = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""y of all points of orders 4, 1, 2 and 8."""


def is_weak(public: bytes) -> bool:
    """Whether a public key of 32 bytes is such a point, in whatever way it is written: the last bit is the
    sign of x, and y may be written with or without the prime added to it."""
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    return y % _PRIME in _WEAK
