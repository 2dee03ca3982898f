"""File names as bytes: any name that a kernel accepts can be sent and received unchanged. Pure."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, TypeAlias

from rollbox.errors import InvalidArgument
from rollbox.request import untilded

SandboxPath: TypeAlias = str | bytes | os.PathLike[str]
"""A path in the sandbox, absolute or relative to its working directory. A name that is not UTF-8 is passed as bytes, or
as a str with surrogate escapes, which is how the SDK returns it."""


def encoded(name: str, path: SandboxPath) -> bytes:
    """Encode a path of a sandbox as bytes.

    Args:
        name: of the argument, for the error.
        path: text is encoded as UTF-8, with the surrogates that stand for other bytes.

    Raises:
        InvalidArgument: it is empty, holds NUL, begins with `~`, or is not a path.
    """
    plain = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(plain, str | bytes):
        raise InvalidArgument(f"{name} is {plain!r}, not a path")
    try:
        raw = plain if isinstance(plain, bytes) else plain.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} {plain!r} is not valid Unicode text; pass bytes") from error
    untilded(name, decoded(raw))
    if not raw or b"\0" in raw:
        raise InvalidArgument(f"{name} {plain!r} is empty or holds a NUL byte")
    return raw


def decoded(raw: bytes) -> str:
    """Decode a path; bytes that are not UTF-8 become surrogate escapes."""
    return raw.decode("utf-8", "surrogateescape")


def path_of(body: Mapping[str, Any], name: str) -> str | None:
    """Read `name` or `name_base64` of a JSON object; None when there is neither."""
    if body.get(f"{name}_base64"):
        return decoded(b64decode(body[f"{name}_base64"]))
    value: str | None = body.get(name)
    return value


def shown(path: str) -> str:
    """Make a path safe to print: bytes that are not UTF-8 and control characters are replaced."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
