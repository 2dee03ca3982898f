"""Harbor: see `calls`."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

from calls import IMAGE, Run, main
from harbor.environments.base import BaseEnvironment
from harbor.environments.docker.docker import DockerEnvironment
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from rollbox_integrations.harbor import RollboxEnvironment

PROVIDERS: dict[str, type[BaseEnvironment]] = {"rollbox": RollboxEnvironment, "docker": DockerEnvironment}


def _run(environment: BaseEnvironment) -> Run:
    return lambda argv: environment.exec(shlex.join(argv))


class Harbor:
    """See `calls.Host`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _made(self, provider: str) -> BaseEnvironment:
        name = f"bench-{uuid4().hex[:8]}"
        files = self._folder / name / "environment"
        files.mkdir(parents=True)
        paths = TrialPaths(self._folder / name / "trial")
        paths.mkdir()
        return PROVIDERS[provider](files, name, name, paths, EnvironmentConfig(docker_image=IMAGE, memory_mb=256))

    async def begin(self, provider: str) -> None:
        """See `calls.Host.begin`; nothing."""

    @contextlib.asynccontextmanager
    async def opened(self, provider: str) -> AsyncIterator[Run]:
        """See `calls.Host.opened`."""
        one = self._made(provider)
        await one.start(force_build=False)
        try:
            yield _run(one)
        finally:
            await one.stop(delete=True)

    @contextlib.asynccontextmanager
    async def both(self) -> AsyncIterator[tuple[Run, Run]]:
        """See `calls.Host.both`."""
        one = self._made("rollbox")
        assert isinstance(one, RollboxEnvironment)
        await one.start(force_build=False)
        try:
            # Harbor's commands are lines of a shell, so the SDK runs the same one.
            yield _run(one), lambda argv: one.sandbox.exec(shlex.join(argv))
        finally:
            await one.stop(delete=True)

    def unstarted(self) -> object:
        """See `calls.Host.unstarted`."""
        return self._made("rollbox")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Harbor(Path(made)))
