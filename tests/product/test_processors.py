"""Programs are told how many processors their sandbox may use, where neither image nor user says so."""

from __future__ import annotations

import pytest

from rollbox import Client, Sandbox
from tests.support.images import IMAGE

COUNTS = ("OMP_NUM_THREADS", "PYTHON_CPU_COUNT", "LOKY_MAX_CPU_COUNT", "PYTEST_XDIST_AUTO_NUM_WORKERS")
MACHINE = ["python3", "-c", "import os; print(len(os.sched_getaffinity(0)))"]


async def environ(sandbox: Sandbox, **options: str) -> dict[str, str]:
    """The variables of a command."""
    lines = (await sandbox.exec(["env"], env=options, check=True)).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize(("cpu", "most"), [(0.3, 1), ((0.01, 1), 1), ((0.1, 2), 2), ((0.1, 1.5), 2)])
async def test_a_limit_is_told_rounded_up_and_as_far_as_the_machine_has_it(
    client: Client, cpu: float | tuple[float, float], most: int
) -> None:
    async with await client.create(IMAGE, cpu=cpu, memory="128Mi") as sandbox:
        machine = int((await sandbox.exec(MACHINE, check=True)).stdout)
        found = await environ(sandbox)
        assert {name: found.get(name) for name in COUNTS} == dict.fromkeys(COUNTS, str(min(most, machine)))
        assert found["GOMAXPROCS"] == str(min(max(most, 2), machine))
        assert (await sandbox.exec("nproc", check=True)).stdout == f"{min(most, machine)}\n"


async def test_what_a_user_says_wins(client: Client) -> None:
    async with await client.create(IMAGE, cpu=(0.01, 1), memory="128Mi", env={"OMP_NUM_THREADS": "7"}) as sandbox:
        found = await environ(sandbox, GOMAXPROCS="9")
        said = {name: found[name] for name in ("OMP_NUM_THREADS", "GOMAXPROCS", "LOKY_MAX_CPU_COUNT")}
        assert said == {"OMP_NUM_THREADS": "7", "GOMAXPROCS": "9", "LOKY_MAX_CPU_COUNT": "1"}
        assert (await sandbox.exec("nproc", check=True)).stdout == "7\n"
