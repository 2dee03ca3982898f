"""Signatures in the addresses of files. Pure."""

from __future__ import annotations

import hashlib
from base64 import b64encode


def signature(path: str, operation: str, user: str, credential: str, expires_at_s: str = "") -> str:
    """The signature that a client puts into the address of a file, in place of a header."""
    parts = [path, operation, user, credential, *([expires_at_s] if expires_at_s else [])]
    digest = hashlib.sha256(":".join(parts).encode()).digest()
    return "v1_" + b64encode(digest).decode().rstrip("=")
