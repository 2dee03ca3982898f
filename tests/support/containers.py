"""What the engine itself says about containers: the outside view for tests of what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

from tests.support.waiting import until


def engine_command() -> str:
    """The engine's own command line, of the engine that `rollbox up` would choose."""
    docker = bool(os.environ.get("DOCKER_HOST")) or Path("/var/run/docker.sock").exists()
    return "docker" if docker and shutil.which("docker") else "podman"


async def engine(*arguments: str) -> str:
    """Run the engine's command line and return its output.

    Raises:
        RuntimeError: it failed; the message is what it said.
    """
    process = await asyncio.create_subprocess_exec(
        engine_command(), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{engine_command()} {' '.join(arguments)}: {err.decode().strip()}")
    return out.decode()


async def list_images(*arguments: str) -> str:
    """What ``images`` answers; asked again where Podman lists none since another test removes one meanwhile.

    Raises:
        RuntimeError: it failed for another reason, or a hundred times.
    """
    for _ in range(99):
        try:
            return await engine("images", *arguments)
        except RuntimeError as error:
            if "not known" not in str(error):
                raise
    return await engine("images", *arguments)


# What Podman and Docker say of an image that a container has.
_IN_USE = ("in use", "using image", "using its referenced image", "being used by")


async def remove_image(image: str) -> None:
    """Removes an image; a delete of the sandboxes that have it does not wait for their containers.

    Raises:
        RuntimeError: it failed for anything else; the message is what the engine said.
    """

    async def gone() -> bool:
        try:
            await engine("rmi", image)
        except RuntimeError as error:
            if not any(words in str(error) for words in _IN_USE):
                raise
            return False
        return True

    await until(gone)


async def left_containers() -> list[str]:
    """Names of all containers that rollbox made, running or not."""
    lines = (await engine("ps", "--all", "--format", "{{json .Names}}")).splitlines()
    names = [json.loads(line) for line in lines if line]
    flat = [name[0] if isinstance(name, list) else name for name in names]
    return [name for name in flat if name.startswith("rollbox-")]
