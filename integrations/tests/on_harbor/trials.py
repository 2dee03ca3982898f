"""Environments as Harbor makes those of a trial."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from rollbox_integrations.harbor import RollboxEnvironment

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
PATH = "rollbox_integrations.harbor:RollboxEnvironment"
LABELS = {"rollbox.host": "harbor"}
OFFLINE = NetworkPolicy(network_mode="no-network")


def environment(folder: Path, task: dict[str, Any] | None = None, **options: Any) -> RollboxEnvironment:
    """An environment that is not started, of a task with this [environment]."""
    files = folder / "environment"
    files.mkdir(exist_ok=True)
    paths = TrialPaths(folder / "trial")
    paths.mkdir()
    cls = EnvironmentFactory.get_environment_class(None, PATH)
    assert cls is RollboxEnvironment
    given = {"docker_image": IMAGE, "memory_mb": 512, **(task or {})}
    config = EnvironmentConfig(**{name: value for name, value in given.items() if value is not None})
    more = {"network_policy": OFFLINE, **options}
    return RollboxEnvironment(files, "task", "task__1__env", paths, config, **more)


@contextlib.asynccontextmanager
async def started(
    folder: Path, task: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[RollboxEnvironment]:
    """An environment while a trial lasts."""
    one = environment(folder, task, **options)
    try:
        await one.start(force_build=False)
        yield one
    finally:
        await one.stop(delete=True)
