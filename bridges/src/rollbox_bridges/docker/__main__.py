"""`rollbox bridge docker`: serve the Docker Engine API on a Unix socket until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import uvloop
from aiohttp import web

from rollbox import SandboxError
from rollbox_bridges.docker.limits import REASONS
from rollbox_bridges.docker.server import Bridge
from rollbox_bridges.docker.settings import DEFAULT_LEASE_S, DEFAULT_TTL_S, Settings, default_socket
from rollbox_bridges.program import BACKLOG, SettingError, checked, until_signal

_MODE = 0o600
_FOLDER_MODE = 0o700
_LEFT_OUT = "Leave a field of HostConfig out, with a warning, where it would be refused; may be repeated."


def main(words: list[str] | None = None) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    given = _parser().parse_args(words)
    with checked(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rollbox bridge docker", description="Serve the Docker Engine API over rollbox."
    )
    add = parser.add_argument
    add("--socket", type=Path, metavar="PATH", help="The Unix socket; else a default one of this user.")
    add("--url", help="Address of the gateway; else as the SDK finds it.")
    add("--egress", metavar="PRESET", help="Network of containers on Docker's default network.")
    add("--ttl", type=float, default=DEFAULT_TTL_S, metavar="S", help="Seconds after which a container ends.")
    add("--lease", type=float, default=DEFAULT_LEASE_S, metavar="S", help="Seconds that containers outlive a kill.")
    add("--leave-out", action="append", default=[], choices=sorted(REASONS), metavar="FIELD", help=_LEFT_OUT)
    add("--json", action="store_true", help="Print JSON.")
    return parser


async def _serve(given: argparse.Namespace) -> None:
    left_out = frozenset(given.leave_out)
    settings = Settings(url=given.url, egress=given.egress, ttl_s=given.ttl, lease_s=given.lease, left_out=left_out)
    try:
        bridge = Bridge(settings)
    except SandboxError as error:
        raise SettingError(f"{error}") from error
    path = given.socket or default_socket(os.environ, os.getuid())
    runner = bridge.runner()
    await runner.setup()
    ended = until_signal()
    listening = bound(path)
    try:
        await web.SockSite(runner, listening, backlog=BACKLOG).start()
        _tell(path, as_json=given.json)
        await ended.wait()
    finally:
        await runner.cleanup()
        await bridge.aclose()
        path.unlink(missing_ok=True)


def bound(path: Path) -> socket.socket:
    """A socket at a path that only this user may open; one that a dead bridge has left is replaced.

    Raises:
        SettingError: a bridge listens there, something else is there, or there is no such folder and none can be made.
    """
    try:
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"{path} cannot be listened at: {error}") from error
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if path.exists():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            try:
                other.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            except OSError as error:
                raise SettingError(f"{path} is no socket of a bridge: {error}") from error
            else:
                raise SettingError(f"a program listens at {path} already")
    before = os.umask(0o777 & ~_MODE)
    try:
        made.bind(str(path))
    except OSError as error:
        raise SettingError(f"{path} cannot be listened at: {error}") from error
    finally:
        os.umask(before)
    return made


def _tell(path: Path, *, as_json: bool) -> None:
    address = f"unix://{path}"
    with suppress(BrokenPipeError):
        sys.stdout.write((json.dumps({"url": address}) if as_json else f"export DOCKER_HOST={address}") + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
