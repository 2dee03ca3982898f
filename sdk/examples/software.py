"""A small software-engineering set: real packages as they were released, broken and fixed again with their own tests.

Each task unpacks a package's source distribution (`data/software`, licences inside), runs its test suite, and then for
one bug after another: break, see the tests fail, look for the place, fix, see them pass. That is 20 to 30 turns.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from packages import Bug, Package

from rollbox import ExecResult, LazySandbox

DATA = Path(__file__).parent / "data" / "software"
UNPACK = """
import sys, tarfile, tempfile
folder = tempfile.mkdtemp()
safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz").extractall(folder, **safely)
print(folder, end="")
"""
EDIT = """
import json, pathlib, sys
wish = json.load(sys.stdin)
file = pathlib.Path(wish["file"])
text = file.read_text()
sys.exit(f"{text.count(wish['old'])} places") if text.count(wish["old"]) != 1 else None
file.write_text(text.replace(wish["old"], wish["new"]))
"""


@dataclass
class Workplace:
    """A package in a sandbox, and the turns (commands) that were run there."""

    sandbox: LazySandbox
    package: Package
    root: str = ""
    turns: list[str] = field(default_factory=list)

    async def run(self, turn: str, *argv: str, stdin: bytes | str = b"") -> ExecResult:
        """Take one turn: a command in the package's folder."""
        cwd, env = self.root or None, {"PYTHONPATH": self.package.path, "PYTHONDONTWRITEBYTECODE": "1"}
        result = await self.sandbox.exec(list(argv), cwd=cwd, env=env, stdin=stdin, timeout=120)
        self.turns.append(f"{turn}: {result.exit_code}")
        return result

    async def unpack(self) -> bool:
        """Unpack the package and check that its whole suite passes."""
        archive = (DATA / f"{self.package.archive}.tar.gz").read_bytes()
        made = await self.run("unpack", "python3", "-c", UNPACK, stdin=archive)
        self.root = f"{made.stdout}/{self.package.archive}"
        return made.ok and (await self.run("look", "ls", "-l")).ok and await self.suite_passes()

    async def suite_passes(self) -> bool:
        """Run the whole test suite."""
        return (await self.run("whole suite", "python3", *self.package.suite)).ok

    async def tests_pass(self) -> bool:
        """Run the tests that detect the bugs."""
        return (await self.run("tests", "python3", *self.package.quick)).ok

    async def change(self, turn: str, bug: Bug, old: str, new: str) -> bool:
        """Change one place of a file."""
        wish = json.dumps({"file": bug.file, "old": old, "new": new})
        return (await self.run(turn, "python3", "-c", EDIT, stdin=wish)).ok

    async def search(self, bug: Bug) -> bool:
        """Find the wrong line, as an agent does from the message of a failed test, and read the lines around it."""
        found = await self.run("search", "grep", "-nF", bug.wrong, bug.file)
        line = int(found.stdout.partition(":")[0] or 1)
        return found.ok and (await self.run("read", "sed", "-n", f"{max(1, line - 5)},{line + 5}p", bug.file)).ok


def repairs(package: Package, bugs: int) -> Callable[[LazySandbox], Awaitable[float]]:
    """Make a policy that repairs so many of the bugs; its reward is whether the whole suite passes at the end."""

    async def play(sandbox: LazySandbox) -> float:
        place = Workplace(sandbox, package)
        if not await place.unpack():
            raise RuntimeError(f"{package.archive} does not pass its own tests: {place.turns}")
        for number, bug in enumerate(package.bugs):
            broken = await place.change("break", bug, bug.right, bug.wrong) and not await place.tests_pass()
            if not broken:
                raise RuntimeError(f"the tests did not detect {bug}: {place.turns}")
            fixed = await place.search(bug) and number < bugs and await place.change("fix", bug, bug.wrong, bug.right)
            if not fixed or not await place.tests_pass():
                return 0.0
        return float(await place.suite_passes() and len(place.turns) >= 20)

    return play
