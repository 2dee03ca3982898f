"""A bridge as a program of its own, and published clients that call it, each with a Python of its own."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.images import IMAGE
from tests.support.integrations import interpreter
from tests.support.stack import Product

HERE: Final = Path(__file__).parent
ENVIRONMENTS: Final = HERE.parent.parent / "build/bridges"
# Clients that an older Python does not run.
PYTHONS: Final = {"harbor-0.26.0": "3.12", "terminal-bench-0.2.18": "3.12"}
SECRET: Final = "tests-of-bridges-alone"
START_S: Final = 60


@asynccontextmanager
async def bridge(
    stack: Product, *options: str, listen: str = "127.0.0.1:0", protocol: str = "e2b"
) -> AsyncIterator[str]:
    """A bridge of a product; gives its address."""
    async with program(stack.url, *options, listen=listen, protocol=protocol) as (url, _):
        yield url


@asynccontextmanager
async def program(
    gateway: str, *options: str, listen: str = "127.0.0.1:0", protocol: str = "e2b"
) -> AsyncIterator[tuple[str, int]]:
    """A bridge of a gateway's address; gives its own address and its process."""
    command = [sys.executable, "-m", f"rollbox_bridges.{protocol}", "--json", "--listen", listen, "--url", gateway]
    environ = {**os.environ, "ROLLBOX_BRIDGE_SECRET": SECRET}
    image = () if protocol == "prime" else ("--image", IMAGE)
    process = await asyncio.create_subprocess_exec(
        *command, *image, *options, env=environ, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
        yield json.loads(line)["url"], process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        assert await process.wait() == 0


@asynccontextmanager
async def docker(stack: Product, *options: str) -> AsyncIterator[dict[str, str]]:
    """A bridge of Docker's Engine API; gives the environment of its clients."""
    # The path of a Unix socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="rollbox-docker-") as folder:
        command = [sys.executable, "-m", "rollbox_bridges.docker", "--json", "--socket", f"{folder}/docker.sock"]
        environ = {**os.environ, **stack.environment(), "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key}
        link_docker(folder)
        process = await asyncio.create_subprocess_exec(*command, *options, env=environ, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await process.stdout.readline()
            told = {"DOCKER_HOST": json.loads(line)["url"], "IMAGE": IMAGE, "HOME": folder}
            yield {**told, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        finally:
            if process.returncode is None:
                process.terminate()
            assert await process.wait() == 0


def link_docker(folder: str) -> None:
    """Have harnesses that call `docker` find the command line of the bridge by that name."""
    Path(folder, "docker").symlink_to(Path(sys.executable).with_name("rollbox-docker"))


def environment_of(name: str) -> Path:
    """The environment of one client, which is made where there is none, or for other versions, by one worker."""
    folder, wanted = ENVIRONMENTS / name, HERE / "requirements" / name
    files = sorted(wanted.glob("*.json")) if wanted.is_dir() else [wanted.with_name(f"{name}.txt")]
    mark, content = folder / "made-for", "".join(file.read_text() for file in files)
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with (ENVIRONMENTS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.is_file() or mark.read_text() != content:
            chosen = {"PYTHON": interpreter(PYTHONS[name])} if name in PYTHONS else {}
            subprocess.run([HERE / "environment.sh", name], env={**os.environ, **chosen}, check=True)
            mark.write_text(content)
    return folder


def command_of(name: str, script: str, style: str) -> list[str]:
    """The command that runs a script in an environment."""
    folder, source = environment_of(name), HERE / "clients" / script
    if source.suffix == ".py":
        return [str(folder / "bin/python"), str(source), style]
    # Modules of JavaScript are looked for from where the script is.
    copy = folder / script
    copy.write_text(source.read_text())
    return ["node", str(copy)]


def key_of(key: str) -> str:
    """An owner's key in the form that clients take."""
    return f"e2b_{key.encode().hex()}"


def environment(url: str, key: str, protocol: str = "e2b") -> dict[str, str]:
    """What tells a client where it is."""
    if protocol == "fusion":
        address = url.replace("://", f"://rollbox:{key}@")
        told = {"SANDBOX_FUSION_ENDPOINT": address, "SANDBOX_URL": f"{address}/run_code"}
        return {"PATH": os.environ["PATH"], **told}
    told = {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": key_of(key), "IMAGE": IMAGE}
    return {"PATH": os.environ["PATH"], **told}


async def cases(name: str, script: str, style: str, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Have a client do all its cases; what each saw, by name."""
    return await told_by(command_of(name, script, style), environ)


async def told_by(command: list[str], environ: Mapping[str, str]) -> Mapping[str, Any]:
    """What a command of cases tells that each saw, by name."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-4000:]
    told = [json.loads(line) for line in out.decode().splitlines()]
    return {one["case"]: one.get("saw", one.get("error")) for one in told}


def seen(stack: Product, name: str, script: str, style: str = "", *, protocol: str = "e2b") -> Mapping[str, Any]:
    """What a client saw in all its cases, over a bridge of its own."""

    async def all_cases() -> Mapping[str, Any]:
        async with bridge(stack, protocol=protocol) as url:
            return await cases(name, script, style, environment(url, stack.api_key, protocol))

    return asyncio.run(all_cases())


def seen_by_docker(
    stack: Product, name: str, script: str, *options: str, told: Mapping[str, str] | None = None
) -> Mapping[str, Any]:
    """What a client of Docker saw in all its cases, over a bridge of its own; `told` are more of its variables."""

    async def all_cases() -> Mapping[str, Any]:
        async with docker(stack, *options) as environ:
            return await cases(name, script, "", {**environ, **(told or {})})

    return asyncio.run(all_cases())
