"""Two owners of one installation: what is one's is not there for the other, whatever he brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from rollbox import Client, Sandbox
from rollbox.errors import PermissionDenied, SandboxNotFound
from tests.support.images import IMAGE
from tests.support.installed import STRANGER, Installed
from tests.support.wire import raw, token_of

PORT = 8000
SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


@pytest.fixture
async def stranger(stack: Installed) -> AsyncIterator[Client]:
    """Another owner, who is no operator."""
    async with Client(stack.url, stack.strangers_key) as client:
        yield client


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_sandbox_is_not_there_for_another_owner(stack: Installed, shared: Sandbox, stranger: Client) -> None:
    # It may have had some of its own: `helm test` takes any owner's key.
    assert {record.owner for record in await stranger.list(all=True)} <= {STRANGER}
    for call in (stranger.get(shared.id), stranger.connect(shared.id), stranger.timeline(shared.id)):
        with pytest.raises(SandboxNotFound):
            await call
    assert isinstance((await stranger.delete(shared.id)).failed[shared.id], SandboxNotFound)
    place = f"/v1/sandboxes/{shared.id}"
    for method, path, body in (
        ("POST", f"{place}/token", b""),
        ("POST", f"{place}/ports/{PORT}", b'{"visibility": "public"}'),
        ("DELETE", f"{place}/ports/{PORT}", b""),
    ):
        status, told = await raw(stack, method, path, stack.strangers_key, body)
        assert (status, told["code"]) == (404, "sandbox_not_found"), (method, path)
    with pytest.raises(PermissionDenied):
        await stranger.set_quota("stranger", sandboxes=100)
    assert (await shared.exec("echo untouched")).stdout == "untouched\n"


async def test_a_port_lets_no_token_of_another_owner_in(
    stack: Installed, shared: Sandbox, stranger: Client, http: aiohttp.ClientSession
) -> None:
    port = await shared.ports.expose(PORT)
    assert port.host_url is not None
    host = {"Host": URL(port.host_url).authority}
    async with (
        await shared.spawn(["python3", "-m", "http.server", str(PORT)]),
        await stranger.create(IMAGE, **SMALL) as own,
    ):
        await shared.ports.wait(PORT, timeout=30)
        theirs = {"X-Rollbox-Token": await token_of(stack, shared.id)}
        _, minted = await raw(stack, "POST", f"/v1/sandboxes/{own.id}/token", stack.strangers_key)
        mine = {"X-Rollbox-Token": minted["token"]}
        key = {"Authorization": f"Bearer {stack.strangers_key}"}
        tried = [
            (url, {**more, **brought})
            for brought in (theirs, mine, key)
            for url, more in ((port.url, {}), (stack.url, host))
        ]
        assert await asyncio.gather(*(_status(http, *one) for one in tried)) == [200, 200, 403, 403, 401, 401]
        for kind in ("tcp", "udp"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(f"{stack.url}/v1/sandboxes/{shared.id}/ports/{PORT}/{kind}", headers=mine)
            assert refused.value.status == 403


async def _status(http: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> int:
    async with http.get(url, headers=headers) as answer:
        return answer.status
