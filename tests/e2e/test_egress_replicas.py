"""Two egress replicas: one that is killed, one that stands still, and a rollout, while programs go on asking."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox import Client, EgressPolicy, EgressRule, Sandbox
from tests.support.command_line import rollbox
from tests.support.faults import processes_of, ready
from tests.support.images import IMAGE
from tests.support.installed import (
    BESIDE_ANOTHER,
    ONE_OF_EACH,
    RELEASE,
    Installed,
    installed,
    kubeconfig,
    kubectl,
    own_cluster,
)
from tests.support.outside import ALLOWED, DNS, WEB, outside
from tests.support.waiting import succeeds, until

pytestmark = [pytest.mark.egress, pytest.mark.disrupts, pytest.mark.timeout(600)]

COUNT = 6
DOCTOR = ("doctor", "--cluster", "--kubeconfig", str(kubeconfig()), "--json")
FOUND = Path("build/egress/replicas.json")
ON = (
    # With the release's own addresses among what egress must not reach.
    "preflight.enabled=true",
    "egress.enabled=true",
    "egress.replicas=2",
    f"egress.probe=index.test:{WEB}",
    "egress.resources.requests.cpu=5m",
    f"egress.allowedPrivateCidrs[0]={ALLOWED}/32",
    f"egress.dnsServers[0]={DNS}",
)
INDEX = EgressPolicy(mode="allow", allow=[EgressRule(host="index.test", ports=[WEB], name="index")])
# A server that is asked four times a second, each in a thread of its own: one that hangs holds no other one up. A file
# has a byte for each that came to its end. It says when each began, how long it took, and what was wrong.
ASKS = """
import json, os, sys, threading, time, urllib.error, urllib.request
told, threads = [], []
def ask():
    began, wrong = time.time(), ""
    try:
        urllib.request.urlopen(sys.argv[1], timeout=90).read()
    except urllib.error.HTTPError as error:
        said = json.loads(error.read())
        wrong = f"{error.code} {said['code']}: {said['detail']}"
    except OSError as error:
        wrong = str(getattr(error, "reason", error)) or type(error).__name__
    told.append([began, time.time() - began, wrong])
    if not wrong:
        with open("/tmp/done", "a") as done:
            done.write("1")
while not os.path.exists("/tmp/stop"):
    threads.append(threading.Thread(target=ask))
    threads[-1].start()
    time.sleep(0.25)
for one in threads:
    one.join()
print(json.dumps(told))
"""
# A download that does not end by itself.
READS = """
import sys, time, urllib.request
answer = urllib.request.urlopen(sys.argv[1], timeout=120)
print("began", flush=True)
try:
    while answer.readline(): pass
    print("ended", time.time(), flush=True)
except OSError as error:
    print("cut", time.time(), type(error).__name__, flush=True)
