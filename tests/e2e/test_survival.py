"""Parts of the platform die in the middle of everything: no running sandbox is lost, nothing runs twice or stays."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rollbox import Client, Sandbox, SandboxRecord
from rollbox.errors import SandboxError
from tests.support.conversation import conversing
from tests.support.faults import kill, node_part, processes_of, ready, standing_still
from tests.support.images import IMAGE
from tests.support.installed import Installed, kubectl, objects, own_cluster
from tests.support.labels import longest
from tests.support.product import Kept
from tests.support.release import STARTS_PER_NODE
from tests.support.waiting import succeeds, until

pytestmark = pytest.mark.disrupts

SETTLES_WITHIN_S = 120.0
# More than start at once on a node.
MANY = STARTS_PER_NODE + 2
# Little enough of each for many to have room on a node of two cores, beside two releases: the scheduler would make room
# for the platform's pods when they come back.
SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


class Load:
    """Execs in some sandboxes, one under way in each at every moment, while something else happens.

    Every one must give its own answer. It sleeps most of its time: the cores are left to what happens beside it.
    """

    def __init__(self, sandboxes: list[Sandbox]) -> None:
        self._sandboxes = sandboxes
        self._stopping = False
        self.done = 0
        self.failures: list[str] = []

    async def lane(self, sandbox: Sandbox) -> None:
        """One after the other; each line is appended in the sandbox and counted there at the end."""
        number = 0
        while not self._stopping:
            number += 1
            try:
                result = await sandbox.exec(f"echo {number} >> /tmp/lines; sleep 0.2; echo {number}")
                assert result.stdout == f"{number}\n", result
                self.done += 1
            except SandboxError as error:
                self.failures.append(f"{error.code}: {error.detail}")
        lines = (await sandbox.exec("cat /tmp/lines", check=True)).stdout.split()
        assert lines == [str(n) for n in range(1, number + 1)], "a command was lost or ran twice"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs beside the block; afterwards every exec is accounted for."""
        async with asyncio.TaskGroup() as group:
            for sandbox in self._sandboxes:
                group.create_task(self.lane(sandbox))
            try:
                yield
            finally:
                self._stopping = True


@pytest.fixture(scope="module")
def kept_two(stack: Installed) -> Iterator[list[Kept]]:
    """The sandboxes behind `two`."""
    two = [Kept(stack, **SMALL) for _ in range(2)]
    yield two
    with asyncio.Runner() as runner:
        for one in two:
            runner.run(one.delete())


@pytest.fixture
async def two(client: Client, kept_two: list[Kept], request: pytest.FixtureRequest) -> AsyncIterator[list[Sandbox]]:
    """Two sandboxes that all tests here have survive what they do; nothing of one test is in them for the next."""
    yield await asyncio.gather(*(one.connect(client, request.node.nodeid) for one in kept_two))
    for one in kept_two:
        await one.check(client)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("component", ["gateway", pytest.param("controlplane", marks=pytest.mark.core), "redis"])
async def test_execs_under_way_survive(stack: Installed, two: list[Sandbox], component: str) -> None:
    load = Load(two)
    async with load.running():
        await until(lambda: _more_than(load, 10))
        await kill(stack, component, everyone=True)
        # Beyond the restart: the new pods serve what the old ones had begun.
        await ready(stack, component)
        before = load.done
        await until(lambda: _more_than(load, before + 10), SETTLES_WITHIN_S)
    assert load.failures == []


async def _more_than(load: Load, count: int) -> bool:
    await asyncio.sleep(0.05)
    return load.done > count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("component", ["gateway", "controlplane", "redis"])
async def test_creates_under_way_survive(stack: Installed, client: Client, others: set[str], component: str) -> None:
    run = {"run": f"create-{component}-{time.time_ns()}"}
    creates = [asyncio.create_task(client.create(IMAGE, **SMALL, labels=run)) for _ in range(3)]
    await until(lambda: client.list(run))
    await kill(stack, component, everyone=component != "controlplane")
    outcomes = await asyncio.gather(*creates, return_exceptions=True)
    await ready(stack, component)
    made = [one for one in outcomes if isinstance(one, Sandbox)]
    failed = [one for one in outcomes if not isinstance(one, Sandbox)]
    # A typed answer that says "ours" is allowed when all of Redis is gone for a while; a silent loss never is.
    assert all(isinstance(one, SandboxError) and one.is_infra for one in failed), failed
    if component != "redis":
        assert failed == []
    for sandbox in made:
        assert (await sandbox.exec("echo alive")).stdout == "alive\n"
    assert {record.id for record in await client.list(run)} >= {sandbox.id for sandbox in made}
    await client.delete(labels=run)
    await until(lambda: _none_left(stack, client, run, others), SETTLES_WITHIN_S)


