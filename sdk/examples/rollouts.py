"""A trainer's rollout loop: groups, lazy sandboxes, continuous batching, masks, pruning. No model, no GPU.

    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python sdk/examples/rollouts.py --image python:3.12-slim --set humaneval
    python sdk/examples/rollouts.py --image python:3.12-slim --set software

Scripted policies stand in for the model. Each task is a group of samples, one for each policy; a sandbox starts with
the first tool call of its sample. A sample whose failure says nothing about it is masked: it counts neither as right
nor as wrong. Once a group has enough scores, its remaining samples are pruned (cancelled). Exits with 0 when every
reward is as expected and no sandbox is left.
"""

import argparse
import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tasks import Task, humaneval_tasks, software_tasks

from rollbox import Batch, LazySandbox, Outcome, Sandbox, SandboxGroup

# With so many scores, good and bad ones among them, a group has a gradient: more samples would be a waste.
ENOUGH = 3


@dataclass(frozen=True)
class Sample:
    """One rollout to make."""

    task: Task
    number: int
    sandbox: LazySandbox


@dataclass
class Tally:
    """The results of all rollouts."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome[Sample, float]) -> None:
        """Count one; a masked sample has no score."""
        sample = outcome.sample
        self.counts["rollouts"] += 1
        self.counts["never_started"] += not sample.sandbox.started
        if outcome.masked:
            self.counts["masked"] += 1
            return
        # An error that is not masked was caused by the sample, like a wrong answer.
        score = 0.0 if outcome.value is None else outcome.value
        self.counts["not_as_expected"] += score != sample.task.policies[sample.number][1]
        self.scores.setdefault(sample.task.name, []).append(score)

    def decided(self, task: Task) -> bool:
        """Whether a group has enough to learn from."""
        scores = self.scores.get(task.name, [])
        return len(scores) >= ENOUGH and len(set(scores)) > 1

    def advantages(self) -> list[float]:
        """Return what a policy gradient would use: each score against the mean of its group."""
        return [score - sum(group) / len(group) for group in self.scores.values() for score in group]


def supply(tasks: list[Task], tally: Tally, image: str, run: str) -> Iterator[Sample]:
    """Yield the samples group by group, as slots become free; no more of a decided group."""
    for task in tasks:
        group = SandboxGroup.lazy(
            image, n=len(task.policies), name=f"{run}-{task.name}", memory="512Mi", ttl=1800, labels={"run": run}
        )
        for number, sandbox in group.items():
            if not tally.decided(task):
                yield Sample(task, number, sandbox)


async def rollout(sample: Sample) -> float:
    """Play one sample; leaving the sandbox, also by being pruned, kills what runs in it."""
    async with sample.sandbox as sandbox:
        return await sample.task.policies[sample.number][0](sandbox)


async def collect(tasks: list[Task], image: str, run: str, in_flight: int) -> Tally:
    """Roll everything out."""
    tally = Tally()
    async with Batch(supply(tasks, tally, image, run), rollout, in_flight=in_flight) as batch:
        async for outcome in batch:
            tally.add(outcome)
            task = outcome.sample.task
            if tally.decided(task):
                tally.counts["pruned"] += batch.cancel(lambda sample, task=task: sample.task is task)  # type: ignore[misc]
    return tally


async def main() -> int:
    """Roll out, report, and say whether it went as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--image", default="python:3.12-slim", help="any image with python3 and the usual tools")
    parser.add_argument("--set", choices=("humaneval", "software"), default="humaneval")
    parser.add_argument("--in-flight", type=int, default=8, help="rollouts at a time")
    parser.add_argument("--limit", type=int, default=20, help="only the first tasks")
    options = parser.parse_args()
    tasks = (humaneval_tasks if options.set == "humaneval" else software_tasks)(options.limit)
    run = f"rollouts-{uuid.uuid4().hex[:8]}"
    tally = await collect(tasks, options.image, run, options.in_flight)
    # The control plane lists what this run has left. Sandboxes that were pruned last may still be ending.
    ever = await Sandbox.list(labels={"run": run}, all=True)
    left = [one for one in ever if one.state not in ("ending", "ended")]
    advantages = tally.advantages()
    told = {"tasks": len(tasks), **tally.counts, "sandboxes": len(ever), "left_behind": len(left)}
    print(json.dumps({**told, "scored": len(advantages), "sum_of_advantages": round(sum(advantages), 6)}))
    return 0 if not left and not tally.counts["not_as_expected"] and not tally.counts["masked"] else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
