"""Tasks in Harbor's format, each graded in a fresh sandbox: by their oracle, by doing nothing, and attacked.

    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python sdk/examples/harbor.py --image localhost/rollbox/python:1

The oracle must have the reward 1, all others 0: grading ends what an agent leaves running and leaves out its links to
the tests. That nothing is imported which an agent has planted is what these tasks see to (`python3 -I`, and a process
of its own for code that they judge). Exits with 0 when every reward is as expected.
"""

import argparse
import asyncio
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

from rollbox import Client, Sandbox, Verdict
from rollbox.grading import HARBOR_REWARD_FILES

TASKS = Path(__file__).parent / "data" / "harbor"
# Waits for the tests to come, when its command has long ended, with no mark of that command left.
LEAVES = "env -i setsid sh -c 'while :; do cp /tests/* /app/; done' >/dev/null 2>&1 &"
LINKS = "for name in hello.txt sum.txt total.json errors.txt; do ln -sf /tests/expected /app/$name; done"
PLANTED = "import os\\ntry: open('/logs/verifier/reward.txt', 'w').write('1')\\nfinally: os._exit(0)\\n"
PLANTS = f'for name in sitecustomize conftest json os middle; do printf "{PLANTED}" > /app/$name.py; done'
TARGETS = "rm -r /app; ln -s /tests /app"

Agent = Callable[[Sandbox, Path], Awaitable[None]]


def running(command: str) -> Agent:
    """An agent that runs one command."""

    async def act(sandbox: Sandbox, task: Path) -> None:
        await sandbox.exec(command)

    return act


async def oracle(sandbox: Sandbox, task: Path) -> None:
    """Solve the task as its author does."""
    await sandbox.files.upload_dir(task / "solution", "/solution")
    await sandbox.exec(["bash", "/solution/solve.sh"], check=True, timeout=60)


AGENTS: dict[str, tuple[Agent, float]] = {
    "oracle": (oracle, 1.0),
    "does nothing": (running("true"), 0.0),
    "leaves a process": (running(LEAVES), 0.0),
    "links to the tests": (running(LINKS), 0.0),
    "plants modules": (running(PLANTS), 0.0),
    "puts a link in place of all": (running(TARGETS), 0.0),
}


async def built(task: Path, base: str) -> str:
    """The image of a task's Dockerfile; of the same content it is built once."""
    async with Client() as client:
        return await client.build(task / "environment", args={"BASE": base})


async def graded(image: str, task: Path, agent: Agent, *, has_files: bool) -> Verdict:
    """One agent at one task, whose files are in its image or come as its Dockerfile would copy them."""
    settings = tomllib.loads((task / "task.toml").read_text())
    memory = f"{settings['environment']['memory']}i"
    async with await Sandbox.create(image, memory=memory, ttl=600) as sandbox:
        if not has_files:
            await sandbox.files.upload_dir(task / "environment" / "app", "/app")
        await agent(sandbox, task)
        return await sandbox.grade(
            image,
            take=settings["artifacts"],
            run=["bash", "/tests/test.sh"],
            files={"/tests": task / "tests"},
            reward_files=HARBOR_REWARD_FILES,
            timeout=settings["verifier"]["timeout_sec"],
            memory=memory,
        )


async def main() -> int:
    """Grade all agents at all tasks, some at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="localhost/rollbox/python:1", help="with Python, for all tasks")
    parser.add_argument("--build", action="store_true", help="build each task's Dockerfile, from that image")
    parser.add_argument("--agent", action="append", choices=AGENTS, help="only this one; may be repeated")
    parser.add_argument("--at-once", type=int, default=4, help="how many are graded at a time")
    options = parser.parse_args()
    slots = asyncio.Semaphore(options.at_once)
    wrong = 0

    async def one(task: Path, name: str) -> float | None:
        async with slots:
            image = await built(task, options.image) if options.build else options.image
            return (await graded(image, task, AGENTS[name][0], has_files=options.build)).reward

    for name in options.agent or AGENTS:
        expected = AGENTS[name][1]
        tasks = sorted(path.parent for path in TASKS.glob("*/task.toml"))
        rewards = await asyncio.gather(*(one(task, name) for task in tasks))
        off = [task.name for task, reward in zip(tasks, rewards, strict=True) if reward != expected]
        wrong += len(off)
        told = f", not in {', '.join(off)}" if off else ""
        print(f"{name}: reward {expected:g} in {len(tasks) - len(off)} of {len(tasks)} tasks{told}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
