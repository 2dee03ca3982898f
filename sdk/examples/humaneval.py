"""Grade HumanEval: every program in a fresh sandbox of its own, several at once.

    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python sdk/examples/humaneval.py --image python:3.12-slim
    rollbox why --run humaneval-...                # where its time went, also from another machine

The canonical solution of each problem must pass its tests, a mutant of it must fail them; an endless loop must end as
`deadline`, a program that eats memory as `oom_killed`. Exits with 0 when all of that holds and nothing is left behind.
"""

import argparse
import asyncio
import time
import uuid
from pathlib import Path

from mutants import Sample, samples
from report import Graded, Report

from rollbox import Run, Sandbox, SandboxError


async def grade(sample: Sample, image: str) -> Graded:
    """Run one program in a sandbox of its own; a failure that says nothing about the program masks the sample."""
    started = time.perf_counter()
    try:
        async with await Sandbox.create(image, memory="512Mi", ttl=600) as sandbox:
            create_ms = (time.perf_counter() - started) * 1000
            called = time.perf_counter()
            timeout = 2 if sample.kind == "endless" else 60
            result = await sandbox.exec(["python3", "-"], stdin=sample.program, timeout=timeout)
            exec_ms = (time.perf_counter() - called) * 1000
    except SandboxError as error:
        if not error.mask_sample:
            raise
        return Graded(sample, "masked", detail=f"{error.code}: {error.detail}")
    if result.end != "exited":
        return Graded(sample, result.end, result.end, create_ms, exec_ms)
    # A mutant must fail for the right reason: a failed assertion, not a crash.
    failed = "AssertionError" in result.stderr
    outcome = "passed" if result.ok else "failed" if failed else "crashed"
    return Graded(sample, outcome, result.end, create_ms, exec_ms, result.stderr[-300:])


async def main() -> int:
    """Grade everything, report, and say whether it went as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--image", default="python:3.12-slim", help="any image with python3")
    parser.add_argument("--concurrency", type=int, default=8, help="sandboxes at a time")
    parser.add_argument("--limit", type=int, default=164, help="grade only the first problems")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/demo"),
        help="folder of report.json and latency.png, and of the run's report in run/",
    )
    options = parser.parse_args()
    name, slots = f"humaneval-{uuid.uuid4().hex[:8]}", asyncio.Semaphore(options.concurrency)
    todo = samples(options.limit)

    async def one(sample: Sample, report: Report) -> None:
        async with slots:
            report.add(await grade(sample, options.image))

    # Counts what the calls do, labels the sandboxes with its name, and prints and saves what happened.
    async with Run(name, save_to=options.out / "run"):
        with Report(len(todo)) as report:
            async with asyncio.TaskGroup() as group:
                for sample in todo:
                    group.create_task(one(sample, report))
    # The control plane lists what this run has left. `ending` does not count: a delete does not wait for the node.
    there = await Sandbox.list(labels={"rollbox.run": name})
    report.left_behind = sum(one.state != "ending" for one in there)
    report.write(options.out)
    return 0 if report.as_expected() else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
