"""Faults of egress. The name server that the release is told does not answer, and nothing is outside."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpc import aio

from controlplane.wire import egress_pb2, egress_pb2_grpc
from rollbox import EgressPolicy, EgressRule, Sandbox
from rollbox.egress import Egress
from rollbox.errors import SandboxError
from tests.observability.firing.fault import SMALL, beside
from tests.observability.firing.site import Site
from tests.support.faults import signal_kernel
from tests.support.images import IMAGE

ALLOWED, FORBIDDEN = "CONNECT index.test:443", "CONNECT elsewhere.test:443"
PACKAGE = "GET http://packages.rollbox.internal/pypi.org/simple/six/"
INDEX = EgressPolicy(mode="allow", allow=[EgressRule(host="index.test", ports=[443], name="index")])
SCARCE = EgressPolicy(mode="allow", allow=["index.test"], connections_per_second=1)
# Sends the proxy a request, so many times, after so many seconds each, and waits for no answer before the next one.
ASKS = """
import os, socket, sys, threading, time
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
def ask():
    with socket.create_connection((proxy.hostname, proxy.port), 30) as stream:
        stream.sendall(sys.argv[1].encode() + b" HTTP/1.1\\r\\n\\r\\n")
        stream.recv(100)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=ask).start()
    time.sleep(float(sys.argv[3]))
"""


@asynccontextmanager
async def _asking(site: Site, policy: Egress, request: str, every_s: float) -> AsyncIterator[None]:
    """A sandbox whose programs send a request, again and again, while the block runs."""

    async def ask() -> None:
        command = ["python3", "-c", ASKS, request, str(int(5 / every_s)), str(every_s)]
        with contextlib.suppress(SandboxError):
            await sandbox.exec(command, timeout=60)

    sandbox: Sandbox
    async with await site.client.create(IMAGE, **SMALL, egress=policy) as sandbox, beside(ask):
        yield


@asynccontextmanager
async def egress_gone(site: Site) -> AsyncIterator[None]:
    """Egress has no pod, and a sandbox has a policy."""
    async with await site.client.create(IMAGE, **SMALL, egress=INDEX):
        await site.scale("egress", 0)
        try:
            yield
        finally:
            await site.scale("egress", 1)


@asynccontextmanager
async def link_missing(site: Site) -> AsyncIterator[None]:
    """The kernel of a sandbox that gets a policy stands still, so its link cannot be opened."""
    async with await site.client.create(IMAGE, **SMALL) as sandbox:
        await signal_kernel(sandbox.id, signal.SIGSTOP)
        try:
            with contextlib.suppress(SandboxError):
                await sandbox.egress(INDEX, timeout=1)
            yield
        finally:
            await signal_kernel(sandbox.id, signal.SIGCONT)


@asynccontextmanager
async def feed_without_key(site: Site) -> AsyncIterator[None]:
    """Somebody asks for the feed of egress, and has no key."""
    (plane,) = [one for one in await site.stack.component("controlplane") if "deletionTimestamp" not in one["metadata"]]

    async def ask() -> None:
        async with aio.insecure_channel(f"{plane['status']['podIP']}:8083") as channel:
            stub = egress_pb2_grpc.EgressStub(channel)  # type: ignore[no-untyped-call]
            with contextlib.suppress(aio.AioRpcError):
                await stub.Watch(egress_pb2.WatchRequest(egress_id="stranger")).read()
        await asyncio.sleep(1)

    async with beside(ask):
        yield


@asynccontextmanager
async def names_silent(site: Site) -> AsyncIterator[None]:
    """Programs ask for an allowed name, and the name server does not answer."""
    async with _asking(site, INDEX, ALLOWED, 0.5):
        yield


@asynccontextmanager
async def forbidden_asked(site: Site) -> AsyncIterator[None]:
    """Programs ask fifty times a second for what their policy does not name."""
    async with _asking(site, INDEX, FORBIDDEN, 0.02):
        yield


@asynccontextmanager
async def limit_passed(site: Site) -> AsyncIterator[None]:
    """Programs ask five times a second where their policy allows one."""
    async with _asking(site, SCARCE, ALLOWED, 0.2):
        yield


@asynccontextmanager
async def packages_gone(site: Site) -> AsyncIterator[None]:
    """Programs ask the package cache, which has no pod."""
    async with _asking(site, "packages", PACKAGE, 0.5):
        await site.scale("packages", 0)
        try:
            yield
        finally:
            await site.scale("packages", 1)


@asynccontextmanager
async def record_lost(site: Site) -> AsyncIterator[None]:
    """Programs ask while Redis, which has the records, has no pod."""
    async with _asking(site, INDEX, FORBIDDEN, 0.5):
        await site.scale("redis", 0)
        try:
            yield
        finally:
            await site.scale("redis", 1)
