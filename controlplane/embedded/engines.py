"""Chooses the container engine: the given one, one that runs already, or a Podman service that is started for it."""

import asyncio
import os
import resource
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controlplane.cluster.engine.client import EngineClient
from controlplane.embedded.children import keep_running
from controlplane.embedded.up_error import UpError
from controlplane.errors import Problem
from controlplane.settings import socket_path

SOCKETS: Final = ("/var/run/docker.sock", "/run/podman/podman.sock")
INSTALL: Final = "Install Docker, or Podman (Debian: apt install podman runc), or give --engine unix:///path."
SERVICE_START_S: Final = 15.0
LOOK_EVERY_S: Final = 0.02
# Limit of open files in containers if the hard limit is unlimited; the same as engines set by default.
MOST_FILES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers.

    Attributes:
        url: ``unix:///path``.
        origin: how it was found, for messages.
    """

    url: str
    origin: str


@asynccontextmanager
async def engine(wanted: str | None, state_dir: Path, environ: Mapping[str, str]) -> AsyncIterator[Engine]:
    """The engine to use; a Podman service that was started for it ends with the block.

    Raises:
        UpError: no engine answers; the message says which were tried and what to install.
    """
    tried: list[str] = []
    for url, origin in candidates(wanted, environ):
        if (failure := await silence(url)) is None:
            yield Engine(url, origin)
            return
        tried.append(f"{origin}: {failure}")
    podman = shutil.which("podman", path=environ.get("PATH"))
    if wanted is not None or podman is None:
        raise UpError("no container engine answers: " + "; ".join(tried or ["none was found"]), INSTALL)
    async with _own_service(podman, state_dir, environ) as started:
        yield started


def candidates(wanted: str | None, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The engines to try, best first, as (url, origin)."""
    if wanted is not None:
        return [(wanted, f"--engine {wanted}")]
    if host := environ.get("DOCKER_HOST"):
        return [(host, f"DOCKER_HOST={host}")]
    return [(f"unix://{path}", path) for path in SOCKETS if Path(path).is_socket()]


async def silence(url: str) -> str | None:
    """Why an engine cannot be used; None if it answers."""
    try:
        path = socket_path(url)
    except ValueError as error:
        return f"{error} (sandboxes mount files of this machine, so the engine must run on it)"
    try:
        async with EngineClient.connect(f"unix://{path}"):
            return None
    except Problem as problem:
        return problem.detail


@asynccontextmanager
async def _own_service(podman: str, state_dir: Path, environ: Mapping[str, str]) -> AsyncIterator[Engine]:
    socket, config = state_dir / "podman.sock", state_dir / "containers.conf"
    socket.unlink(missing_ok=True)
    config.write_text(containers_conf())
    command = [podman, "system", "service", "--time=0", f"unix://{socket}"]
    ready = asyncio.Event()
    settings = {**environ, "CONTAINERS_CONF": str(config)}
    # Runs in the state directory, since the monitors of its containers write a file "oom" into their working directory.
    keeping = keep_running("podman system service", command, settings, ready.is_set, state_dir)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(keeping, name="podman")
        try:
            await _answering(f"unix://{socket}")
            ready.set()
            yield Engine(f"unix://{socket}", "a Podman service of its own")
        finally:
            running.cancel()


async def _answering(url: str) -> None:
    failure: str | None = "it did not start"
    try:
        async with asyncio.timeout(SERVICE_START_S):
            # Polled, since the child has no way to report that it is ready.
            while (failure := await silence(url)) is not None:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError as error:
        raise UpError(f"podman system service does not answer: {failure}", "Run `podman info` to see why.") from error


def containers_conf() -> str:
    """The content of containers.conf for our Podman service: only the settings that this machine makes necessary."""
    engine_lines = ['events_logger = "file"']
    if shutil.which("runc"):
        # crun fails on machines that mount both cgroup versions; runc works on all of them.
        engine_lines.append('runtime = "runc"')
    if not Path("/run/systemd/system").exists():
        engine_lines.append('cgroup_manager = "cgroupfs"')
    files, processes = _hard(resource.RLIMIT_NOFILE, MOST_FILES), _hard(resource.RLIMIT_NPROC, _pid_max())
    limits = f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]'
    return "\n".join(["[engine]", *engine_lines, "[containers]", limits, ""])


def _hard(limit: int, most: int) -> int:
    """The hard limit of this process: without CAP_SYS_RESOURCE no container can have more."""
    hard = resource.getrlimit(limit)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def _pid_max() -> int:
    return int(Path("/proc/sys/kernel/pid_max").read_text())


def is_root() -> bool:
    """Whether this process may mount, signal and connect across containers."""
    return os.geteuid() == 0
