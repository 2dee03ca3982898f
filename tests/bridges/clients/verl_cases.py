"""What verl's reward function over SandboxFusion sees; prints a line of JSON for each case.

The module runs as it is published. The packages above it have names alone: what verl imports there is a trainer.
"""

import importlib.util
import json
import os
import sys
import threading
import types
from pathlib import Path

PACKAGE = Path(importlib.util.find_spec("verl").origin).parent
for name in ("verl", "verl.utils", "verl.utils.reward_score"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(PACKAGE.parent.joinpath(*name.split(".")))]

from verl.utils.reward_score.sandbox_fusion import compute_score  # noqa: E402
from verl.utils.reward_score.sandbox_fusion.utils import check_correctness  # noqa: E402

URL = os.environ["SANDBOX_URL"]
# Of programs that end by themselves, however busy the machine is.
PATIENT_S = 60
SUM = "print(sum(map(int, input().split())))"


def score(code, tests, url=URL, **options):
    at_once = threading.Semaphore(8)
    return compute_score(url, at_once, 1024, f"```python\n{code}\n```", tests, timeout=PATIENT_S, **options)


def right():
    return score(SUM, {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]})[0]


def half_right():
    got, told = score(SUM, {"inputs": ["1 2", "3 4"], "outputs": ["3", "8"]}, continuous=True)
    return [got, [one["status"] for one in told]]


def function():
    code = "class Solution:\n    def twice(self, n):\n        return n * 2"
    return score(code, {"inputs": ["4", "5"], "outputs": ["8", "10"], "fn_name": "twice"})[0]


def asserts():
    return score("def f(x): return x + 1", {"assert_case": ["assert f(1) == 2", "assert f(1) == 3"]})[0]


def codes():
    """True, False, and the numbers by which verl tells what was wrong."""
    found = {}
    for name, code in {
        "right": "print(1)",
        "wrong": "print(2)",
        "raises": "1 / 0",
        "hangs": "while True: pass",
    }.items():
        found[name] = check_correctness(
            URL, {"inputs": [None], "outputs": ["1"]}, code, timeout=2 if name == "hangs" else PATIENT_S
        )[0]
    return found


def does_not_compile():
    """A language that the bridge has no image for is no score of the program: -1, not -4."""
    results, told = check_correctness(URL, {"inputs": [None], "outputs": ["1"]}, "int main(){}", language="swift")
    return [results, told[0]["status"], "422" in told[0]["api_request_error"]]


def memory():
    tests = {"inputs": [None], "outputs": ["1"]}
    results, told = check_correctness(
        URL, tests, "x = bytearray(400 * 2**20)\nprint(1)", PATIENT_S, memory_limit_mb=128
    )
    return [results, told[0]["exit_code"] != 0]


def wrong_key():
    results, told = check_correctness(URL.replace(":rbx_", ":no_"), {"inputs": [None], "outputs": ["1"]}, "print(1)")
    return [results, "401" in told[0]["api_request_error"]]


def many():
    numbers = [str(n) for n in range(40)]
    return score("print(input())", {"inputs": numbers, "outputs": numbers})[0]


for case in (right, half_right, function, asserts, codes, does_not_compile, memory, wrong_key, many):
    try:
        line = {"case": case.__name__, "saw": case()}
    except Exception as error:
        line = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
    print(json.dumps(line), flush=True)
