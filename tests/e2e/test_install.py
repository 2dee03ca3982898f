"""What somebody does first with an installed release: `helm test`, after an upgrade too."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client
from tests.support.installed import Installed
from tests.support.waiting import until


@pytest.mark.core
async def test_helm_test_runs_a_command_in_a_sandbox_and_leaves_nothing(stack: Installed, client: Client) -> None:
    said = await stack.test()
    assert "exit code 0" in said
    assert "gvisor" in said.lower()
    await until(lambda: _none_left(client))


async def _none_left(client: Client) -> bool:
    await asyncio.sleep(0.2)
    return not await client.list()
