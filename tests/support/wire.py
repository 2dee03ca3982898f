"""Requests without the SDK's own checks: what any HTTP client could send."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import aiohttp

from tests.support.stack import Product


async def raw(stack: Product, method: str, path: str, token: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    """One request; status and JSON body of the answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, stack.url + path, data=BytesIO(body), headers=headers) as answer,
    ):
        return answer.status, await answer.json(content_type=None)


async def token_of(stack: Product, sandbox_id: str) -> str:
    """A sandbox token, got as `connect` gets it."""
    status, body = await raw(stack, "POST", f"/v1/sandboxes/{sandbox_id}/token", stack.api_key)
    if status != 200:
        raise RuntimeError(f"no token for {sandbox_id}: {body}")
    token: str = body["token"]
    return token
