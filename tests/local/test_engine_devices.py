"""Devices by CDI on the engine: from a create to a command that opens one. The device is none of a GPU."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollbox import Client
from rollbox.errors import CapacityUnavailable, Unsupported
from tests.support.images import IMAGE
from tests.support.stack import Stack, start, stop_process

KIND = f"test-{os.getpid()}.rollbox.example/node"
SPECIFICATION = Path("/var/run/cdi") / f"rollbox-test-{os.getpid()}.json"
# A device that no container has unless it is given: what control groups allow by themselves would prove nothing.
ON_MACHINE = "/dev/fuse"
OPENS = "import os, sys; os.close(os.open(sys.argv[1], os.O_RDWR)); print('opened')"


@pytest.fixture(scope="module")
def specification() -> Iterator[str]:
    """Two devices, which are the same node on this machine."""
    devices = [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/rollbox-{name}", "hostPath": ON_MACHINE, "permissions": "rw"}],
                "env": [f"ROLLBOX_TEST_DEVICE={name}"],
                "mounts": [{"hostPath": "/etc/os-release", "containerPath": "/driver/release", "options": ["ro"]}],
            },
        }
        for name in ("one", "two")
    ]
    SPECIFICATION.parent.mkdir(exist_ok=True)
    SPECIFICATION.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}))
    yield KIND
    SPECIFICATION.unlink()


@pytest.fixture
async def up(specification: str) -> AsyncIterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as folder:
        stack = await start(Path(folder), "--gpu-devices", specification)
        yield stack
        assert await stop_process(stack.process) == 0


@pytest.mark.long
async def test_a_command_opens_the_device_of_its_sandbox_and_of_no_other(up: Stack) -> None:
    async with Client(up.url, up.api_key) as client:
        async with await client.create(IMAGE, gpu=1, memory="256Mi") as one:
            told = await one.exec(["python3", "-c", OPENS, "/dev/rollbox-one"], check=True)
            assert told.stdout == "opened\n"
            assert (await one.exec("echo $ROLLBOX_TEST_DEVICE; test -s /driver/release", check=True)).stdout == "one\n"
            assert not (await one.exec("echo > /driver/release")).ok
            assert one.record.gpu == 1
            async with await client.create(IMAGE, gpu=1, memory="256Mi") as two:
                assert (await two.exec(["python3", "-c", OPENS, "/dev/rollbox-two"], check=True)).ok
                assert not (await two.exec(["python3", "-c", OPENS, "/dev/rollbox-one"])).ok
                with pytest.raises(CapacityUnavailable, match="0 of the 2 devices"):
                    await client.create(IMAGE, gpu=1, memory="256Mi", start_timeout=20)
            with pytest.raises(Unsupported, match="more than"):
                await client.create(IMAGE, gpu=3)
            await two.delete(wait=True)
        async with await client.create(IMAGE, memory="256Mi") as none:
            number = Path(ON_MACHINE).stat().st_rdev  # noqa: ASYNC240 - of a device
            forged = f"mknod /tmp/forged c {os.major(number)} {os.minor(number)}"
            assert not (await none.exec(f"{forged}; python3 -c '{OPENS}' /tmp/forged")).ok
            assert not (await none.exec("ls /dev/rollbox-*")).ok


async def test_a_kind_that_there_is_not_is_told_at_the_start(specification: str) -> None:
    del specification
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as folder:
        with pytest.raises(RuntimeError):
            await start(Path(folder), "--gpu-devices", "nobody.example/none")
        assert "no specification" in (Path(folder) / "up.log").read_text()
