"""Docker's command line with Compose, over Podman's socket: what hosts' own providers for Docker call."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from controlplane.embedded.engines import containers_conf
from tests.cluster.toolchain import built
from tests.support.waiting import until


@asynccontextmanager
async def over_podman() -> AsyncIterator[dict[str, str]]:
    """The variables of programs that call `docker` while the block runs.

    Where the two cannot be built, it is the `docker` of this machine, with the plugins that it has.

    Raises:
        FileNotFoundError: it has none.

    Cost: on a machine that has not built them yet, minutes.
    """
    programs = await asyncio.to_thread(_programs)
    with TemporaryDirectory(prefix="rollbox-docker-") as folder:
        settings = Path(folder, "containers.conf")
        environ = {"DOCKER_HOST": f"unix://{folder}/docker.sock"}
        if programs is not None:
            _plug_in(programs / "docker-compose", Path(folder, "cli-plugins"))
            environ |= {"DOCKER_CONFIG": folder, "PATH": f"{programs}:{os.environ['PATH']}"}
        # The settings of the service that the platform starts, without which Podman runs nothing on some machines.
        await asyncio.to_thread(settings.write_text, containers_conf())
        service = await asyncio.create_subprocess_exec(
            "podman",
            "system",
            "service",
            "--time=0",
            environ["DOCKER_HOST"],
            env={**os.environ, "CONTAINERS_CONF": str(settings)},
            # On machines without a cgroup of some kind a line for each command.
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await until(lambda: answers(environ, "version"))
            yield environ
        finally:
            service.terminate()
            await service.wait()


async def answers(environ: Mapping[str, str], *words: str) -> bool:
    """Whether `docker` does what these words say."""
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        "docker", *words, env={**os.environ, **environ}, stdout=quiet, stderr=quiet
    )
    return await child.wait() == 0


def _programs() -> Path | None:
    """The folder with both; None where the build, which says why, has failed."""
    try:
        return built("docker")["docker"] / "bin"
    except subprocess.CalledProcessError:
        return None


def _plug_in(program: Path, plugins: Path) -> None:
    plugins.mkdir()
    (plugins / program.name).symlink_to(program)
