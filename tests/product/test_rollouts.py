"""Groups, lazy sandboxes and continuous batching on the real product, and the rollout loop that users copy."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rollbox import Batch, Client, Sandbox, SandboxGroup
from rollbox.errors import Deleted, NotFound
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.product import SHARED
from tests.support.stack import Product
from tests.support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "sdk" / "examples"
SMALL = {"cpu": (0.01, 2), "memory": ("64Mi", "128Mi")}
# Each task of a set has a group; under gVisor the second group repeats what the first one shows.
TASKS = 1 if ON_CLUSTER else 2


@pytest.mark.core
async def test_a_group_is_found_again_by_another_client_and_ends_together(stack: Product, client: Client) -> None:
    wish: Any = {"n": 3, "name": f"found-{uuid4().hex[:8]}", **SMALL}
    group = await SandboxGroup.create(IMAGE, client=client, **wish)
    same = await SandboxGroup.create(IMAGE, client=client, **wish)
    assert [sandbox.id for sandbox in same] == [sandbox.id for sandbox in group]
    await asyncio.gather(*(sandbox.exec(f"echo {sample} > /tmp/sample") for sample, sandbox in group.items()))
    await group[1].delete(wait=True)
    async with Client(stack.url, stack.api_key) as another:
        again = await SandboxGroup.connect(group.name, attach=True, client=another)
        said = {sample: (await sandbox.exec("cat /tmp/sample")).stdout for sample, sandbox in again.items()}
        assert said == {0: "0\n", 2: "2\n"}
        assert isinstance(again.failed[1], Deleted)
        assert len((await again.delete(wait=True)).deleted) == 2
        with pytest.raises(NotFound):
            await SandboxGroup.connect("no-such-group", client=another)
    assert await client.list({"rollbox.group": group.name}) == []


async def test_a_lazy_group_starts_what_is_used(client: Client) -> None:
    async with SandboxGroup.lazy(IMAGE, n=4, client=client, labels={"run": "lazy"}, **SMALL) as group:  # type: ignore[arg-type]
        assert await client.list({"run": "lazy"}) == []
        assert (await group[2].exec("echo used")).stdout == "used\n"
        assert [record.labels["rollbox.sample"] for record in await client.list({"run": "lazy"})] == ["2"]


async def test_a_stale_rollout_dies_with_all_its_processes_and_the_next_takes_its_place(client: Client) -> None:
    begun = asyncio.Event()
    ids: list[str] = []

    async def rollout(n: int) -> str:
        async with await client.create(IMAGE, **SMALL) as sandbox:  # type: ignore[arg-type]
            ids.append(sandbox.id)
            if n == 0:
                await sandbox.exec("sleep 1000 & setsid sleep 1000 & echo begun")
                begun.set()
            return (await sandbox.exec("sleep 1000; true" if n == 0 else "echo fresh")).stdout

    async with Batch(range(2), rollout, in_flight=1) as batch:
        reading = asyncio.ensure_future(anext(batch))
        await begun.wait()
        assert batch.cancel(lambda n: n == 0) == 1
        assert (await reading).value == "fresh\n"
    ends = [(await client.get(sandbox_id)).end for sandbox_id in ids]
    assert [end and end.cause for end in ends] == ["deleted", "deleted"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "limit"), [("humaneval", TASKS), ("software", TASKS)])
async def test_the_rollout_loop_does_what_it_says(stack: Product, client: Client, name: str, limit: int) -> None:
    options = ("--image", IMAGE, "--set", name, "--limit", str(limit), "--in-flight", "4")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / "rollouts.py"),
        *options,
        env={**os.environ, **stack.environment()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(240):
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b""), out
    told = json.loads(out)
    # A group of four is decided after three; one of three has no more.
    assert (told["rollouts"], told["left_behind"]) == (3 * limit, 0)
    assert told["never_started"] == limit

    async def nothing_is_left() -> bool:
        return all(SHARED in one.labels for one in await Sandbox.list(client=client))

    # What tests before this one have left in the server's hand ends behind its answers.
    await until(nothing_is_left)
