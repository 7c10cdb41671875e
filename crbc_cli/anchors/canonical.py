"""Canonical content of any value, encoding version 1.

A total function: it never raises on data. Two values are the same anchor or action exactly if
their encodings are equal.

* numbers compare by value (1 = 1.0 = -0.0 + 1), NaN equals NaN, booleans are not numbers;
* null members of an object equal missing ones, the order of members does not matter;
* lists keep order and nesting, so arrays carry their shape;
* a string that looks like JSON stays a string; bytes are not strings.

Grammar: `n` null, `b0`/`b1`, `i<decimal>` integral number, `f<repr>` other number,
`s<bytes>:<utf8>`, `y<bytes>:<raw>`, `t<isoformat>;` date or time, `l<count>:<items>`,
`o<count>:<key><value>…` with keys sorted by UTF-8 bytes.
"""

import datetime
import math
from decimal import Decimal
from operator import itemgetter
from typing import Any

import xxhash

__all__ = ["ANCHOR_KEY_VERSION", "digest", "encode"]

ANCHOR_KEY_VERSION = "v1"


def encode(value: Any) -> bytes:
    """Canonical encoding of one value."""
    parts: list[bytes] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Raw):
            parts.append(item)
        elif isinstance(item, dict):
            members = sorted(
                ((str(k).encode("utf-8", "replace"), v) for k, v in item.items() if v is not None),
                key=itemgetter(0),
            )
            parts.append(b"o%d:" % len(members))
            for name, member in reversed(members):
                stack += (member, _Raw(_text(name)))
        elif isinstance(item, list | tuple):
            parts.append(b"l%d:" % len(item))
            if set(map(type, item)) == {int}:  # a row of pixels or cells, say
                parts += [b"i%d;" % number for number in item]
            else:
                stack += reversed(item)
        else:
            parts.append(_scalar(item))
    return b"".join(parts)


def digest(value: Any) -> str:
    """XXH3-128 of the canonical encoding, 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(encode(value))


class _Raw(bytes):
    """Already encoded."""


def _text(utf8: bytes) -> bytes:
    return b"s%d:%b" % (len(utf8), utf8)


def _scalar(value: Any) -> bytes:
    match value:
        case None:
            return b"n"
        case bool():
            return b"b1" if value else b"b0"
        case str():
            return _text(value.encode("utf-8", "replace"))
        case bytes() | bytearray() | memoryview():
            raw = bytes(value)
            return b"y%d:%b" % (len(raw), raw)
        case int():
            return b"i%d;" % value
        case float() | Decimal():
            return _number(float(value)) if not _integral(value) else b"i%d;" % int(value)
        case datetime.date() | datetime.time():
            return b"t%b;" % value.isoformat().encode()
        case datetime.timedelta():
            return b"t%b;" % repr(value.total_seconds()).encode()
        case _:
            return _text(str(value).encode("utf-8", "replace"))


def _integral(value: float | Decimal) -> bool:
    return math.isfinite(value) and value == int(value)


def _number(value: float) -> bytes:
    return b"f%b;" % repr(value).encode()
