"""What a call costs before its work begins: whose key it shows, and whether that allows the route.

`python -m tests.bench.access`
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import Any, Final

from starlette.requests import Request

from controlplane.api.auth import ApiKeys
from controlplane.api.context import Context, caller_of
from controlplane.clock import SystemClock
from controlplane.telemetry import configure_log
from tests.bench.record import Record, of_rounds, save
from tests.support.world import KEY, OWNER, World, world

ROUNDS: Final = 7
EACH: Final = 5_000
CONDITIONS: Final = f"the control plane's own check, {ROUNDS} rounds of {EACH} in turn, ten keys in the settings"


async def measure() -> list[Record]:
    """The records. Cost: ten seconds."""
    async with world(clock=SystemClock()) as plane:
        others = {f"rbx_of_another_{number}": f"owner-{number}" for number in range(9)}
        keys = ApiKeys({KEY: OWNER, **others}, frozenset(), plane.service.keys, plane.deps.key, plane.deps.clock)
        context = Context(plane.service, plane.deps, keys, {})
        requests = await _requests(plane)
        took_us: dict[str, list[float]] = {name: [] for name in requests}
        for _ in range(ROUNDS):
            for name, request in requests.items():
                took_us[name].append(await _mean_us(context, request))
    found = {name: of_rounds(values) for name, values in took_us.items()}
    return [
        Record(f"a call's check, {name}", one["p50"], "us", CONDITIONS, distribution=one) for name, one in found.items()
    ]


async def _requests(plane: World) -> dict[str, Request]:
    sandbox = (await plane.api("POST", "/v1/sandboxes", body={"image": "a"})).json["id"]
    made = (await plane.api("POST", "/v1/keys", body={"name": "runs", "scopes": ["run"]})).json["key"]
    shared = (await plane.api("POST", f"/v1/sandboxes/{sandbox}/share", body={"ttl_ms": 600_000})).json["key"]
    path = f"/v1/sandboxes/{sandbox}/token"
    keys = {"key of the settings": KEY, "key on record": made, "shared key": shared}
    return {name: _request(path, key) for name, key in keys.items()}


def _request(path: str, key: str) -> Request:
    headers = [(b"authorization", f"Bearer {key}".encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    return Request(scope)


async def _mean_us(context: Context, request: Request) -> float:
    took_s = []
    for _ in range(EACH // 100):
        began_s = time.perf_counter()
        for _ in range(100):
            await caller_of(context, request)
        took_s.append((time.perf_counter() - began_s) / 100)
    return statistics.median(took_s) * 1e6


def main() -> None:
    """Measure, write the records and print them."""
    configure_log("critical")
    for record in save("access", asyncio.run(measure()), {"python": sys.version.split()[0]}):
        print(f"{record.figure}: {record.value:.1f} {record.unit} ({record.target})")


if __name__ == "__main__":
    main()
