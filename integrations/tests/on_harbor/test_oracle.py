"""Harbor's own runner over tasks in its format: the oracle solves all, an agent that does nothing solves none."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from on_harbor.trials import IMAGE, PATH
from rollbox import Client

TASKS = Path(__file__).parents[3] / "sdk/examples/data/harbor"
HARBOR = Path(sys.executable).with_name("harbor")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
async def test_an_agent_has_its_reward(
    client: Client, tmp_path: Path, record_property: Callable[[str, object], None], agent: str, reward: float
) -> None:
    arguments = f"build_args={json.dumps({'BASE': IMAGE})}"
    words = ("run", "--path", str(TASKS), "--agent", agent, "--env", PATH, "--ek", arguments, "--ek", "egress=offline")
    program = await asyncio.create_subprocess_exec(
        HARBOR, *words, "--jobs-dir", str(tmp_path), "--n-concurrent", "2", stdout=asyncio.subprocess.PIPE
    )
    told, _ = await program.communicate()
    assert program.returncode == 0, told.decode()[-4000:]
    results = await asyncio.to_thread(lambda: [json.loads(one.read_text()) for one in tmp_path.glob("*/*/result.json")])
    rewards = {one["task_name"]: (one["verifier_result"] or {}).get("rewards") for one in results}
    assert rewards == {f"{task.name}": {"reward": reward} for task in TASKS.iterdir()}, told.decode()[-4000:]
    record_property("cases", len(rewards))
