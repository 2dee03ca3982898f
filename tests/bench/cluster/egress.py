"""One download in a gVisor pod through egress, against the same program's in one with a direct network."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Final

from rollbox import Client, EgressPolicy, EgressRule, Sandbox
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.images import ON_CLUSTER
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, RELEASE, Installed, installed
from tests.support.outside import ALLOWED, DNS, WEB, outside
from tests.support.release import VALUES

ROUNDS: Final = 5
FILE_MIB: Final = 256
ON: Final = (
    "egress.enabled=true",
    "egress.replicas=1",
    f"egress.allowedPrivateCidrs[0]={ALLOWED}/32",
    f"egress.dnsServers[0]={DNS}",
    "egress.direct.enabled=true",
    f"egress.direct.networks.bench.allow[0].cidr={ALLOWED}/32",
    f"egress.direct.networks.bench.allow[0].ports[0]={WEB}",
)
POLICY: Final = EgressPolicy(mode="allow", allow=[EgressRule(host="index.test", ports=[WEB])])
# Prints MiB a second of the body. The handler of proxies is told what the environment says, or nothing.
READ: Final = """
import sys, time, urllib.request as u
opener = u.build_opener(u.ProxyHandler() if sys.argv[2] == "proxied" else u.ProxyHandler({}))
answer, size, began = opener.open(sys.argv[1], timeout=300), 0, time.monotonic()
while piece := answer.read(1 << 20):
    size += len(piece)
print(size / (1 << 20) / (time.monotonic() - began))
"""


async def measure(product: Installed) -> list[Record]:
    """In a release of its own, beside the others'."""
    del product
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "large").open("wb") as large:
            large.truncate(FILE_MIB << 20)
        with outside(Path(folder)):
            async with (
                installed(f"{RELEASE}-egress", *VALUES, *BESIDE_ANOTHER, *ONE_OF_EACH, *ON) as release,
                Client(release.url, release.api_key) as client,
            ):
                return await _rounds(client)


async def _rounds(client: Client) -> list[Record]:
    through: list[float] = []
    direct: list[float] = []
    small = (0.05, 2)
    async with (
        await client.create(ON_CLUSTER, cpu=small, memory="256Mi", egress=POLICY) as proxied,
        await client.create(ON_CLUSTER, cpu=small, memory="256Mi", network="bench") as plain,
    ):
        for number in range(ROUNDS):
            doing(f"downloads of {FILE_MIB} MiB, in turn: {number + 1} of {ROUNDS}")
            through.append(await _read(proxied, f"http://index.test:{WEB}/large", "proxied"))
            direct.append(await _read(plain, f"http://{ALLOWED}:{WEB}/large", "direct"))
    what = "the same program with a direct network, in another gVisor pod"
    return [
        Record(
            figure="one download through egress in a gVisor pod",
            value=statistics.median(through),
            unit="MiB/s",
            conditions=f"urllib, {FILE_MIB} MiB over HTTP, {ROUNDS} rounds in turn, all on one node",
            baseline=Baseline(what, statistics.median(direct), of_rounds(direct)),
            faster_is="larger",
            distribution=of_rounds(through),
        )
    ]


async def _read(sandbox: Sandbox, url: str, how: str) -> float:
    return float((await sandbox.exec(["python3", "-c", READ, url, how], check=True, timeout=600)).stdout)