"""


@dataclass
class Asked:
    """What the programs of one sandbox have seen.

    Attributes:
        sandbox: which.
        told: of each request: when it began, what it took, what was wrong.
        cut: how its download has ended, and when; empty: it has not.
    """

    sandbox: Sandbox
    told: list[tuple[float, float, str]] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    async def goes_on(self, count: int = 20) -> None:
        """Returns when so many further requests have come to their end."""
        wanted = await self._done() + count

        async def enough() -> bool:
            await asyncio.sleep(0.5)
            return await self._done() >= wanted

        await until(enough)

    async def _done(self) -> int:
        return int((await self.sandbox.exec("stat -c %s /tmp/done || echo 0")).stdout)

    @property
    def failed(self) -> list[str]:
        return [wrong for _, _, wrong in self.told if wrong]

    @property
    def gap_s(self) -> float:
        """The longest time in which no request came to its end."""
        ends = sorted(began + took for began, took, wrong in self.told if not wrong)
        return max((after - before for before, after in pairwise(ends)), default=0.0)


@pytest.fixture(scope="module", autouse=True)
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "hello").write_text("hello from outside\n")
    with outside(folder):
        yield


@pytest.fixture(scope="module")
def stack() -> Iterator[Installed]:
    """A release of its own."""
    if not own_cluster():
        pytest.skip("processes of a given cluster are not ours to stop")
    with asyncio.Runner() as runner:
        installing = installed(f"{RELEASE}-replicas", *BESIDE_ANOTHER, *ONE_OF_EACH, *ON)
        yield runner.run(installing.__aenter__())
        runner.run(installing.__aexit__(None, None, None))


async def test_the_charts_test_and_the_doctor_have_a_sandbox_try_it(stack: Installed) -> None:
    assert f"{stack.release}-test" in await stack.test()
    _, out, err = await rollbox(stack, *DOCTOR, "--release", stack.release)
    assert out, err
    beginning = f"egress of {stack.release}: "
    found = {one["name"].removeprefix(beginning): one for one in json.loads(out)["checks"] if beginning in one["name"]}
    assert [one for one in found.values() if not one["ok"]] == []
    assert {
        "refusal",
        "API server",
        "API server's own address",
        "kubelet",
        "gateway",
        "package cache",
        "allowed host",
    } <= found.keys()


@contextlib.asynccontextmanager
async def asking(client: Client) -> AsyncIterator[list[Asked]]:
    """Sandboxes whose programs ask and download while the block runs; what they saw is there after it."""
    wanted = {"cpu": (0.02, 1), "memory": ("48Mi", "256Mi"), "egress": INDEX}
    sandboxes = await asyncio.gather(*(client.create(IMAGE, **wanted) for _ in range(COUNT)))  # type: ignore[arg-type]
    seen = [Asked(one) for one in sandboxes]
    try:
        async with asyncio.TaskGroup() as group:
            for asked in seen:
                group.create_task(_ask(asked))
                group.create_task(_read(asked))
            await asyncio.gather(*(_begun(one) for one in sandboxes))
            yield seen
            await asyncio.gather(*(one.exec("touch /tmp/stop; pkill -f endless || true") for one in sandboxes))
    finally:
        await asyncio.gather(*(one.delete() for one in sandboxes))


async def _begun(sandbox: Sandbox) -> None:
    await until(lambda: succeeds(sandbox, "test -s /tmp/reads"))


async def _ask(asked: Asked) -> None:
    command = ["python3", "-c", ASKS, f"http://index.test:{WEB}/hello"]
    answer = await asked.sandbox.exec(command, timeout=400, check=True)
    asked.told = [(began, took, wrong) for began, took, wrong in json.loads(answer.stdout)]


async def _read(asked: Asked) -> None:
    await asked.sandbox.files.write("/tmp/endless.py", READS)
    url = f"http://index.test:{WEB}/endless"
    answer = await asked.sandbox.exec(f"python3 /tmp/endless.py {url} | tee /tmp/reads", timeout=400)
    asked.cut = answer.stdout.split()[1:]


async def all_go_on(seen: list[Asked]) -> None:
    """Returns when twenty further requests of each sandbox have come to their end."""
    await asyncio.gather(*(one.goes_on() for one in seen))


async def links(pod: dict[str, Any]) -> int:
    """How many links a replica has."""
    url = f"http://{pod['status']['podIP']}:8090/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        lines = (await answer.text()).splitlines()
    return next(int(float(one.split()[1])) for one in lines if one.startswith("rollbox_egress_links "))


async def chosen(stack: Installed) -> tuple[dict[str, Any], int]:
    """The pod of egress with fewer links, which has some; and how many. Returns when all sandboxes have theirs."""

    async def all_linked() -> list[tuple[int, dict[str, Any]]]:
        await asyncio.sleep(0.2)
        pods = [one for one in await stack.component("egress") if "deletionTimestamp" not in one["metadata"]]
        found = [(await links(one), one) for one in pods]
        return found if sum(count for count, _ in found) == COUNT else []

    found = await until(all_linked)
    count, pod = min((one for one in found if one[0]), key=lambda one: one[0])
    return pod, count


async def process(pod: dict[str, Any]) -> int:
    (pid,) = await asyncio.to_thread(lambda: [*processes_of(pod["metadata"]["uid"], "rollbox-egress")])
    return pid


def note(name: str, **found: object) -> None:
    """What was measured, for the docs."""
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    FOUND.write_text(json.dumps({**known, name: found}, indent=1))


async def test_one_that_is_killed_ends_its_connections_typed_and_new_ones_work_at_once(
    stack: Installed, client: Client
) -> None:
    async with asking(client) as seen:
        victim, served = await chosen(stack)
        await all_go_on(seen)
        os.kill(await process(victim), signal.SIGKILL)
        await all_go_on(seen)
        await ready(stack, "egress")
        await all_go_on(seen)
    cut = [one.cut for one in seen if one.cut[:1] == ["cut"]]
    gaps = sorted(round(one.gap_s, 2) for one in seen)
    failed = [one.failed for one in seen]
    note("killed", served=served, cut=cut, gaps_s=gaps, failed=failed, asked=sum(len(one.told) for one in seen))
    assert len(cut) >= served
    assert not [one.cut for one in seen if one.cut[:1] == ["ended"]]
    # What was under way, and no more: four a second are asked, and each takes milliseconds.
    assert max(len(one) for one in failed) <= 2
    assert gaps[-1] < 20


async def test_the_sandboxes_of_one_that_stands_still_are_the_others_soon(stack: Installed, client: Client) -> None:
    async with asking(client) as seen:
        victim, served = await chosen(stack)
        await all_go_on(seen)
        pid = await process(victim)
        os.kill(pid, signal.SIGSTOP)
        at = time.time()
        try:
            await all_go_on(seen)
        finally:
            # The kubelet may have ended it meanwhile, since it answers no probe.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        await ready(stack, "egress")
        await all_go_on(seen)
    gaps = sorted(round(one.gap_s, 2) for one in seen)
    hung = sorted(round(max((took for began, took, _ in one.told if began > at - 1), default=0.0), 1) for one in seen)
    note("still", served=served, gaps_s=gaps, slowest_s=hung, failed=[len(one.failed) for one in seen])
    assert gaps[-1] < 30


async def test_a_rollout_breaks_no_request(stack: Installed, client: Client) -> None:
    async with asking(client) as seen:
        await chosen(stack)
        await all_go_on(seen)
        name = f"deployment/{stack.release}-egress"
        await kubectl("rollout", "restart", name, "-n", stack.namespace)
        await kubectl("rollout", "status", name, "-n", stack.namespace, "--timeout=180s")
        await ready(stack, "egress")
        await all_go_on(seen)
    gaps = sorted(round(one.gap_s, 2) for one in seen)
    note("rollout", gaps_s=gaps, failed=[one.failed for one in seen], asked=sum(len(one.told) for one in seen))
    assert [one.failed for one in seen if one.failed] == []
