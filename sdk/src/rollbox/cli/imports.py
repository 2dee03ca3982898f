"""The imports of what makes calls, for a process that makes one and ends."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from rollbox import settings
from rollbox._problem import SandboxError

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.gateway import Gateway

_READS_CERTIFICATES = "set_default_verify_paths"


def client_class() -> type[Client]:
    """Import `rollbox.client`, without what a client of an http:// address never uses.

    Cost: with the machine's certificates about twice as long as without them.
    """
    with _what_is_used():
        from rollbox.client import Client
    return Client


def gateway_class() -> type[Gateway]:
    """Import `rollbox.gateway`, which a client calls, in the same way. Cost: three quarters of that of the client."""
    with _what_is_used():
        from rollbox.gateway import Gateway
    return Gateway


def _what_is_used() -> AbstractContextManager[None]:
    return nullcontext() if _uses_tls() else _no_certificates()


def _uses_tls() -> bool:
    try:
        return not settings.resolve().url.startswith("http://")
    except SandboxError:
        # The client raises it again, where it is printed.
        return True


@contextmanager
def _no_certificates() -> Iterator[None]:
    """Let TLS contexts be made without the machine's certificates: they trust no server.

    aiohttp makes two when it is imported, whether they are used or not, and reads all certificates for each.
    """
    setattr(ssl.SSLContext, _READS_CERTIFICATES, lambda _: None)
    try:
        yield
    finally:
        # It is inherited: without this attribute the class has its own method again.
        delattr(ssl.SSLContext, _READS_CERTIFICATES)
