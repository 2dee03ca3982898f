"""Sessions as openai-agents' runner makes and ends them, and runs of its agents with scripted answers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from agents import RunConfig, Runner, RunResult
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.session import SandboxSession
from agents.sandbox.snapshot import NoopSnapshotSpec, SnapshotSpec
from agents.testing import ScriptedModel

from rollbox_integrations.openai_agents import RollboxSandboxClient, RollboxSandboxClientOptions

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
LABELS = {"rollbox.host": "openai-agents"}


def options(**given: Any) -> RollboxSandboxClientOptions:
    return RollboxSandboxClientOptions(**{"image": IMAGE, "memory": "512Mi", "egress": "offline", **given})


@contextlib.asynccontextmanager
async def session(
    manifest: Manifest | None = None, snapshot: SnapshotSpec | None = None, **given: Any
) -> AsyncIterator[SandboxSession]:
    """A session from its start to its end."""
    client = RollboxSandboxClient()
    made = await client.create(snapshot=snapshot or NoopSnapshotSpec(), manifest=manifest, options=options(**given))
    try:
        async with made:
            yield made
    finally:
        await client.delete(made)


async def run(model: ScriptedModel, **given: Any) -> RunResult:
    """Run an agent, which has a sandbox of its own, with a model that gives these answers."""
    agent: SandboxAgent[None] = SandboxAgent(name="coder", model=model, capabilities=[Shell(), Filesystem()])
    where = SandboxRunConfig(client=RollboxSandboxClient(), options=options(**given), snapshot=NoopSnapshotSpec())
    return await Runner.run(agent, "Solve it.", run_config=RunConfig(tracing_disabled=True, sandbox=where))


def outputs(result: RunResult) -> list[str]:
    """What the model was told of its calls."""
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]
