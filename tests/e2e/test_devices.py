"""Devices by ResourceClaims: from a create to a command that opens one. The device is none of a GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import CapacityUnavailable, StartTimeout, Unsupported
from tests.support.device_driver import serving
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, Installed, installed, objects, own_cluster
from tests.support.waiting import until

RELEASE = "rollbox-devices"
DRIVER = "devices.rollbox.example"
GVISOR = (
    *BESIDE_ANOTHER,
    "runtimeClass.create=true",
    f"runtimeClass.name={RELEASE}",
    *ONE_OF_EACH,
    f"gpu.deviceClass={DRIVER}",
    # One of the node's that is not that of all sandboxes.
    "gpu.handler=runsc-lazy",
)
WITHOUT_GVISOR = (*GVISOR, "gpu.handler=", "runtimeClass.handler=runc", "sandboxes.requiredKernel=any")
SMALL: Any = {"cpu": (0.05, 1), "memory": ("32Mi", "128Mi"), "lease": None}
# Devices that no container has unless it is given one: what control groups allow by themselves would prove nothing.
ON_MACHINE = "/dev/fuse"
# One that gVisor has not, of its own. What it has it opens, whoever was given the node.
UNKNOWN_TO_GVISOR = "/dev/loop-control"
OPENS = "import os, sys; os.close(os.open(sys.argv[1], os.O_RDWR)); print('opened')"

pytestmark = [
    pytest.mark.played,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not own_cluster(), reason="the driver is a process beside the kubelet of `make cluster`"),
]


async def test_a_command_opens_the_device_of_its_sandbox_and_of_no_other() -> None:
    async with (
        serving(DRIVER, ON_MACHINE, "one", "two") as driver,
        installed(RELEASE, *WITHOUT_GVISOR) as stack,
        Client(stack.url, stack.api_key) as client,
    ):
        first = await client.create(IMAGE, gpu=1, **SMALL)
        second = await client.create(IMAGE, gpu=1, **SMALL)
        held = [await _device(one) for one in (first, second)]
        assert sorted(held) == ["one", "two"]
        assert await _opens(first, f"/dev/rollbox-{held[0]}")
        assert await _opens(second, f"/dev/rollbox-{held[1]}")
        assert not await _opens(first, f"/dev/rollbox-{held[1]}")
        assert (await first.exec("test -s /driver/release")).ok
        assert not (await first.exec("echo > /driver/release")).ok
        # All are held: it waits for one as for any room, and is told what there is too little of.
        with pytest.raises(CapacityUnavailable, match="has 0 GPUs left"):
            await client.create(IMAGE, gpu=1, start_timeout=5, **SMALL)
        assert len(await objects("pods", "-n", stack.sandboxes)) == 2, "a pod was made that no device is free for"
        with pytest.raises(Unsupported, match="needs 3 devices for sandboxes on one node; .* has 2"):
            await client.create(IMAGE, gpu=3, **SMALL)
        await _has_none(await client.create(IMAGE, **SMALL))
        # What one gives back another one gets, and both at once.
        for one in (first, second):
            await client.delete(one.id, wait=True)
        both = await client.create(IMAGE, gpu=2, **SMALL)
        assert [await _opens(both, f"/dev/rollbox-{name}") for name in ("one", "two")] == [True, True]
        await client.delete(both.id, wait=True)
        await until(lambda: _given_back(driver.prepared))


async def test_under_gvisor_it_has_a_runtime_of_its_own_and_a_device_that_goes_away_is_told() -> None:
    async with installed(RELEASE, *GVISOR) as stack, Client(stack.url, stack.api_key) as client:
        with pytest.raises(Unsupported, match=f"no DeviceClass {DRIVER}: install the driver"):
            await client.create(IMAGE, gpu=1, **SMALL)
        async with serving(DRIVER, UNKNOWN_TO_GVISOR, "one") as driver:
            await until(lambda: _known(client, 1))
            driver.broken = "the device does not answer"
            with pytest.raises(StartTimeout, match="the device does not answer"):
                await client.create(IMAGE, gpu=1, start_timeout=15, **SMALL)
            driver.broken = ""
            # A declared pool keeps devices with its sandboxes.
            pool = await client.set_pool("devices", IMAGE, (1, 1), gpu=1, **_of_pools(SMALL))
            await until(lambda: _ready(client, pool.name))
            warm = await client.create(IMAGE, gpu=1, **SMALL)
            assert warm.record.source == "warm"
            assert await _device(warm) == "one"
            assert (await _runtimes(stack))[warm.id] == f"{RELEASE}-gpu"
            # The node is there, and gVisor opens nothing of the host by it: it knows GPUs alone, with nvproxy.
            refused = await warm.exec(["python3", "-c", OPENS, "/dev/rollbox-one"])
            assert "No such device or address" in refused.stderr
            await client.remove_pool(pool.name)
            # The sandbox runs on without it; nobody else is promised one.
            await driver.publish()
            await until(lambda: _known(client, 0))
            assert (await warm.exec("true")).ok
            with pytest.raises(Unsupported, match="no node has any"):
                await client.create(IMAGE, gpu=1, **SMALL)
            await client.delete(warm.id, wait=True)


async def _runtimes(stack: Installed) -> dict[str, str]:
    """The RuntimeClass of each sandbox."""
    pods = await objects("pods", "-n", stack.sandboxes)
    return {pod["metadata"]["name"]: pod["spec"]["runtimeClassName"] for pod in pods}


async def _device(sandbox: Sandbox) -> str:
    """The name of the device that a sandbox has, by the variable that its specification sets."""
    return (await sandbox.exec("echo $ROLLBOX_TEST_DEVICE", check=True)).stdout.strip()


async def _opens(sandbox: Sandbox, path: str) -> bool:
    return (await sandbox.exec(["python3", "-c", OPENS, path])).stdout == "opened\n"


async def _has_none(sandbox: Sandbox) -> None:
    number = Path(ON_MACHINE).stat().st_rdev  # noqa: ASYNC240 - of a device
    made = await sandbox.exec(f"mknod /tmp/forged c {os.major(number)} {os.minor(number)}")
    assert not await _opens(sandbox, "/tmp/forged"), made
    assert not (await sandbox.exec("ls /dev/rollbox-*")).ok
    await sandbox.delete(wait=True)


async def _known(client: Client, count: int) -> bool:
    """Whether the control plane has heard that so many devices are there."""
    return (await client.preflight(IMAGE, gpu=1, **SMALL)).may_have_alone == count


async def _ready(client: Client, name: str) -> bool:
    return (await client.pool(name)).ready == 1


async def _given_back(prepared: dict[str, list[str]]) -> bool:
    return not prepared


def _of_pools(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "lease"}