@pytest.mark.timeout(300)
async def test_creates_survive_both_control_planes(stack: Installed, client: Client, others: set[str]) -> None:
    run = {"run": f"both-killed-{time.time_ns()}"}
    creates = [asyncio.create_task(client.create(IMAGE, **SMALL, labels=run, start_timeout=180)) for _ in range(MANY)]
    # Some of them are running by then, some start, some wait for their turn.
    await until(lambda: _one_runs(client, run))
    await kill(stack, "controlplane", everyone=True)
    made = await asyncio.gather(*creates)
    await ready(stack, "controlplane")
    answers = await asyncio.gather(*(sandbox.exec("echo alive") for sandbox in made))
    assert {answer.stdout for answer in answers} == {"alive\n"}
    ids = {sandbox.id for sandbox in made}
    records = await client.list(run)
    assert len(ids) == MANY
    # Nothing twice: no record, no pod beside them.
    assert [record for record in records if record.id not in ids or record.state != "running"] == []
    assert len(records) == MANY
    # Those of tests before may still be on their way out.
    pods = [pod["metadata"] for pod in await objects("pods", "-n", stack.sandboxes)]
    assert {pod["name"] for pod in pods if "deletionTimestamp" not in pod} - others == ids
    report = await client.delete(labels=run)
    assert report.failed == {}
    await until(lambda: _none_left(stack, client, run, others), SETTLES_WITHIN_S)


async def _one_runs(client: Client, run: dict[str, str]) -> bool:
    return any(record.state == "running" for record in await client.list(run))


@pytest.fixture
def others(kept: Kept, kept_two: list[Kept]) -> set[str]:
    """The ids of sandboxes that outlive the test."""
    return {one.id for one in (kept, *kept_two)}


async def _none_left(stack: Installed, client: Client, run: dict[str, str], others: set[str]) -> bool:
    await asyncio.sleep(0.5)
    pods = {pod["metadata"]["name"] for pod in await objects("pods", "-n", stack.sandboxes)}
    return not await client.list(run) and pods <= others


@pytest.mark.timeout(300)
async def test_an_emptied_redis_is_rebuilt_from_the_cluster(
    stack: Installed, client: Client, two: list[Sandbox]
) -> None:
    async with await client.create(IMAGE, **SMALL, env={"KEPT": "yes"}, labels=longest()) as sandbox:
        ids = {sandbox.id, *(one.id for one in two)}
        # Facts are written behind: what the cluster knows is what comes back.
        await until(lambda: _annotated(stack, ids))
        redis = (await stack.pods("redis"))[0]
        shell = 'redis-cli ${REDIS_PASSWORD:+-a "$REDIS_PASSWORD"} --no-auth-warning FLUSHALL'
        await kubectl("exec", "-n", stack.namespace, redis, "--", "sh", "-c", shell)
        assert (await sandbox.exec("echo $KEPT", check=True)).stdout == "yes\n"
        assert [(await one.exec("echo on")).stdout for one in two] == ["on\n"] * 2
        records = await until(lambda: _listed(client, ids), SETTLES_WITHIN_S)
        # What the pods hold is all that is left of them.
        assert [record.labels for record in records if record.id == sandbox.id] == [longest()]
        key, value = next(iter(longest().items()))
        assert [record.id for record in await client.list({key: value})] == [sandbox.id]
        async with await client.create(IMAGE, **SMALL) as fresh:
            assert (await fresh.exec("true")).ok


async def _annotated(stack: Installed, ids: set[str]) -> bool:
    pods = {pod["metadata"]["name"]: pod for pod in await objects("pods", "-n", stack.sandboxes)}
    return all("rollbox.dev/ready-at-ms" in pods[one]["metadata"]["annotations"] for one in ids)


async def _listed(client: Client, ids: set[str]) -> list[SandboxRecord]:
    """What is on record, once all of these are."""
    await asyncio.sleep(0.2)
    with contextlib.suppress(SandboxError):
        found = list(await client.list())
        return found if {record.id for record in found} >= ids else []
    return []


@pytest.mark.core
@pytest.mark.timeout(400)
async def test_an_upgrade_and_a_rollback_under_load_lose_nothing(
    stack: Installed, client: Client, two: list[Sandbox]
) -> None:
    load = Load(two)
    first = await _served_by(stack)
    async with load.running(), _upgraded(stack):
        # Helm waits for the new pods; the last old one may be told to go a moment later.
        await until(lambda: _all_replaced(stack, first))
        during = await client.create(IMAGE, **SMALL)
        assert await stack.test()
    assert load.failures == []
    assert load.done > 0
    async with during:
        assert (await during.exec("echo alive")).stdout == "alive\n"


@contextlib.asynccontextmanager
async def _upgraded(stack: Installed) -> AsyncIterator[None]:
    """An upgrade for the block, with values of which nothing follows but new pods; rolled back in any case."""
    drain_s = 30 + secrets.randbelow(30)
    await stack.upgrade(f"gateway.drainSeconds={drain_s}", f"controlplane.drainSeconds={drain_s}")
    try:
        yield
    finally:
        await stack.rollback()


async def _all_replaced(stack: Installed, before: set[str]) -> bool:
    return not before & await _served_by(stack)


