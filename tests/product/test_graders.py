"""Graders as the field writes them say the same of the same programs on both backends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, Sandbox
from tests.support.images import runtime_image

GRADERS = Path(__file__).parents[1] / "support" / "graders"
FUNCTIONS = {
    "right": "passed",
    "wrong": "failed: AssertionError",
    "raises": "failed: ZeroDivisionError",
    "no syntax": "failed: SyntaxError",
    "endless": "timed out",
    "asleep": "timed out",
    "swallows its timer": "timed out",
    "reads": "failed: OSError",
    "exits": "failed: SystemExit",
    "exits at once": "timed out",
    "too large": "failed: MemoryError",
    "too deep": "failed: RecursionError",
    "kills its parent": "failed: TypeError",
    "starts programs": "failed: TypeError",
    "removes files": "failed: TypeError",
    "limits itself": "failed: ModuleNotFoundError",
    "threads": "passed",
    "prints much": "passed",
}
INPUTS = {
    "input": [True, True, True],
    "lines": [True, True, True],
    "buffer": [True, True, True],
    "wrong": [False, False, True],
    "raises": [False, True, -4],
    "endless": [-3, True, -3],
    "swallows its alarm": [-3, -3, -3],
    "exits": [True, True, True],
    "deep": [True, True, True],
}
JUDGED = {
    "right": "right",
    "wrong": "wrong: 7",
    "endless": "SIGXCPU",
    "asleep": "too late",
    "too large": "status 1",
    "too long": "SIGXFSZ",
    "too many processes": "right",
    "too many files": "status 1",
    "deep": "right",
    "crashes": "SIGSEGV",
    "aborts": "SIGABRT",
    "another status": "status 3",
    "limits itself no more": "status 1",
    "kills": "right",
    "is somebody else": "right",
    "becomes root": "status 1",
}


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["functions", "1024"], FUNCTIONS),
        (["inputs"], INPUTS),
        (["judged"], JUDGED),
    ],
    ids=["functions", "inputs", "judged"],
)
async def test_a_grader_gives_its_verdicts(shared: Sandbox, command: list[str], wanted: dict[str, Any]) -> None:
    name, *arguments = command
    await shared.files.upload_dir(GRADERS, "/opt/tests/graders")
    ran = await shared.exec(["python3", "-m", f"graders.{name}", *arguments], cwd="/opt/tests", timeout=200, check=True)
    assert json.loads(ran.stdout) == wanted


# As the harnesses of software tasks make theirs: the tests as they are to be, the run, markers around its output.
EVALUATION = """\
set -uxo pipefail
cd /testbed
git config --global --add safe.directory /testbed
git status
git checkout {base} test_it.py
git apply -v - <<'EOF_TESTS'
{tests}
EOF_TESTS
: '>>>>> Start Test Output'
python3 -m pytest -rA -p no:cacheprovider test_it.py
: '>>>>> End Test Output'
git checkout {base} test_it.py
"""
CODE = "def area(width, height):\n    return width + height\n"
TESTS = "from code_of import area\n\n\ndef test_square():\n    assert area(2, 2) == 4\n"
NEW_TESTS = """\
--- a/test_it.py
+++ b/test_it.py
@@ -3,3 +3,7 @@

 def test_square():
     assert area(2, 2) == 4
+
+
+def test_oblong():
+    assert area(2, 3) == 6"""
PATCH = """\
diff --git a/code_of.py b/code_of.py
--- a/code_of.py
+++ b/code_of.py
@@ -1,2 +1,2 @@
 def area(width, height):
-    return width + height
+    return {to}
"""
SQUARE, OBLONG = "test_it.py::test_square", "test_it.py::test_oblong"


async def evaluated(sandbox: Sandbox, patch: str, base: str) -> dict[str, str] | str:
    """What becomes of one patch: the status of each test, or why there is none."""
    await sandbox.exec("git reset --hard -q && git clean -fdq", cwd="/testbed", check=True)
    await sandbox.files.write("/work/patch.diff", patch)
    await sandbox.files.write("/work/eval.sh", EVALUATION.format(base=base, tests=NEW_TESTS))
    ways = (
        "git apply --verbose /work/patch.diff",
        "git apply --verbose --reject /work/patch.diff",
        "patch --batch --fuzz=5 -p1 -i /work/patch.diff",
    )
    for way in ways:
        if (await sandbox.exec(way, cwd="/testbed")).ok:
            break
    else:
        return "patch apply failed"
    ran = await sandbox.exec("timeout --signal=KILL 45 bash /work/eval.sh > /work/log.txt 2>&1", timeout=120)
    if ran.exit_code == 137:
        return "tests timed out"
    log = await sandbox.files.read_text("/work/log.txt")
    part = log.partition(">>>>> Start Test Output")[2].partition(">>>>> End Test Output")[0]
    words = (line.split()[:2] for line in part.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR")))
    return {name: status for status, name in words}


@pytest.mark.long
async def test_patches_are_graded_by_a_repositorys_tests(client: Client) -> None:
    async with await client.create(runtime_image("swe"), memory="512Mi") as sandbox:
        await sandbox.files.write("/testbed/code_of.py", CODE)
        await sandbox.files.write("/testbed/test_it.py", TESTS)
        made = "git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm base && git rev-parse HEAD"
        base = (await sandbox.exec(made, cwd="/testbed", check=True)).stdout.strip()
        found = {
            to: await evaluated(sandbox, PATCH.format(to=to), base)
            for to in ("width * height", "width ** 2", "exit(0)", "next(n for n in iter(int, 1) if n)")
        }
        other = PATCH.replace("return width + height", "return width")
        found["another file"] = await evaluated(sandbox, other.format(to="0"), base)
    assert found == {
        "width * height": {SQUARE: "PASSED", OBLONG: "PASSED"},
        "width ** 2": {SQUARE: "PASSED", OBLONG: "FAILED"},
        "exit(0)": {SQUARE: "FAILED", OBLONG: "FAILED"},
        "next(n for n in iter(int, 1) if n)": "tests timed out",
        "another file": "patch apply failed",
    }
