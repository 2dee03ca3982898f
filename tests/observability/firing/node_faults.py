"""Faults of a node, of its agent, and of images on their way to it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rollbox.errors import SandboxError
from tests.cluster import images, processes
from tests.cluster.layout import REGISTRY
from tests.e2e.test_lazy_starts import Place, image
from tests.observability.firing.fault import SMALL, beside
from tests.observability.firing.site import Site
from tests.support.faults import signal_kernel, standing_still
from tests.support.images import IMAGE


@asynccontextmanager
async def kernel_still(site: Site) -> AsyncIterator[None]:
    """The kernel of a sandbox stands still, and so does the node's agent, which would end it."""
    sandbox = await site.client.create(IMAGE, **SMALL)
    with standing_still(await site.process("node", "rollbox-node")):
        await signal_kernel(sandbox.id, signal.SIGSTOP)
        try:
            await sandbox.delete()
            yield
        finally:
            await signal_kernel(sandbox.id, signal.SIGCONT)


@asynccontextmanager
async def containerd_still(site: Site) -> AsyncIterator[None]:
    """The node's containerd answers nobody."""
    del site
    pid = processes.running("containerd")
    assert pid
    with standing_still(pid):
        yield


@asynccontextmanager
async def mirror_still(site: Site) -> AsyncIterator[None]:
    """The mirror answers nothing, while sandboxes of images that it has not copied start."""

    async def in_vain() -> None:
        name = await asyncio.to_thread(image, site.place)
        with contextlib.suppress(SandboxError):
            await site.client.create(name, **SMALL, start_timeout=6.0)

    with standing_still(await site.process("mirror", "rollbox-mirror")):
        async with beside(in_vain):
            yield


@asynccontextmanager
async def agent_still(site: Site) -> AsyncIterator[None]:
    """The node's agent answers nothing, while sandboxes are committed."""
    # Of the private registry: what nodes have from elsewhere is made no image.
    copied = await asyncio.to_thread(image, site.place)
    sandboxes = [await site.client.create(copied, **SMALL) for _ in range(2)]

    async def in_vain(number: int) -> None:
        with contextlib.suppress(SandboxError):
            await sandboxes[number].commit(f"in-vain-{number}", timeout=15)

    try:
        with standing_still(await site.process("node", "rollbox-node")):
            async with beside(lambda: in_vain(0)), beside(lambda: in_vain(1)):
                yield
    finally:
        for sandbox in sandboxes:
            await sandbox.delete()


@asynccontextmanager
async def shell_broken(site: Site) -> AsyncIterator[None]:
    """New images start, and their shell ends with an error: no converted copy of them passes its trial."""

    async def started() -> None:
        name = await asyncio.to_thread(_without_a_shell, site.place)
        with contextlib.suppress(SandboxError):
            async with await site.client.create(name, **SMALL, start_timeout=60.0):
                pass

    async with beside(started):
        yield


def _without_a_shell(place: Place) -> str:
    name = f"{REGISTRY}/plain/shell:{secrets.token_hex(8)}"
    script, salt = place.folder / "sh", place.folder / "salt"
    script.write_text("#!/bin/busybox false\n")
    salt.write_bytes(secrets.token_bytes(1 << 16))
    files = {"bin/busybox": Path("/bin/busybox"), "bin/sh": script, "srv/salt": salt}
    images.push(name, files, ["/bin/busybox"], {"bin/true": "busybox"})
    return name.replace(REGISTRY, place.upstream)


@asynccontextmanager
async def registry_small(site: Site) -> AsyncIterator[None]:
    """The private registry may take less than the image of a sandbox that runs, which stays."""
    copied = await asyncio.to_thread(image, site.place)
    async with await site.client.create(copied, **SMALL):
        await site.stack.upgrade("registry.budget=1Mi")
        try:
            yield
        finally:
            await site.stack.upgrade("registry.budget=80%")
