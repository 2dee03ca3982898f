"""Tasks in the manner of SWE-bench by mini-swe-agent: a repository with a bug, and a patch as the answer.

    pip install "rollbox-integrations[mini-swe-agent]"
    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python integrations/examples/mini_swe_agent_software.py localhost/rollbox/swe:1

The packages and their bugs are those of `sdk/examples/software.py`, the model's answers are a script. A patch is
graded in a fresh sandbox: the tests that detect the bug pass with it, and so does the whole suite. It prints how many
tasks are resolved by an agent that mends the line, how many by one that submits nothing, and whose fault it is where a
sandbox was lost. With another model in place of the script it asks that.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output

import rollbox.sync
from rollbox_integrations.mini_swe_agent import RollboxEnvironment, SandboxUnavailable

sys.path.insert(0, str(Path(__file__).parents[2] / "sdk/examples"))

from packages import PACKAGES, Bug, Package
from software import DATA, EDIT

REPOSITORY = "/testbed"
UNPACK = f"mkdir {REPOSITORY} && tar -xz --strip-components=1 -C {REPOSITORY}"
COMMIT = f"""
cd {REPOSITORY} && git init -q . && git config user.name rollbox && git config user.email rollbox@example.com
git add -A && git commit -q -m 'as it was reported'
"""
# An agent's commands have no folder in common: each goes where it works, as mini-swe-agent tells its model.
SUBMIT = f"""
cd {REPOSITORY} && git add -A && git diff --cached > /tmp/patch
echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat /tmp/patch
"""
TEXTS = {"system_template": "You mend software.", "instance_template": "{{task}}"}


class Task(NamedTuple):
    """A package with one of its bugs."""

    package: Package
    bug: Bug

    def edit(self, old: str, new: str) -> str:
        """A line of a shell that changes one place of the file."""
        wish = json.dumps({"file": self.bug.file, "old": old, "new": new})
        return f"cd {REPOSITORY} && printf %s {shlex.quote(wish)} | python3 -c {shlex.quote(EDIT)}"

    def tests(self) -> tuple[str, str]:
        """Those that detect the bug, and the whole suite, as lines of a shell."""
        quick, suite = (shlex.join(["python3", *words]) for words in (self.package.quick, self.package.suite))
        return f"cd {REPOSITORY} && {quick}", f"cd {REPOSITORY} && {suite}"


@contextmanager
def repository(image: str, task: Task) -> Iterator[tuple[RollboxEnvironment, rollbox.sync.Sandbox]]:
    """A sandbox with the repository of a task, while the block runs."""
    variables = {"PYTHONPATH": f"{REPOSITORY}/{task.package.path}", "PYTHONDONTWRITEBYTECODE": "1"}
    box = RollboxEnvironment(image=image, env=variables, timeout=120, memory="512Mi", egress="offline")
    try:
        sandbox = box.sandbox
        assert sandbox is not None
        sandbox.exec(UNPACK, stdin=(DATA / f"{task.package.archive}.tar.gz").read_bytes(), check=True)
        sandbox.exec(f"{task.edit(task.bug.right, task.bug.wrong)} && {COMMIT}", check=True)
        yield box, sandbox
    finally:
        box.cleanup()


def answers(task: Task) -> tuple[str, ...]:
    """What a model that finds the bug answers: it looks, mends, tests and submits."""
    look = f"cd {REPOSITORY} && grep -nF {shlex.quote(task.bug.wrong)} {task.bug.file}"
    return look, task.edit(task.bug.wrong, task.bug.right), task.tests()[0], SUBMIT


def submitted(image: str, task: Task, commands: tuple[str, ...]) -> str:
    """The patch of an agent whose model answers with these commands."""
    # By default an answer of a script counts as a dollar, and an agent has three.
    outputs = [make_output(command, [{"command": command}], cost=0.0) for command in commands]
    with repository(image, task) as (box, _):
        told = DefaultAgent(DeterministicModel(outputs=outputs), box, **TEXTS).run(f"Mend {task.package.archive}.")
    return str(told["submission"])


def resolves(image: str, task: Task, patch: str) -> bool:
    """Whether the repository with this patch passes its tests."""
    with repository(image, task) as (_, sandbox):
        if patch:
            sandbox.exec("git apply", stdin=patch, cwd=REPOSITORY, check=True)
        return all(sandbox.exec(line, timeout=120).ok for line in task.tests())


def resolved(image: str, task: Task, *, mends: bool) -> bool:
    """Whether an agent resolves a task; that of a lost sandbox is told, and no answer of the agent's."""
    try:
        return resolves(image, task, submitted(image, task, answers(task) if mends else (SUBMIT,)))
    except SandboxUnavailable as error:
        print(error)
        return False


def main(image: str, each: int = 3) -> None:
    """Run so many tasks of each package, two at a time."""
    tasks = [Task(package, bug) for package in PACKAGES for bug in package.bugs[:each]]
    with ThreadPoolExecutor(2) as pool:
        for who, mends in (("a scripted solution", True), ("an empty patch", False)):
            results = list(pool.map(partial(resolved, image, mends=mends), tasks))
            print(f"{results.count(True)} of {len(results)} resolved by {who}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
