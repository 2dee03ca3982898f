"""The bridges of the chart: published clients call their Services, and their pods reach the gateway alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.bridges.running import cases, environment
from tests.bridges.test_e2b_clients import WANTED as E2B
from tests.bridges.test_fusion_clients import VERL
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, RELEASE, Installed, address, installed, objects
from tests.support.release import VALUES

pytestmark = [pytest.mark.disrupts, pytest.mark.timeout(600)]
BRIDGES = [
    part for one in ("e2b", "fusion") for part in (f"bridges.{one}.enabled=true", f"bridges.{one}.image={IMAGE}")
]


@pytest.fixture(scope="module")
def stack() -> Iterator[Installed]:
    """A release of its own: that of all other tests has no bridges."""
    with asyncio.Runner() as runner:
        installing = installed(f"{RELEASE}-bridges", *VALUES, *BESIDE_ANOTHER, *ONE_OF_EACH, *BRIDGES)
        yield runner.run(installing.__aenter__())
        runner.run(installing.__aexit__(None, None, None))


async def test_verls_reward_is_that_of_the_program(stack: Installed) -> None:
    url = await address(stack.release, stack.namespace, "bridge-fusion")
    assert await cases("verl-0.9.1", "verl_cases.py", "", environment(url, stack.api_key, "fusion")) == VERL


async def test_both_replicas_of_e2bs_bridge_know_each_others_sandboxes(stack: Installed) -> None:
    """What a client makes at one replica it uses at another: their credentials are sealed by one secret."""
    label = "app.kubernetes.io/component=bridge-e2b"
    pods = await objects("pods", "--namespace", stack.namespace, "--selector", label)
    one, other = (f"http://{pod['status']['podIP']}:8080" for pod in pods)
    environ = environment(one, stack.api_key) | {"E2B_SANDBOX_URL": other}
    saw = await cases("e2b-2.63.0", "e2b_cases.py", "sync", environ)
    for case in ("ran", "failed", "texts", "connected", "wrong_key"):
        assert saw[case] == E2B[case], case
