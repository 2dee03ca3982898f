"""The agent of a sandbox on the engine, called past the gateway."""

from __future__ import annotations

from rollbox import Sandbox
from tests.support.agent_calls import takes_its_own_token_only
from tests.support.stack import Stack


async def test_every_method_takes_the_sandboxs_own_token_and_no_other(stack: Stack, sandbox: Sandbox) -> None:
    await takes_its_own_token_only(stack, sandbox, f"unix:{stack.state_dir}/sandboxes/{sandbox.id}/agent.sock")
