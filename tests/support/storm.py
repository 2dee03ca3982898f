"""Real control planes on one store in virtual time, and what goes wrong around them, in an order drawn from a seed.

Clients create, look and delete; sidecars push to any replica; replicas are killed and replaced, do not hear of what
others store, and the store is emptied, or restarted without what it acknowledged last. One replica that has heard
everything of the last seconds is always there: what nobody alive knows may be lost (docs/inside/replicas.md),
everything else must not be.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle import Push
from controlplane.model import Sandbox, SandboxSpec, Usage, pool_owner
from controlplane.store import Resync, Store
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.shared_store import SharedMemory, SharedStore
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

# Longer than it takes until a pod tells everything that a replica knows of it.
WITNESS_S = 15.0
# Everything that is left undone is found, and every remembered end forgotten.
REST_S = 240.0
STEPS = 40
POOL = {"template": {"image": "warm"}, "min_warm": 3, "max_warm": 3, "auto": False}
SPECS = (SPEC, SPEC.model_copy(update={"image": "warm"}))
WISHES = (*SPECS, *(one.model_copy(update={"settings_digest": "d" * 64}) for one in SPECS))


class Mortal(SharedStore):
    """The view of a replica that may be killed: from then on nothing of it reaches the store."""

    dead = False

    def _check(self) -> None:
        if self.dead:
            raise Problem("upstream_timeout", "this replica was killed")
        super()._check()

    async def restore(self, sandbox: Sandbox) -> bool:
        self._alive()
        return await super().restore(sandbox)

    async def free_slot(self, sandbox_id: str) -> None:
        self._alive()
        await super().free_slot(sandbox_id)

    async def claim_rebuild(self, ttl_ms: int) -> Any:
        self._alive()
        return await super().claim_rebuild(ttl_ms)

    async def rebuilt(self, content_id: str) -> bool:
        self._alive()
        return await super().rebuilt(content_id)

    def _alive(self) -> None:
        if self.dead:
            raise Problem("upstream_timeout", "this replica was killed")


@dataclass
class Replica:
    """One control plane, from its birth to its death."""

    name: str
    store: Mortal
    up: asyncio.Future[World]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    hears_since_s: float | None = 0.0

    @property
    def plane(self) -> World | None:
        return self.up.result() if self.up.done() and not self.store.dead else None


class Storm:
    """What happened, and to whom something was promised.

    Attributes:
        given: sandboxes by key, as their clients were answered.
        deleted: ids that a client asked to delete.
        faults: what contradicts a promise, in words.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.core = SharedMemory(VirtualClock())
        self.cluster = FakeCluster(annotates_behind=True)
        self.sidecars = FakeSidecars()
        self.documents = FileDocuments()
        self.given: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.gone: set[str] = set()
        self.faults: list[str] = []
        self.log: list[str] = []
        self._replicas: list[Replica] = []
        self._born = self._keys = 0

    async def run(self) -> list[str]:
        """Lets it happen, waits for rest, and returns what contradicts a promise."""
        await self.documents.put("pools", "p", POOL, None)
        async with asyncio.TaskGroup() as replicas:
            self._group = replicas
            for _ in range(2):
                await self._bear().up
            async with asyncio.TaskGroup() as clients:
                for _ in range(STEPS):
                    await asyncio.sleep(self.random.choice((0.0, 0.01, 0.2, 2.0, 6.0)))
                    self._step(clients)
            await asyncio.sleep(REST_S)
            await self._judge()
            for replica in self._replicas:
                replica.stop.set()
        return self.faults

    def _step(self, clients: asyncio.TaskGroup) -> None:
        act = self.random.choices(
            (self._create, self._delete, self._look, self._kill, self._empty, self._restart, self._deafen),
            (8, 4, 6, 2, 2, 2, 3),
        )[0]
        task = act()
        self.log.append(f"{_now_s():.2f} {act.__name__}")
        if task is not None:
            clients.create_task(task)

    # -- clients

    def _create(self) -> Any:
        self._keys += 1
        self.cluster.start_s = self.random.choice((0.05, 0.5, 3.0))
        self.cluster.ready_s = self.random.choice((0.0, 0.02, 1.0, 4.0))
        again = self.random.random() < 0.2
        return self._created(f"k{self._keys}", self.random.choice(WISHES), 2 if again else 1)

    async def _created(self, key: str, spec: SandboxSpec, callers: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(self._answered(key, spec))

    async def _answered(self, key: str, spec: SandboxSpec) -> None:
        made = await self._asked(lambda plane: plane.create(OWNER, spec, key))
        if isinstance(made, Problem):
            if made.code != "deleted" or self.given.get(key) not in self.deleted:
                self.faults.append(f"{_now_s():.2f} {key} was not created: {made}")
            return
        if self.given.setdefault(key, made.sandbox.id) != made.sandbox.id:
            self.faults.append(f"{key} was {self.given[key]} and is {made.sandbox.id}")
        if [*self.given.values()].count(made.sandbox.id) > 1:
            self.faults.append(f"{made.sandbox.id} was given twice: {self.given}")
        self.log.append(f"{_now_s():.2f} {key} is {made.sandbox.id}")

    def _delete(self) -> Any:
        left = [one for one in self.given.values() if one not in self.deleted]
        if not left:
            return None
        sandbox_id = self.random.choice(left)
        self.deleted.add(sandbox_id)
        self.cluster.stop_s = self.random.choice((0.05, 1.0, 10.0))
        return self._deleting(sandbox_id)

    async def _deleting(self, sandbox_id: str) -> None:
        done = await self._asked(lambda plane: plane.service.delete(OWNER, sandbox_id))
        if isinstance(done, Problem):
            self.faults.append(f"delete of {sandbox_id}: {done}")
        self.gone.add(sandbox_id)
        self.log.append(f"{_now_s():.2f} deleted {sandbox_id}")

    def _look(self) -> Any:
        return self._looking(self.random.choice([*self.given.values()])) if self.given else None

    async def _looking(self, sandbox_id: str) -> None:
        seen = await self._asked(lambda plane: plane.service.get(OWNER, sandbox_id))
        if sandbox_id in self.deleted:
            return
        if isinstance(seen, Problem) or seen.end is not None:
            self.faults.append(f"{_now_s():.2f} {sandbox_id} was seen as {seen}")

    async def _asked(self, call: Any) -> Any:
        """The answer of whichever replica answers, as a gateway and the SDK ask; or the problem that is final."""
        for _ in range(400):
            replica = self.random.choice([one for one in self._replicas if one.plane])
            assert replica.plane is not None
            asking = asyncio.ensure_future(call(replica.plane))
            dying = asyncio.ensure_future(replica.stop.wait())
            await asyncio.wait((asking, dying), return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            asking.cancel()
            await asyncio.wait((asking,))
            try:
                return asking.result()
            except asyncio.CancelledError:
                pass
            except Problem as problem:
                if problem.code not in ("upstream_timeout", "draining"):
                    return problem
            await asyncio.sleep(0.2)
        raise AssertionError("no replica answers")

    # -- what goes wrong

    def _kill(self) -> None:
        able = [one for one in self._replicas if one.plane and self._witnessed(without=one)]
        if not able:
            return
        victim = self.random.choice(able)
        self.log.append(f"{_now_s():.2f} killed {victim.name}")
        parts = victim.plane.service._core  # type: ignore[union-attr]
        victim.store.dead = True
        self.core.feeds.pop(victim.name, None)
        for task in (*parts._loops, *parts.starts._tasks.values(), *parts.reclaimer.under_way):
            task.cancel()
        victim.stop.set()
        self._replicas.remove(victim)
        self._bear()

    def _empty(self) -> None:
        if self._witnessed():
            self._emptied()
            if self.random.random() < 0.5:
                asyncio.get_running_loop().call_later(self.random.choice((0.1, 1.0, 2.5, 3.0, 3.1, 5.0)), self._emptied)

    def _emptied(self) -> None:
        # Not while the one that heard everything is being replaced: the second loss has to be as fair as the first.
        if self._witnessed():
            self.log.append(f"{_now_s():.2f} emptied")
            self.core.empty()

    def _restart(self) -> None:
        before_s = self.random.choice((0.05, 0.5, 2.0))
        asyncio.get_running_loop().call_later(before_s, self._restarted, self.core.copy())

    def _restarted(self, copy: dict[str, dict[Any, Any]]) -> None:
        if self._witnessed():
            self.log.append(f"{_now_s():.2f} restarted without its last writes")
            self.core.rewind(copy)

    def _deafen(self) -> None:
        able = [one for one in self._replicas if one.name in self.core.feeds and self._witnessed(without=one)]
        if able:
            one = self.random.choice(able)
            self.log.append(f"{_now_s():.2f} deaf {one.name}")
            deaf, one.hears_since_s = self.core.feeds.pop(one.name), None
            asyncio.get_running_loop().call_later(self.random.choice((0.5, 5.0, 20.0)), self._hear, one, deaf)

    def _hear(self, one: Replica, deaf: asyncio.Queue[Any]) -> None:
        if not one.store.dead:
            self.core.feeds[one.name] = deaf
            deaf.put_nowait(Resync())
            one.hears_since_s = _now_s()

    def _witnessed(self, without: Replica | None = None) -> bool:
        before_s = _now_s() - WITNESS_S
        others = (one for one in self._replicas if one is not without and one.plane)
        return any(one.hears_since_s is not None and one.hears_since_s <= max(0.0, before_s) for one in others)

    def _bear(self) -> Replica:
        self._born += 1
        name = f"r{self._born}"
        replica = Replica(name, Mortal(self.core, name), asyncio.get_running_loop().create_future())
        self._replicas.append(replica)
        self._group.create_task(self._live(replica))
        return replica

    async def _live(self, replica: Replica) -> None:
        try:
            async with world(self.cluster, self.sidecars, store=replica.store, documents=self.documents) as plane:
                self.cluster.push = self._pushed
                replica.hears_since_s = _now_s()
                replica.up.set_result(plane)
                await replica.stop.wait()
        except BaseException as error:
            if not replica.store.dead:
                raise
            self.log.append(f"{_now_s():.2f} {replica.name} died of {error!r}"[:200])

    async def _pushed(self, token: str, push: Push) -> None:
        plane = self.random.choice([one.plane for one in self._replicas if one.plane])
        assert plane is not None
        await plane.service.accept_push(token, push)

    # -- at rest

    async def _judge(self) -> None:
        alive = [one.plane for one in self._replicas if one.plane]
        store: Store = alive[0].deps.store
        records = {one.id: one for one in await store.find(None, {}, None)}
        live = {one.id: one for one in records.values() if one.end is None}
        wanted = set(self.given.values()) - self.deleted
        self._expect("live", {one.id for one in live.values() if one.owner == OWNER}, wanted)
        self._expect("on the cluster", set(self.cluster.held), set(live))
        keys = {key: one for key, one in self.given.items() if one in wanted}
        self._expect("by key", {one.idempotency_key: one.id for one in live.values() if one.owner == OWNER}, keys)
        for owner in (OWNER, pool_owner("p"), None):
            there = (Usage.of(one) for one in live.values() if owner in (None, one.owner))
            self._expect(f"use of {owner}", await store.usage(owner), sum(there, Usage()))
        for plane in alive:
            with plane.service.board.subscribe() as feed:
                routes = {route.sandbox_id for route in (await feed.next()).snapshot.routes}
            # One that was forgotten before anybody got it keeps its route here: no caller knows its id.
            self._expect("routes", routes & (set(live) | set(self.given.values())), set(live))
        self.faults += [f"{one.id} ended: {one.end}" for one in records.values() if one.id in wanted and one.end]

    def _expect(self, what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            self.faults.append(f"{what}: {seen}, not {wanted}")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
