"""The storm over a real cluster: the same clients and the same judge; what dies is real.

Parts of the node (kubelet, containerd), gVisor processes (killed or stopped), the network of pods, gateways, control
planes and Redis are hit at random. Only what belongs to the test cluster is: its programs by the pid that was noted
when they were started, a sandbox's process by its pod's uid, network devices by the names that the cluster gives them.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from controlplane.cluster.kubernetes.marks import ANNOTATION_RECORD, DOMAIN, LABEL_SANDBOX
from rollbox import Client, RetryPolicy
from tests.chaos.events import Log
from tests.chaos.played import kept, owner_of
from tests.chaos.processes import Processes
from tests.chaos.storm import Blow, Storm
from tests.cluster import leftovers
from tests.support.faults import end_hung_shim, kill, node_part, ready, signal_kernel
from tests.support.images import IMAGE
from tests.support.installed import Installed, objects

POOL, WARM, CLIENTS = "chaos", 3, 2
COMPONENTS = ("gateway", "controlplane", "redis")
# Shorter than what Kubernetes takes a node for lost after (40 s), and a sandbox that is silent alone (a minute): a
# partition and a busy node end nobody.
AWAY_S = (2.0, 12.0)
# The platform ends a sandbox whose kernel process is stopped, and has it taken off the node.
STOPPED_FOR_S = 150.0
LULL_S = (4.0, 12.0)
# Of one soak: each leaves a start to be repeated, and the node has two cores.
MOST_KERNELS = 24
# Redis has no volume there: its pod takes what it stores along. Ends are put back by control planes that remember them,
# for two minutes, and within seconds: what nobody can know any more is not asked for.
REMEMBERED_S, SAID_WITHIN_S = 120.0, 30.0
WITH_REDIS = ("redis", "gateway and redis")
# The operator's Event on a pod that its kubelet was asked to stop two minutes ago.
NOT_STOPPED = "SandboxNotStopped"
# Names of the devices behind which pods are.
POD_LINKS = "lxc"


@dataclass
class RealGround(Processes):
    """A release on the test cluster, as `look.Place` wants it, and the programs that use it.

    Attributes:
        stacks: the release as each owner sees it; the first one is an operator.
    """

    stacks: Mapping[str, Installed]

    @property
    def owners(self) -> Sequence[str]:
        """Whose sandboxes the clients make."""
        return [*self.stacks]

    @property
    def first(self) -> Installed:
        """The release as an operator sees it."""
        return next(iter(self.stacks.values()))

    def client(self, owner: str) -> Client:
        """Make a client of the judge's; use it as a context manager."""
        stack = self.stacks[owner]
        return Client(stack.url, stack.api_key, retries=RetryPolicy(tries=30, budget_s=120))

    async def on_cluster(self) -> dict[str, str]:
        """Whose each sandbox is by its pod, as the judge sees it.

        Without those that their node cannot stop and of which the platform says so: a containerd that was killed while
        it started a pod may never be able to stop it, and such a pod is reported and not deleted by force.
        """
        told = reported(await objects("events", "-n", self.first.sandboxes))
        return {name: owner for name, owner in (await self.pods()).items() if name not in told}

    async def pods(self) -> dict[str, str]:
        """Whose each sandbox is by its pod; of those of this soak."""
        found = pod_owners(await objects("pods", "-n", self.first.sandboxes))
        return {name: owner for name, owner in found.items() if owner in self.stacks or owner == f"pool:{POOL}"}

    async def warm(self) -> int:
        """How many sandboxes the pools say that they keep."""
        return await kept(self.first.url, self.first.api_key)


