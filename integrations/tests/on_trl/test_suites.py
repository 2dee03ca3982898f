"""A suite of tasks in rollouts with scripted tools, and what environments take and leave."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trl.experimental.harbor import HarborBashEnv

from on_trl.rollouts import LABELS, TASKS, rollout, sandbox_of, solution, spec, task, tools
from rollbox import Client
from rollbox_integrations.trl import RollboxBashEnv, RollboxHarborEnv, RollboxHarborSpec

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from on_trl.rollouts import sandbox_of, spec
made = spec(Path(sys.argv[1]))
env = made.environment_factory()
env.reset(**made.train_dataset[0])
print(sandbox_of(env), flush=True)
"""


@pytest.mark.timeout(600)
def test_solved_tasks_have_their_reward_and_untouched_ones_have_none(
    client: Client, record_property: Callable[[str, object], None]
) -> None:
    made = spec()
    rows: list[dict[str, Any]] = list(made.train_dataset)
    envs: list[Any] = [made.environment_factory() for _ in rows]
    try:
        # A trainer resets its environments one after the other, and the same ones for each batch.
        for solved in (True, False):
            told = [env.reset(**row) for env, row in zip(envs, rows, strict=True)]
            assert all(
                text.startswith(Path(row["task_dir"], "instruction.md").read_text()[:20])
                for text, row in zip(told, rows, strict=True)
            )
            for env, row in zip(envs, rows, strict=True):
                tools(env)["bash"](solution(row) if solved else "true")
            assert [env.get_reward() for env in envs] == [float(solved)] * len(rows)
            assert [env.fault for env in envs] == [None] * len(rows)
    finally:
        for env in envs:
            env._run(env._stop())
    assert len(rows) == len(list(TASKS.iterdir())) == 10
    record_property("cases", 2 * len(rows))


def test_a_tool_is_what_trl_has(client: Client, tmp_path: Path) -> None:
    with rollout(task(tmp_path)) as env:
        bash = tools(env)["bash"]
        assert list(tools(env)) == ["bash"]
        assert bash.__doc__ == HarborBashEnv.bash.__doc__
        assert bash("echo out; echo err >&2") == "out\nerr\n"
        assert bash("exit 3") == "(empty output, rc=3)"
        assert bash("head -c 9000 /dev/zero | tr '\\0' x").endswith("x\n... [truncated]")


def test_environments_share_a_thread() -> None:
    envs = [spec().environment_factory() for _ in range(64)]
    assert len({env._loop_thread for env in envs}) == 1
    assert [one.name for one in threading.enumerate() if "run_forever" in one.name] == []


def test_a_factory_goes_to_another_process() -> None:
    env = pickle.loads(pickle.dumps(spec(labels={"run": "7"}).environment_factory))()
    assert type(env) is RollboxBashEnv
    assert env._options["labels"] == {"run": "7"}


async def test_a_collected_environment_leaves_nothing(client: Client, tmp_path: Path) -> None:
    made = spec(task(tmp_path))
    env: Any = made.environment_factory()
    await asyncio.to_thread(env.reset, **made.train_dataset[0])
    await asyncio.to_thread(sandbox_of, env)
    del env
    gc.collect()
    while [one for one in await client.list(LABELS) if one.state == "running"]:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


async def test_the_end_of_a_program_leaves_nothing(client: Client, tmp_path: Path) -> None:
    words = (PROGRAM, str(task(tmp_path)), str(Path(__file__).parents[1]))
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", *words, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await program.communicate()
    assert program.returncode == 0
    assert (await client.get(told.decode().split()[-1])).state in ("ending", "ended")


def test_what_is_no_setting_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no_such_option"):
        spec(no_such_option=1)
    with pytest.raises(TypeError, match="HarborBashEnv is no RollboxHarborEnv"):
        spec(agent="bash")
    with pytest.raises(ValueError, match="'docker': this environment is of type 'rollbox'"):
        RollboxHarborEnv("docker")
    with pytest.raises(ValueError, match="not both"):
        RollboxHarborSpec(str(TASKS), num_tasks=1, indices=[1])
    env = RollboxBashEnv()
    assert env.get_reward() == 0.0
    with pytest.raises(RuntimeError, match="was not reset"):
        env.bash("true")
    with pytest.raises(ValueError, match="task_dir"):
        env.reset()


def test_a_harness_of_its_own_has_its_preparation(client: Client, tmp_path: Path) -> None:
    class Prepared(RollboxHarborEnv):
        PROMPT_SUFFIX = " Be quick."

        async def _setup(self) -> None:
            await self._env.exec("echo prepared > /workdir/note")

        def note(self) -> str:
            """Read the note."""
            return self._exec("cat /workdir/note")

    with rollout(task(tmp_path), agent=Prepared) as env:
        assert [tool() for tool in tools(env).values()] == ["prepared\n"]
        assert env.reset(task_dir=str(tmp_path / "suite/task")).endswith(" Be quick.")
