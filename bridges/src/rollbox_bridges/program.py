"""A bridge as a program: the options that all bridges have, their files of keys and secrets, and its life."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvloop
from aiohttp import web

from rollbox_bridges.tls import Certificate, TlsError

SECRET: Final = "ROLLBOX_BRIDGE_SECRET"  # noqa: S105 - a name
"""The variable with the secret that seals credentials."""
_LEAST_SECRET: Final = 16
BACKLOG: Final = 4096
"""Connections that wait to be accepted. At a Unix socket one more is refused at once, which asyncio's clients take for
a connection that was made."""
_BAD_SETTING: Final = 64
_MOST_PORT: Final = 65_535


class SettingError(Exception):
    """What a bridge was started with cannot be used, in a sentence for the user."""


@contextmanager
def checked() -> Iterator[None]:
    """End the program with a sentence where its settings cannot be used.

    Raises:
        SystemExit: with 64.
    """
    try:
        yield
    except (SettingError, TlsError) as error:
        sys.stderr.write(f"rollbox bridge: {error}\n")
        raise SystemExit(_BAD_SETTING) from error


def parser_of(protocol: str, whose: str, listen: str) -> argparse.ArgumentParser:
    """Make a parser with the options of every bridge: listen, url, keys, TLS, json.

    Args:
        protocol: the name of the bridge on the command line.
        whose: whose protocol it is, for the help.
        listen: where it listens unless it is told.
    """
    parser = argparse.ArgumentParser(prog=f"rollbox bridge {protocol}", description=f"Serve {whose} over rollbox.")
    add = parser.add_argument
    add("--listen", default=listen, metavar="HOST:PORT", help="Address of the bridge; port 0: any.")
    add("--url", help="Address of the gateway; else as the SDK finds it.")
    add("--keys", type=Path, metavar="FILE", help="TOML: a client's key = the owner's key. Else they are the same.")
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM: serve HTTPS, with it and those that signed it.")
    add("--tls-key", type=Path, metavar="FILE", help="PEM: the key of the certificate. Both are read anew on change.")
    add("--json", action="store_true", help="Print JSON.")
    return parser


def pairs_of(option: str, given: list[str]) -> dict[str, str]:
    """Read values of the form NAME=VALUE.

    Raises:
        SettingError: one is not of that form, or a name is given twice.
    """
    pairs = dict(one.split("=", 1) for one in given if "=" in one)
    if len(pairs) != len(given):
        raise SettingError(f"{option} is NAME=VALUE, each name once")
    return pairs


def keys_of(file: Path | None) -> dict[str, str]:
    """Read a file of keys; none is no keys.

    Raises:
        SettingError: it cannot be read, or has other lines.
    """
    if file is None:
        return {}
    try:
        keys: dict[str, Any] = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise SettingError(f"--keys {file} cannot be read: {error}") from error
    if not keys or not all(isinstance(one, str) and one for one in keys.values()):
        raise SettingError(f'{file} has no lines of the form "client\'s key" = "owner\'s key"')
    return keys


def secret_of(file: Path | None) -> bytes:
    """Read the secret from a file, else from the variable `SECRET`; where there is neither it is made for this process.

    Raises:
        SettingError: it cannot be read, or is too short.
    """
    try:
        text = os.environ.get(SECRET, "").encode() if file is None else file.read_bytes().strip()
    except OSError as error:
        raise SettingError(f"--secret-file {file} cannot be read: {error}") from error
    if not text and file is None:
        return secrets.token_bytes(32)
    if len(text) < _LEAST_SECRET:
        raise SettingError(f"the secret has {len(text)} bytes, fewer than {_LEAST_SECRET}")
    return text


def address_of(listen: str) -> tuple[str, int]:
    """Read host and port of an address to listen on; without a host it is the loopback.

    Raises:
        SettingError: it is no address.
    """
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > _MOST_PORT:
        raise SettingError(f"--listen {listen} is no HOST:PORT with a port from 0 to {_MOST_PORT}")
    return host.strip("[]") or "127.0.0.1", int(port)


def run(made: Callable[[], web.AppRunner], given: argparse.Namespace, told: Callable[[str], str]) -> None:
    """Serve until a signal comes.

    Args:
        made: makes what is served, on the event loop that serves it.
        given: the options.
        told: what to export for clients, by the address of the bridge.

    Raises:
        SettingError: the address cannot be listened on.
        TlsError: the certificate or its key cannot be used.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    certificate = certificate_of(given.tls_certificate, given.tls_key)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(made, given, told, certificate))


def certificate_of(certificate: Path | None, key: Path | None) -> Certificate | None:
    """Read the certificate that HTTPS is served with; None: HTTP is served.

    Raises:
        TlsError: there is one file without the other, or they cannot be used.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise TlsError("--tls-certificate and --tls-key are given together")
    return Certificate(certificate, key)


async def _serve(
    made: Callable[[], web.AppRunner],
    given: argparse.Namespace,
    told: Callable[[str], str],
    certificate: Certificate | None = None,
) -> None:
    host, port = address_of(given.listen)
    runner = made()
    await runner.setup()
    ended = until_signal()
    try:
        context = None if certificate is None else certificate.context
        site = web.TCPSite(runner, host, port, backlog=BACKLOG, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise SettingError(f"cannot listen on {given.listen}: {reason}. Give another --listen.") from error
        scheme = "http" if certificate is None else "https"
        _tell("{}://{}:{}".format(scheme, *runner.addresses[0][:2]), told, as_json=given.json)
        await ended.wait()
    finally:
        await runner.cleanup()


def until_signal() -> asyncio.Event:
    """An event of this loop that is set when the program is to end."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


def _tell(url: str, told: Callable[[str], str], *, as_json: bool) -> None:
    sys.stdout.write((json.dumps({"url": url}) if as_json else told(url)) + "\n")
    sys.stdout.flush()
