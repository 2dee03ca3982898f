"""Sandboxes as NeMo Gym's servers make them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec, resolve_provider_config, resolve_provider_metadata

import rollbox

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
LABELS = {"rollbox.host": "nemo-gym"}
# As a file of `config_paths` has it.
CONFIG = {"sandbox": {"rollbox": {"egress": "offline"}, "default_metadata": {"sandbox-api": "rollbox"}}}


def sandbox(provider: dict[str, Any] | None = None, **spec: Any) -> AsyncSandbox:
    """One that is not started."""
    given = {"image": IMAGE, "resources": {"memory_mib": 512}, **spec}
    metadata = {**resolve_provider_metadata("sandbox", CONFIG), **given.pop("metadata", {})}
    config = {"rollbox": provider} if provider is not None else resolve_provider_config("sandbox", CONFIG)
    return AsyncSandbox(config, SandboxSpec(**given, metadata=metadata))


@contextlib.asynccontextmanager
async def started(provider: dict[str, Any] | None = None, **spec: Any) -> AsyncIterator[AsyncSandbox]:
    async with sandbox(provider, **spec) as one:
        yield await one.start()


def own(box: AsyncSandbox) -> rollbox.Sandbox:
    """The SDK's."""
    raw = box._require_handle().raw
    assert isinstance(raw, rollbox.Sandbox)
    return raw
