"""inspect: see `calls`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from calls import IMAGE, Run, main
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.docker import prereqs
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

from rollbox_integrations.inspect import RollboxConfig, RollboxSandboxEnvironment

TASK = "bench"
# As the file that inspect writes itself, but for its init, which not each Podman has: a signal that needs none ends it.
COMPOSE = f"""services:
  default:
    image: {IMAGE}
    command: tail -f /dev/null
    network_mode: none
    stop_signal: SIGKILL
    mem_limit: 256m
"""


# Over Podman's socket the engine's version is Podman's, which inspect takes for a Docker of before its time.
prereqs.validate_docker_engine.__defaults__ = ("0.0.1",)


def _run(environment: SandboxEnvironment) -> Run:
    return lambda argv: environment.exec(list(argv))


class Inspect:
    """See `calls.Host`."""

    def __init__(self, folder: Path) -> None:
        self._compose = folder / "compose.yaml"
        self._compose.write_text(COMPOSE)

    def _config(self, provider: str) -> RollboxConfig | str:
        return RollboxConfig(image=IMAGE, memory="256Mi") if provider == "rollbox" else str(self._compose)

    async def begin(self, provider: str) -> None:
        """See `calls.Host.begin`."""
        await registry_find_sandboxenv(provider).task_init(TASK, self._config(provider))

    @contextlib.asynccontextmanager
    async def opened(self, provider: str) -> AsyncIterator[Run]:
        """See `calls.Host.opened`."""
        kind, config = registry_find_sandboxenv(provider), self._config(provider)
        environments = await kind.sample_init(TASK, config, {})
        try:
            yield _run(environments["default"])
        finally:
            await kind.sample_cleanup(TASK, config, environments, interrupted=False)

    @contextlib.asynccontextmanager
    async def both(self) -> AsyncIterator[tuple[Run, Run]]:
        """See `calls.Host.both`."""
        config = self._config("rollbox")
        await self.begin("rollbox")
        environments = await RollboxSandboxEnvironment.sample_init(TASK, config, {})
        one = environments["default"].as_type(RollboxSandboxEnvironment)
        try:
            yield _run(one), lambda argv: one.sandbox.exec(list(argv))
        finally:
            await RollboxSandboxEnvironment.sample_cleanup(TASK, config, environments, interrupted=False)

    def unstarted(self) -> object:
        """See `calls.Host.unstarted`."""
        return RollboxConfig(image=IMAGE, memory="256Mi")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Inspect(Path(made)))
