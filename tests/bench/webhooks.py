"""What an event of a webhook costs the control plane: `python -m tests.bench.webhooks`.

The real queue, signatures and HTTP client, and a receiver in a process of its own on the same machine. It prints a line
for each round: processor time for an event, events a second, and how long it takes to write one.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from multiprocessing.connection import Connection

from aiohttp import web

from controlplane.clock import SystemClock
from controlplane.lifecycle.record.cloud_event import cloud_event
from controlplane.lifecycle.record.events import events_of
from controlplane.lifecycle.webhooks.lane import Lane
from controlplane.model import Sandbox, SandboxSpec
from controlplane.telemetry import Metrics, configure_log
from controlplane.webhook_client import WebhookClient
from controlplane.webhooks import Endpoint, Letter

ROUNDS = 3
# Events of a round, by how many go in one request; both fit into the queue.
EVENTS = {1: 2_000, 100: 16_000}
SANDBOX = Sandbox("sb-0123456789abcdef", "alice", SandboxSpec(image="python", labels={"run": "7"}), 1, 10**12, "f")


async def _receive(port: Connection) -> None:
    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port.send(runner.addresses[0][1])
    await asyncio.Event().wait()


def receive(port: Connection) -> None:
    """The receiver: says its port, and takes everything until its process is ended."""
    asyncio.run(_receive(port))


def written() -> tuple[bytes, float]:
    """An event, and how long it takes to write one (us)."""
    event, began_s = next(events_of(SANDBOX, 0)), time.perf_counter()
    for _ in range(10_000):
        body = cloud_event(event).encode()
    return body, (time.perf_counter() - began_s) * 100


async def measure(port: int, batch: int) -> None:
    """One round: all events are there at once, and are sent."""
    body, write_us = written()
    endpoint = Endpoint("ops", f"http://127.0.0.1:{port}/", (bytes(32),), batch=batch, private=True)
    async with WebhookClient.open((endpoint,)) as client, asyncio.TaskGroup() as group:
        lane = Lane(endpoint, 0, client, SystemClock(), Metrics())
        for number in range(EVENTS[batch]):
            lane.put(Letter(f"sb-{number}.{number}.start", number, body))
        busy_s, began_s = time.process_time(), time.perf_counter()
        sending = group.create_task(lane.run())
        while len(lane.outbox):  # noqa: ASYNC110 - the queue tells nobody that it is empty
            await asyncio.sleep(0.005)
        busy_s, took_s = time.process_time() - busy_s, time.perf_counter() - began_s
        sending.cancel()
    count = EVENTS[batch]
    figures = {"batch": batch, "us_of_processor": round(busy_s / count * 1e6, 1), "per_s": round(count / took_s)}
    print(json.dumps({**figures, "write_us": round(write_us, 1)}))


async def _main(port: int) -> None:
    for _ in range(ROUNDS):
        for batch in EVENTS:
            await measure(port, batch)


if __name__ == "__main__":
    configure_log("critical")
    here, there = multiprocessing.Pipe()
    receiver = multiprocessing.Process(target=receive, args=(there,), daemon=True)
    receiver.start()
    asyncio.run(_main(here.recv()))
    receiver.terminate()