async def _served_by(stack: Installed) -> set[str]:
    """The pods that gateway and control plane are made of now, those that are just going left out."""
    label = "app.kubernetes.io/component in (gateway, controlplane)"
    pods = [pod["metadata"] for pod in await objects("pods", "-n", stack.namespace, "-l", label)]
    return {meta["name"] for meta in pods if "deletionTimestamp" not in meta}


@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_the_kubelet_restarts_and_sandboxes_run_on(client: Client, two: list[Sandbox]) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's kubelet is not ours to restart")
    load = Load(two)
    async with load.running():
        await node_part("restart", "kubelet")
        async with await client.create(IMAGE, **SMALL) as fresh:
            assert (await fresh.exec("echo new")).stdout == "new\n"
    assert load.failures == []


@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_the_api_server_is_away_for_a_while(client: Client, two: list[Sandbox]) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's API server is not ours to stop")
    load = Load(two)
    async with load.running():
        await node_part("stop", "kube-apiserver")
        try:
            creating = asyncio.create_task(client.create(IMAGE, **SMALL, start_timeout=120))
            before = load.done
            await until(lambda: _more_than(load, before + 20))
        finally:
            await node_part("start", "kube-apiserver")
        async with await creating as late:
            assert (await late.exec("echo late")).stdout == "late\n"
    assert load.failures == []


async def _both(stack: Installed) -> list[str]:
    addresses = await stack.controlplanes()
    return addresses if len(addresses) == 2 else []


async def test_both_replicas_answer_for_the_same_sandboxes(stack: Installed, client: Client) -> None:
    if not own_cluster():
        pytest.skip("asks replicas at their own addresses")
    addresses = await until(lambda: _both(stack))
    async with contextlib.AsyncExitStack() as exits:
        replicas = [await exits.enter_async_context(Client(one, stack.api_key)) for one in addresses]
        made = await asyncio.gather(*(replica.create(IMAGE, **SMALL) for replica in replicas))
        for replica in replicas:
            assert {record.id for record in await replica.list()} >= {sandbox.id for sandbox in made}
        # Deleted by the one that did not make it.
        reports = await asyncio.gather(*(replicas[(n + 1) % 2].delete(one.id) for n, one in enumerate(made)))
        assert all(report.failed == {} for report in reports)
        key = f"both-{time.time_ns()}"
        same = await asyncio.gather(*(replica.create(IMAGE, idempotency_key=key) for replica in replicas))
        assert same[0].id == same[1].id
        await client.delete(same[0].id)


async def test_a_long_exec_outlives_the_gateway_it_came_through(stack: Installed, two: list[Sandbox]) -> None:
    sandbox = two[0]
    call = asyncio.create_task(sandbox.exec("echo ran >> /tmp/runs; sleep 5; cat /tmp/runs"))
    await until(lambda: succeeds(sandbox, "cat /tmp/runs"))
    await kill(stack, "gateway", everyone=True)
    async with asyncio.timeout(100):
        assert (await call).stdout == "ran\n"


@pytest.mark.timeout(300)
async def test_execs_leave_a_gateway_that_stands_still(stack: Installed, two: list[Sandbox]) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's processes are not ours to stop")
    sandbox, count = two[0], 12
    await ready(stack, "gateway")
    gateways = [one["metadata"] for one in await stack.component("gateway")]
    first = next(one["uid"] for one in gateways if "deletionTimestamp" not in one)
    (stopped,) = await asyncio.to_thread(lambda: [*processes_of(first, "rollbox-gateway")])
    # Each from a client of its own: of the connections of these, some are to the one and some to the other gateway.
    async with contextlib.AsyncExitStack() as exits:
        clients = [await exits.enter_async_context(Client(stack.url, stack.api_key)) for _ in range(count)]
        same = [await one.connect(sandbox.id) for one in clients]
        calls = [asyncio.create_task(one.exec(f"echo {n} >> /tmp/stood; sleep 3")) for n, one in enumerate(same)]
        await until(lambda: succeeds(sandbox, f"test $(wc -l < /tmp/stood) = {count}"))
        began_s = time.monotonic()
        with standing_still(stopped):
            for call in asyncio.as_completed(calls):
                assert (await call).ok
                print(f"an answer {time.monotonic() - began_s:.1f} s after one of {len(gateways)} gateways was stopped")
    lines = (await sandbox.exec("cat /tmp/stood", check=True)).stdout.split()
    assert sorted(map(int, lines)) == [*range(count)], "a command was lost or ran twice"
    await ready(stack, "gateway")


@pytest.mark.timeout(300)
async def test_streams_under_way_survive_all_gateways(stack: Installed, two: list[Sandbox]) -> None:
    async with conversing(two) as talks:
        await asyncio.gather(*(talk.goes_on() for talk in talks))
        await kill(stack, "gateway", everyone=True)
        # Those that were cut off may go on before the component is whole again; what counts is that they do.
        await ready(stack, "gateway")
        await asyncio.gather(*(talk.goes_on() for talk in talks))
