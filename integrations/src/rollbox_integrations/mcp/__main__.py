"""`rollbox mcp`: serve MCP over standard streams, or over HTTP on this machine; all sandboxes end with it."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import signal
import sys
from pathlib import Path

from rollbox import Client, SandboxError
from rollbox_integrations.mcp import http, stdio
from rollbox_integrations.mcp.sandboxes import Sandboxes
from rollbox_integrations.mcp.server import server
from rollbox_integrations.mcp.settings import DEFAULT_IMAGE, DEFAULT_TTL_S, MOST_TTL_S, OFFLINE, Settings

_KEY = "ROLLBOX_MCP_KEY"
_LEAST_KEY = 16
_LEAST_TTL_S = 60
_MOST_SANDBOXES = 1024


def main(words: list[str] | None = None) -> None:
    """Serve until the client goes or a signal comes; all its sandboxes end with it."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    given = _parser().parse_args(words)
    try:
        asyncio.run(_serve(given, _settings(given)))
    except (SandboxError, ValueError, OSError) as error:
        raise SystemExit(f"rollbox mcp: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rollbox mcp", description="Serve sandboxes as tools over MCP.")
    add = parser.add_argument
    add("--url", help="Address of the gateway; else as the SDK finds it.")
    add("--image", default=DEFAULT_IMAGE, help="Image of sandboxes that are created without one.")
    add("--egress", action="append", metavar="PRESET", help="What sandboxes may reach; the first is the default.")
    add("--max-sandboxes", type=int, default=8, metavar="N", help="How many there may be at a time.")
    add("--max-ttl", type=int, default=DEFAULT_TTL_S, metavar="SECONDS", help="How long one may live.")
    add("--public-ports", action="store_true", help="Have a tool that opens ports to everybody.")
    add("--listen", metavar="HOST:PORT", help="Serve over HTTP on this machine; port 0: any.")
    add("--key-file", type=Path, metavar="FILE", help=f"The key of HTTP; else ${_KEY}, else a new one is printed.")
    add("--origin", action="append", default=[], help="Of a page in a browser that may call; may be repeated.")
    add("--json", action="store_true", help="Print address and key of HTTP as JSON.")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    if not 1 <= given.max_sandboxes <= _MOST_SANDBOXES:
        raise ValueError(f"--max-sandboxes {given.max_sandboxes} is not one of 1 to {_MOST_SANDBOXES}")
    if not _LEAST_TTL_S <= given.max_ttl <= MOST_TTL_S:
        raise ValueError(f"--max-ttl {given.max_ttl} is not one of {_LEAST_TTL_S} to {MOST_TTL_S}")
    return Settings(
        image=given.image,
        egress=tuple(given.egress or (OFFLINE,)),
        max_sandboxes=given.max_sandboxes,
        max_ttl=given.max_ttl,
        public_ports=given.public_ports,
    )


def _key(file: Path | None) -> str:
    text = os.environ.get(_KEY, "") if file is None else file.read_text().strip()
    if not text and file is None:
        return secrets.token_urlsafe(32)
    if len(text) < _LEAST_KEY or not all("!" <= letter <= "~" for letter in text):
        raise ValueError(f"the key of HTTP has fewer than {_LEAST_KEY} characters, or some that no header can carry")
    return text


async def _serve(given: argparse.Namespace, settings: Settings) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with Sandboxes(Client(given.url), settings) as sandboxes:
        if given.listen is None:
            await stdio.serve(server(sandboxes), ended)
        else:
            key, bound = _key(given.key_file), http.listening(given.listen)
            _tell(f"http://{http.address(bound)}/mcp", key, as_json=given.json)
            await http.serve(server(sandboxes), bound, key, given.origin, ended)
    if ended.is_set() and given.listen is None:
        # The thread that waits for input cannot be ended otherwise.
        sys.stderr.flush()
        os._exit(0)


def _tell(url: str, key: str, *, as_json: bool) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    told = (
        {"url": url, "headers": headers} if as_json else {"mcpServers": {"rollbox": {"url": url, "headers": headers}}}
    )
    sys.stdout.write(json.dumps(told, indent=None if as_json else 2) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
