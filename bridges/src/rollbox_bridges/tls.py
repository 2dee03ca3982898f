"""HTTPS of a bridge: a certificate and its key, which are read again when their files have changed."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

_log = logging.getLogger("rollbox_bridges")
# How a client and a bridge agree on the protocol above.
_ALPN: Final = ("http/1.1",)
_State: TypeAlias = list[tuple[int, int, int]]


class TlsError(Exception):
    """A certificate and a key cannot be used; the message says which file, and why."""


class Certificate:
    """A certificate and its key, in PEM.

    Each connection gets what the files have at its begin: two looks at their times, and no task. Where they cannot be
    used any more, the ones before are served on, with a line in the log.

    Args:
        certificate: file of the server's certificate, and below it of those that have signed it.
        key: file of its key, without a password.

    Attributes:
        context: what a server listens with.

    Raises:
        TlsError: they cannot be used.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._seen = self._state()
        self._newest = self._loaded()
        self.context = self._loaded()
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Give a connection the newest certificate; OpenSSL asks for it at every handshake."""
        try:
            state = self._state()
            if state != self._seen:
                self._seen = state
                self._newest = self._loaded()
                _log.info("the certificate %s was read again", self._certificate)
        except TlsError as error:
            _log.warning("the certificate that was read before is served on: %s", error)
        connection.context = self._newest

    def _state(self) -> _State:
        """What changes when one of the files does."""
        found = [_looked_at(path) for path in (self._certificate, self._key)]
        return [(one.st_mtime_ns, one.st_ino, one.st_size) for one in found]

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(_ALPN)
        try:
            context.load_cert_chain(self._certificate, self._key, password=self._no_password)
        except OSError as error:
            raise TlsError(
                f"{self._certificate} is no certificate in PEM, or {self._key} not its key: {error}"
            ) from error
        return context

    def _no_password(self) -> NoReturn:
        raise TlsError(f"{self._key} has a password, which a bridge cannot be given: write it without one")


def _looked_at(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise TlsError(f"{path} cannot be read: {error.strerror}") from error
