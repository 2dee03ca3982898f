"""Late settings with a real gateway, control plane and Redis: their values are in none of the last two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from controlplane.model import SandboxSpec
from rollbox import SandboxGroup, errors
from tests.bench.lifecycle.stage import API_KEY, IMAGE, stage
from tests.support.process_memory import holds

COLD = "localhost/bench/cold:1"


@asynccontextmanager
async def told(url: str) -> AsyncIterator[list[str]]:
    """Every command that Redis gets while the block runs."""
    commands: list[str] = []
    async with Redis.from_url(url) as redis, redis.monitor() as monitor:

        async def listen() -> None:
            async for command in monitor.listen():
                commands.append(str(command["command"]))

        listening = asyncio.create_task(listen())
        try:
            yield commands
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


@pytest.mark.timeout(300)
async def test_no_value_reaches_the_control_plane_or_redis() -> None:
    secret, label = f"hush-{uuid4().hex}", f"seen-{uuid4().hex}"
    env, labels = {"SECRET": secret}, {"l": label}
    async with stage() as ground, ground.client() as client:
        await ground.fill(client, "warm", 3)
        async with told(ground.redis_url) as commands:
            warm = await client.create(IMAGE, env=env, labels=labels, idempotency_key="k")
            cold = await client.create(COLD, env=env, labels=labels, cwd=f"/{secret}")
            assert (warm.record.source, cold.record.source) == ("warm", "cold")
            assert (await client.create(IMAGE, env=env, labels=labels, idempotency_key="k")).id == warm.id
            with pytest.raises(errors.Conflict):
                await client.create(IMAGE, env={"SECRET": f"{secret}-2"}, labels=labels, idempotency_key="k")
            await SandboxGroup.create(IMAGE, n=2, client=client, env=env)
            assert (await warm.exec(["true"])).exit_code == 0
        everything = "\n".join(commands)
        # The witness sees: what has no reason to be secret is there.
        assert label in everything
        assert holds(ground.planes[0], label)
        assert secret not in everything
        assert not holds(ground.planes[0], secret)
        assert secret not in (ground.folder / "log").read_text()


ENVS: list[Any] = [
    {"A": "1"},
    {"x" * 256: ""},
    {"é": "\u20ac"},
    {"A": "x" * 130_000},
    None,
    [],
    "A=1",
    {"A": 1},
    {"A": None},
    {"": "1"},
    {"A=": "1"},
    {"A\0": "1"},
    {"A": "\0"},
    {"x" * 257: ""},
    {"A": "x" * (1 << 18)},
    {"A": "\ud800"},
]
CWDS = ["/", "/a b", "/" + "é" * 4095, "a", "/" * 4097, "/\0", None, 7, "/\ud800"]
USERS = ["root", "0:0", ":staff", "a:", "a:b:c", "a b", "a\u00a0b", "x" * 257, "a\0", None]
SETTINGS = [(name, value) for name, values in (("env", ENVS), ("cwd", CWDS), ("user", USERS)) for value in values]


@pytest.mark.timeout(300)
async def test_the_gateway_has_the_rules_of_the_control_plane() -> None:
    async with stage() as ground, aiohttp.ClientSession() as http:
        for name, value in SETTINGS:
            body = {"image": IMAGE, name: value}
            try:
                SandboxSpec.model_validate(body)
                wrong = None
            except ValidationError as error:
                wrong = str(error.errors()[0]["loc"][0])
            headers = {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"}
            async with http.post(f"{ground.urls[0]}/v1/sandboxes", data=json.dumps(body), headers=headers) as answer:
                said = await answer.json(content_type=None)
            assert said.get("details", {}).get("field") == wrong, (name, str(value)[:80], said)
            assert answer.status == (201 if wrong is None else 400)