def pod_owners(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Whose each sandbox is by what its pod carries; pods of others are left out. Pure."""
    found = {}
    for pod in pods:
        about = pod["metadata"]
        texts = about.get("annotations") or {}
        record = texts.get(f"{DOMAIN}/claim") or texts.get(ANNOTATION_RECORD)
        if record and LABEL_SANDBOX in (about.get("labels") or {}):
            found[str(about["name"])] = owner_of(record)
    return found


def reported(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """The pods of which the platform has said that their node does not stop them. Pure."""
    return {
        str(event["involvedObject"]["name"])
        for event in events
        if event.get("reason") == NOT_STOPPED and event["involvedObject"].get("kind") == "Pod"
    }


def some(names: Iterable[str], draw: random.Random) -> list[str]:
    """Half of them, one at least where there is one. Pure."""
    sorted_names = sorted(names)
    return draw.sample(sorted_names, (len(sorted_names) + 1) // 2)


class RealStorm(Storm):
    """See the module."""

    def __init__(self, ground: RealGround, seed: int, log: Log) -> None:
        self._ground = ground
        self._kernels = 0
        self._redis_died_s = self._planes_died_s = -REMEMBERED_S
        super().__init__(ground, seed, log, LULL_S)

    def kinds(self) -> Mapping[str, Blow]:
        """See `Storm.kinds`. What is paused takes the node's other parts out of reach for that time."""
        return {
            "kubelet": (("node",), partial(self._part_away, "kubelet")),
            # Not while a kernel is stopped: containerd asks every sandbox when it starts, and waits for its answer.
            "containerd": (("node", "kernel"), partial(self._part_away, "containerd")),
            "network": (("node",), self._network),
            "kernel killed": (("kernel",), self._kernel_killed),
            "kernel stopped": (("kernel",), self._kernel_stopped),
            **{name: ((name,), partial(self._pod, name)) for name in COMPONENTS},
            "all control planes": (("controlplane",), self._all_planes),
            "gateway and redis": (("gateway", "redis"), self._gateway_and_redis),
        }

    def account(self, number: int) -> tuple[str, str, str]:
        """See `Storm.account`."""
        stack = self._ground.stacks[self._ground.owners[number % len(self._ground.owners)]]
        return stack.url, stack.owner, stack.api_key

    def may(self, name: str) -> bool:
        """See `Storm.may`; of sandboxes only so many are killed, and what only one part knows does not die with it."""
        if name.startswith("kernel") and self._kernels >= MOST_KERNELS:
            return False
        now_s = time.monotonic()
        forgotten = name in WITH_REDIS and now_s - self._planes_died_s < REMEMBERED_S
        unsaid = name == "all control planes" and now_s - self._redis_died_s < SAID_WITHIN_S
        return super().may(name) and not forgotten and not unsaid

    async def prepare(self) -> None:
        """Declare the pool and start the clients."""
        async with self._ground.client(self._ground.owners[0]) as operator:
            await operator.set_pool(POOL, IMAGE, WARM, memory="128Mi")
        for _ in range(CLIENTS):
            await self.client_starts()

    async def tidy(self) -> None:
        """Take the pool back."""
        async with self._ground.client(self._ground.owners[0]) as operator:
            await operator.remove_pool(POOL)

    async def _part_away(self, name: str) -> None:
        # Killed or ended: both happen to a node.
        await node_part(self._draw.choice(("kill", "stop")), name)
        try:
            await asyncio.sleep(self._draw.uniform(*AWAY_S))
        finally:
            await _started(name)

    async def _network(self) -> None:
        links = some((link for link in leftovers.links() if link.startswith(POD_LINKS)), self._draw)
        try:
            await _set_links(links, "down")
            await asyncio.sleep(self._draw.uniform(*AWAY_S))
        finally:
            # Those of pods that went meanwhile are gone.
            await _set_links([link for link in links if link in leftovers.links()], "up")

    async def _kernel_killed(self) -> None:
        if (victim := await self._victim()) is not None:
            await self._signal(victim, signal.SIGKILL)

    async def _kernel_stopped(self) -> None:
        if (victim := await self._victim()) is None or not await self._signal(victim, signal.SIGSTOP):
            return
        until_s = time.monotonic() + STOPPED_FOR_S
        while victim in await self._ground.pods() and time.monotonic() < until_s:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(5)
        # One that is still there would stay so for ever, and the judge is to see whether the platform had ended it.
        if victim in await self._ground.pods():
            await self._signal(victim, signal.SIGCONT)

    async def _victim(self) -> str | None:
        self._kernels += 1
        owned = [name for name, owner in (await self._ground.pods()).items() if owner in self._ground.stacks]
        return self._draw.choice(sorted(owned)) if owned else None

    async def _signal(self, sandbox_id: str, number: signal.Signals) -> bool:
        """Whether its process was there to be signalled: one that is just ending has none."""
        try:
            await signal_kernel(sandbox_id, number)
        except AssertionError:
            return False
        if number is not signal.SIGCONT:
            self._log.tell("cluster.died", id=sandbox_id, code="sandbox_lost")
        return True

    async def _pod(self, component: str, *, everyone: bool = False) -> None:
        if component == "redis":
            self._emptied()
        await kill(self._ground.first, component, everyone=everyone)
        await ready(self._ground.first, component)

    async def _all_planes(self) -> None:
        self._planes_died_s = time.monotonic()
        await self._pod("controlplane", everyone=True)

    def _emptied(self) -> None:
        self._redis_died_s = time.monotonic()
        self._log.tell("store.emptied")

    async def _gateway_and_redis(self) -> None:
        self._emptied()
        await asyncio.gather(*(kill(self._ground.first, name, everyone=True) for name in ("gateway", "redis")))
        for name in ("gateway", "redis"):
            await ready(self._ground.first, name)


async def _started(name: str) -> None:
    """Start a part of the node again."""
    try:
        await node_part("start", name)
    except AssertionError:
        if name != "containerd" or not await end_hung_shim():
            raise
        await node_part("start", name)


async def _set_links(links: Sequence[str], state: str) -> None:
    for link in links:
        process = await asyncio.create_subprocess_exec("ip", "link", "set", link, state)
        await process.wait()
