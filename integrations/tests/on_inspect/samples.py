"""Sandboxes as inspect makes and removes those of a sample."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from inspect_ai.util import SandboxEnvironment

from rollbox_integrations.inspect import RollboxConfig, RollboxSandboxEnvironment

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
LABELS = {"rollbox.host": "inspect"}


async def made(config: Any) -> RollboxSandboxEnvironment:
    """A sandbox of a sample with this configuration."""
    await RollboxSandboxEnvironment.task_init("test", config)
    environments = await RollboxSandboxEnvironment.sample_init("test", config, {})
    return environments["default"].as_type(RollboxSandboxEnvironment)


async def removed(environment: SandboxEnvironment) -> None:
    """Remove it, as at the end of a sample."""
    await RollboxSandboxEnvironment.sample_cleanup("test", None, {"default": environment}, interrupted=False)


@contextlib.asynccontextmanager
async def sample(**options: Any) -> AsyncIterator[RollboxSandboxEnvironment]:
    """A sandbox while a sample lasts."""
    environment = await made(RollboxConfig(**{"image": IMAGE, "memory": "512Mi", **options}))
    try:
        yield environment
    finally:
        await removed(environment)
