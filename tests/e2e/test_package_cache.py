"""The package cache on a cluster: pip installs through it, asked for once, and under a date what was there then."""

from __future__ import annotations

import asyncio
import ensurepip
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from rollbox import Client, EgressPolicy, Sandbox
from rollbox.errors import InvalidArgument
from tests.support import dated_index
from tests.support.command_line import rollbox
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, RELEASE, Installed, installed, kubeconfig
from tests.support.outside import DNS, INDEXES, outside
from tests.support.release import VALUES

pytestmark = [pytest.mark.egress, pytest.mark.timeout(600)]

UPSTREAM = f"http://{INDEXES}:{dated_index.PORT}"
ON = (
    "egress.enabled=true",
    "egress.replicas=1",
    f"egress.allowedPrivateCidrs[0]={INDEXES}/32",
    f"egress.dnsServers[0]={DNS}",
    "egress.packages.enabled=true",
    rf"egress.packages.indexes.pypi\.org={UPSTREAM}/pypi",
    rf"egress.packages.indexes.files\.pythonhosted\.org={UPSTREAM}/files",
)
DATED = EgressPolicy(mode="allow", include=["packages"], until="2024-06-01")
# Only what the environment says leads it to an index.
PIP = "python3 /tmp/pip.whl/pip --disable-pip-version-check"
INSTALL = f"{PIP} install --no-cache-dir --retries 0 --upgrade --target /tmp/there"
SAY = "PYTHONPATH=/tmp/there python3 -c 'import tiny; print(tiny.VERSION)'"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release with the cache, in front of an index of the test's own."""
    folder = tmp_path_factory.mktemp("outside")
    with outside(folder, sys.executable, dated_index.__file__, INDEXES), asyncio.Runner() as runner:
        installing = installed(f"{RELEASE}-packages", *VALUES, *BESIDE_ANOTHER, *ONE_OF_EACH, *ON)
        yield runner.run(installing.__aenter__())
        runner.run(installing.__aexit__(None, None, None))


@pytest.fixture
async def sandbox(client: Client) -> AsyncIterator[Sandbox]:
    (packed,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    async with await client.create(IMAGE, cpu=(0.02, 2), memory="256Mi") as made:
        await made.files.write("/tmp/pip.whl", await asyncio.to_thread(packed.read_bytes))
        yield made


async def _asked() -> dict[str, int]:
    async with aiohttp.ClientSession() as session, session.get(f"{UPSTREAM}/asked") as answer:
        told: dict[str, int] = await answer.json()
    return told


async def test_pip_installs_through_the_cache_what_the_policy_allows(sandbox: Sandbox) -> None:
    # By itself pip says no more than that it has found nothing.
    refused = await sandbox.exec(f"{INSTALL} -vv tiny", timeout=120)
    assert not refused.ok
    assert "the network policy of this sandbox is `offline`" in refused.stderr + refused.stdout
    await sandbox.egress("packages")
    for _ in range(2):
        await sandbox.exec(f"rm -rf /tmp/there; {INSTALL} tiny", check=True, timeout=120)
        assert (await sandbox.exec(SAY, check=True)).stdout == "2.0\n"
    asked = await _asked()
    assert asked["/files/packages/tiny-2.0-py3-none-any.whl"] == 1
    assert asked["/pypi/simple/tiny/"] == 1
    told = {(one.host, one.verdict, one.protocol) for one in await sandbox.egress_log()}
    assert {("pypi.org", "allowed", "packages"), ("files.pythonhosted.org", "allowed", "packages")} <= told


async def test_under_a_date_pip_installs_what_was_there(sandbox: Sandbox) -> None:
    state = await sandbox.egress(DATED)
    assert (state.applied, state.rules["until"]) == (True, "2024-06-01T00:00:00Z")
    await sandbox.exec(f"{INSTALL} tiny", check=True, timeout=120)
    assert (await sandbox.exec(SAY, check=True)).stdout == "1.0\n"
    assert not (await sandbox.exec(f"{INSTALL} tiny==2.0", timeout=120)).ok
    # Its file by name, and the index itself, past the cache.
    for url in (
        "http://packages.rollbox.internal/files.pythonhosted.org/packages/tiny-2.0-py3-none-any.whl",
        "https://files.pythonhosted.org/packages/tiny-2.0-py3-none-any.whl",
        "http://pypi.org/simple/tiny/",
    ):
        fetch = f"import urllib.request as u; u.urlopen({json.dumps(url)}, timeout=20)"
        refused = await sandbox.exec(["python3", "-c", fetch], timeout=60)
        assert not refused.ok
        assert "403" in refused.stderr, (url, refused.stderr)
    assert "/pypi/simple/tiny/" in await _asked()


async def test_a_date_that_is_none_is_refused_before_anything_is_switched(sandbox: Sandbox) -> None:
    await sandbox.egress("packages")
    with pytest.raises(InvalidArgument, match="must be a date like 2024-06-01"):
        await sandbox.egress(EgressPolicy(mode="allow", include=["packages"], until="last week"))
    assert (await sandbox.egress()).policy == "packages"


async def test_the_doctor_says_that_it_answers_and_egress_counts_that(stack: Installed) -> None:
    assert f"{stack.release}-test" in await stack.test()
    doctor = ("doctor", "--cluster", "--kubeconfig", str(kubeconfig()), "--json", "--release", stack.release)
    _, out, err = await rollbox(stack, *doctor)
    assert out, err
    (found,) = [one for one in json.loads(out)["checks"] if one["name"] == f"egress of {stack.release}: package cache"]
    assert (found["ok"], found["detail"].partition(" in ")[0]) == (True, "answers through egress")
    (pod,) = await stack.component("egress")
    async with aiohttp.ClientSession() as session, session.get(f"http://{pod['status']['podIP']}:8090/metrics") as told:
        lines = (await told.text()).splitlines()
    asked = 'rollbox_egress_packages_requests_total{index="index.crates.io",result="hit"} '
    assert asked + "2" in lines
