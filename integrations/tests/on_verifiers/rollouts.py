"""Runtimes as verifiers provisions those of a rollout."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from typing import Any

from pydantic import TypeAdapter
from verifiers.v1.runtimes import Runtime, RuntimeConfig, provision_runtime

from rollbox_integrations.verifiers import RollboxBackend

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
PATH = "rollbox_integrations.verifiers.RollboxBackend"
LABELS = {"rollbox.host": "verifiers"}


def config(**options: Any) -> RuntimeConfig:
    """What a configuration file says, read as verifiers reads it."""
    told = {"type": "custom", "import_path": PATH, "image": IMAGE, "memory": 0.5, "egress": "offline", **options}
    return TypeAdapter(RuntimeConfig).validate_python(told)


def runtime(**options: Any) -> AbstractAsyncContextManager[Runtime]:
    """A runtime while a rollout lasts."""
    return provision_runtime(config(**options))


def backend(one: Runtime) -> RollboxBackend:
    """What is behind a runtime."""
    assert isinstance(one.backend, RollboxBackend)
    return one.backend
