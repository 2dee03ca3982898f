"""A crowd of connections that comes before a bridge has accepted any: all of them wait there, and none is dropped."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable
from contextlib import ExitStack

import pytest

from rollbox_bridges import program
from rollbox_bridges.e2b import __main__ as e2b
from rollbox_bridges.e2b.server import Bridge
from tests.support.eventually import eventually
from tests.support.gateway_fake import FakeGateway

CROWD = 400
# Linux drops what does not fit, and its client tries again after a second.
LIMIT_S = 5.0


async def _address(serving: Awaitable[None], out: pytest.CaptureFixture[str]) -> tuple[asyncio.Future[None], str]:
    task, told = asyncio.ensure_future(serving), ""

    def heard() -> bool:
        nonlocal told
        told += out.readouterr().out
        return task.done() or told.endswith("\n")

    await eventually(heard)
    return task, json.loads(told)["url"]


async def test_e2bs_bridge_takes_a_crowd(fake: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    given = e2b.parser().parse_args(["--listen", "127.0.0.1:0", "--url", fake.url, "--json"])
    settings = e2b.settings_of(given)
    task, url = await _address(program._serve(lambda: Bridge(settings).runner(), given, str), capsys)
    try:
        with ExitStack() as opened:
            # This loop turns between none of them, so that the bridge accepts none.
            for _ in range(CROWD):
                opened.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), LIMIT_S))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
