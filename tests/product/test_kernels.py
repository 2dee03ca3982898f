"""Interpreters by the ipykernel of the image: the same answers by the same calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from rollbox import Sandbox
from rollbox.errors import InvalidArgument
from rollbox.interpreter.cell import Cell, CellOutput, CellResult
from tests.product.test_frameworks import image
from tests.product.test_interpreters import Case, checked
from tests.support.product import Kept, keeping
from tests.support.stack import Product

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def kept(stack: Product) -> Iterator[Kept]:
    yield from keeping(stack, image=image(), memory="2Gi")


JUPYTER: list[Case] = [
    Case("6 * 7", {"text": "42"}),
    Case("6 * 7;", {"text": None}),
    Case("1 +", {"end": "finished"}, error="SyntaxError"),
    Case("1 / 0", {"end": "finished"}, error="ZeroDivisionError"),
    Case("import sys; sys.exit(3)", {"end": "finished"}, error="SystemExit"),
    Case("raise KeyboardInterrupt", {"end": "interrupted"}, error="KeyboardInterrupt"),
    Case("input('name? ')", {"end": "finished"}, error="StdinNotImplementedError"),
    Case("import asyncio\nawait asyncio.sleep(0.001)\n5", {"text": "5"}),
    Case("!echo from a shell", {"stdout": "from a shell\r\n"}),
    Case("%%bash\necho from bash >&2", {"stderr": "from bash\n"}),
    Case("%cd -q /usr\n%pwd", {"text": "'/usr'"}),
    Case("import sys; print('o'); print('e', file=sys.stderr)", {"stdout": "o\n", "stderr": "e\n"}),
    Case(
        "for _ in range(3000): print('y' * 1000)",
        {"stdout_total_bytes": 3_003_000, "stdout_truncated": True, "stdout_bytes": (b"y" * 1000 + b"\n") * 99},
    ),
    Case("import pandas\npandas.DataFrame({'a': [1]})", {"text": "   a\n0  1"}),
    Case("while True: pass", {"end": "deadline"}, error="KeyboardInterrupt", timeout=1),
    Case("import time\ntime.sleep(600)", {"end": "deadline"}, error="KeyboardInterrupt", timeout=0.01),
    Case("import asyncio\nawait asyncio.sleep(600)", {"end": "deadline"}, error="KeyboardInterrupt", timeout=1),
    Case("import os\nos.system('sleep 600')", {"end": "deadline"}, timeout=1),
    Case("while True: print('endless')", {"end": "deadline", "stdout_truncated": True}, timeout=2),
]
JUPYTER_DIES: list[Case] = [
    Case("import os; os._exit(3)", {"end": "died", "reason": "the interpreter exited with code 3"}),
    Case("quit()", {"end": "died", "reason": "the interpreter exited with code 0"}),
    Case("import os; os.kill(os.getpid(), 9)", {"end": "died", "reason": "the interpreter was killed by SIGKILL"}),
    Case("import ctypes; ctypes.string_at(0)", {"end": "died", "reason": "the interpreter was killed by SIGSEGV"}),
    Case(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        {"end": "deadline", "reason": "it ignored its interrupt, and was killed"},
        timeout=1,
    ),
]


async def test_what_a_cell_of_a_jupyter_kernel_may_do(shared: Sandbox) -> None:
    async with await shared.interpreter(kernel="jupyter", max_output_bytes=100_000) as python:
        await python.run("kept = 'kept'")
        for case in JUPYTER:
            checked(case, await python.run(case.code, timeout=case.timeout or 120))
            after = await python.run("print(kept)\nkept", timeout=60)
            assert (after.stdout, after.text, after.end) == ("kept\n", "'kept'", "finished"), (case.code, after)


@pytest.mark.parametrize("case", JUPYTER_DIES, ids=lambda case: case.code[:40])
async def test_what_a_jupyter_kernel_dies_of(shared: Sandbox, case: Case) -> None:
    async with await shared.interpreter(kernel="jupyter") as python:
        await python.run("kept = 1")
        cell = await python.run(case.code, timeout=case.timeout or 60)
        checked(case, cell)
        assert cell.variables_lost, cell
        after = await python.run("'kept' in globals()")
        assert (after.text, after.restarted, after.execution_count) == ("False", True, 1)
    listed = await shared.exec("pgrep -f ipykernel_launche[r] || ls -d /tmp/jupyter-*")
    assert listed.stdout == "", "nothing of a kernel stays"


async def test_results_streams_interrupts_and_variables_of_a_jupyter_kernel(shared: Sandbox) -> None:
    async with await shared.interpreter(kernel="jupyter", cwd="/tmp", env={"GIVEN": "yes"}) as python:
        assert (await python.run("import os\nos.getcwd(), os.environ['GIVEN']")).text == "('/tmp', 'yes')"
        shown = await python.run("from IPython.display import *\ndisplay(SVG('<svg/>'), JSON({'a': 1}))\nHTML('<b>')")
        assert [one.main for one in shown.results] == [False, False, True]
        assert (shown.results[0].svg, shown.results[1].json, shown.results[2].html) == ("<svg/>", {"a": 1}, "<b>")
        code = "import time\nprint('first', flush=True)\ndisplay('shown')\ntime.sleep(600)"
        seen: list[Any] = []
        async with aclosing(python.stream(code)) as events:
            async for event in events:
                seen.append(event)
                if isinstance(event, CellResult):
                    await python.interrupt()
        assert (seen[0], type(seen[-1]), seen[-1].end) == (CellOutput("stdout", b"first\n"), Cell, "interrupted")
        await python.run("a, _hidden = [1, 2], 3")
        assert ("a", "list", "[1, 2]") in await python.variables()
        counted = "n = globals().get('n', 0) + 1\nprint(n)\nn"
        one, again = [await python.run(counted, cell_id="once") for _ in range(2)]
        assert (one.text, one.stdout, again.text, again.stdout) == ("1", "1\n", "1", "1\n")
        await python.restart()
        assert await python.variables() == []


async def test_a_jupyter_kernel_that_the_image_has_not(shared: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match="no ipykernel") as missing:
        await shared.interpreter(kernel="jupyter", env={"PYTHONPATH": ""})
    assert "pip install ipykernel" in missing.value.hint
    with pytest.raises(InvalidArgument, match="no kernel 'other'"):
        await shared.interpreter(kernel="other")  # type: ignore[arg-type]
