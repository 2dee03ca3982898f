"""`rollbox bridge e2b`: serve E2B's protocol until Ctrl-C."""

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
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from rollbox_bridges.e2b.server import Bridge
from rollbox_bridges.e2b.settings import DEFAULT_IMAGE, DEFAULT_IMAGE_KEY, Settings

_SECRET = "ROLLBOX_BRIDGE_SECRET"  # noqa: S105 - a name
_LEAST_SECRET = 16


def main(words: list[str] | None = None) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(_parser().parse_args(words)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rollbox bridge e2b", description="Serve E2B's protocol over rollbox.")
    add = parser.add_argument
    add("--listen", default="127.0.0.1:3000", metavar="HOST:PORT", help="Address of the bridge; port 0: any.")
    add("--url", help="Address of the gateway; else as the SDK finds it.")
    add("--domain", help="Ports of sandboxes are {port}-{id} below it; else below localhost.")
    add("--image", default=DEFAULT_IMAGE, help="Image of the templates base and code-interpreter-v1.")
    add("--template", action="append", default=[], metavar="NAME=IMAGE", help="A template; may be repeated.")
    add("--image-key", default=DEFAULT_IMAGE_KEY, help="The key of metadata that names the image.")
    add("--keys", type=Path, metavar="FILE", help="TOML: a client's key = the owner's key. Else they are the same.")
    add("--egress", metavar="PRESET", help="Network of sandboxes whose client allows the Internet.")
    add("--private-ports", action="store_true", help="Ports of sandboxes need their credential.")
    add("--secret-file", type=Path, help=f"Seals credentials; else ${_SECRET}, else they end with this process.")
    add("--json", action="store_true", help="Print JSON.")
    return parser


def settings_of(given: argparse.Namespace) -> Settings:
    """Read the settings.

    Raises:
        SystemExit: they are not sound.
    """
    templates = dict(one.split("=", 1) for one in given.template if "=" in one)
    if len(templates) != len(given.template):
        raise SystemExit("--template is NAME=IMAGE, each name once")
    return Settings(
        url=given.url,
        secret=_secret(given.secret_file),
        domain=given.domain,
        default_image=given.image,
        templates=templates,
        image_key=given.image_key,
        keys=_keys(given.keys),
        egress=given.egress,
        public_ports=not given.private_ports,
    )


def _secret(file: Path | None) -> bytes:
    text = os.environ.get(_SECRET, "").encode() if file is None else file.read_bytes().strip()
    if not text and file is None:
        return secrets.token_bytes(32)
    if len(text) < _LEAST_SECRET:
        raise SystemExit(f"the secret has {len(text)} bytes, fewer than {_LEAST_SECRET}")
    return text


def _keys(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    keys: dict[str, Any] = tomllib.loads(file.read_text())
    if not keys or not all(isinstance(one, str) and one for one in keys.values()):
        raise SystemExit(f'{file} has no lines of the form "client\'s key" = "owner\'s key"')
    return keys


async def _serve(given: argparse.Namespace) -> None:
    settings = settings_of(given)
    host, _, port = given.listen.rpartition(":")
    runner = Bridge(settings).runner()
    await runner.setup()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        await web.TCPSite(runner, host or "127.0.0.1", int(port)).start()
        _tell(runner.addresses[0], as_json=given.json)
        await ended.wait()
    finally:
        await runner.cleanup()


def _tell(address: Any, *, as_json: bool) -> None:  # noqa: ANN401 - of a socket
    url = f"http://{address[0]}:{address[1]}"
    if as_json:
        sys.stdout.write(json.dumps({"url": url}) + "\n")
    else:
        key = "e2b_$(printf %s YOUR_ROLLBOX_KEY | od -An -tx1 | tr -d ' \\n')"
        sys.stdout.write(f"export E2B_API_URL={url} E2B_SANDBOX_URL={url}\nexport E2B_API_KEY={key}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
