"""The tools that create, list and delete sandboxes. Their docstrings are what a model is told of them."""

from __future__ import annotations

from datetime import UTC, datetime

from rollbox.errors import InvalidArgument
from rollbox.options import CreateOptions
from rollbox.record import SandboxRecord
from rollbox_integrations.mcp.inputs import CreateSandbox, NoArguments, OneSandbox
from rollbox_integrations.mcp.outputs import DeletedOutput, SandboxesOutput, SandboxOutput
from rollbox_integrations.mcp.sandboxes import Sandboxes


async def create_sandbox(sandboxes: Sandboxes, given: CreateSandbox) -> SandboxOutput:
    """Create an isolated Linux sandbox of a container image, for the other tools. It ends with its ttl."""
    settings = sandboxes.settings
    ttl = given.ttl if "ttl" in given.model_fields_set else min(given.ttl, settings.max_ttl)
    if ttl > settings.max_ttl:
        raise InvalidArgument(f"ttl {ttl} is over {settings.max_ttl} s, the most that this server allows")
    egress = given.egress or settings.egress[0]
    if egress not in settings.egress:
        raise InvalidArgument(f"egress {egress!r} is none of {', '.join(settings.egress)}")
    options = CreateOptions(
        cpu=given.cpu,
        memory=f"{given.memory_mb}Mi",
        env=given.env,
        cwd=given.cwd or None,
        user=given.user or None,
        ttl=ttl,
        egress=egress,
        start_timeout=given.start_timeout,
    )
    made = await sandboxes.create(given.image or settings.image, options)
    return _told(made.record)


async def list_sandboxes(sandboxes: Sandboxes, given: NoArguments) -> SandboxesOutput:
    """List the sandboxes that were created here and have not ended."""
    records = await sandboxes.list()
    return SandboxesOutput(sandboxes=[_told(one) for one in records], max_sandboxes=sandboxes.settings.max_sandboxes)


async def delete_sandbox(sandboxes: Sandboxes, given: OneSandbox) -> DeletedOutput:
    """Delete a sandbox with all its files and processes."""
    await sandboxes.delete(given.sandbox_id)
    return DeletedOutput(sandbox_id=given.sandbox_id)


def _told(record: SandboxRecord) -> SandboxOutput:
    expires = datetime.fromtimestamp(record.expires_at_ms // 1000, UTC).isoformat()
    return SandboxOutput(
        sandbox_id=record.id, state=record.state, image=record.image, egress=record.egress or "", expires_at=expires
    )
