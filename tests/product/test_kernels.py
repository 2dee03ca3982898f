"""Interpreters by the ipykernel and the Node of the image: the same answers by the same calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from rollbox import Sandbox
from rollbox.errors import InvalidArgument
from rollbox.interpreter.cell import Cell, CellOutput, CellResult
from tests.product.test_interpreters import Case, checked
from tests.support.images import frameworks_image
from tests.support.product import Kept, keeping
from tests.support.stack import Product

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def kept(stack: Product) -> Iterator[Kept]:
    yield from keeping(stack, image=frameworks_image(), memory="2Gi")


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


INTERRUPTED = "ERR_SCRIPT_EXECUTION_INTERRUPTED"
NODE: list[Case] = [
    Case("6 * 7", {"text": "42"}),
    Case("const a = 1; let b = 2\na + b", {"text": "3"}),
    Case("undefined", {"text": None}),
    Case("({a: 1})", {"text": "{ a: 1 }"}),
    Case("1 +", {"end": "finished"}, error="SyntaxError"),
    Case("throw new RangeError('bad')", {"end": "finished"}, error="RangeError"),
    Case("throw 5", {"end": "finished"}, error="Thrown"),
    Case("null.a", {"end": "finished"}, error="TypeError"),
    Case("await new Promise(go => setTimeout(go, 5)); 5", {"text": "5"}),
    Case("(await import('fs')).existsSync('/')", {"text": "true"}),
    Case("require('os').EOL", {"text": "'\\n'"}),
    Case("console.log('o'); console.error('e')", {"stdout": "o\n", "stderr": "e\n", "text": None}),
    Case("require('child_process').execSync('echo s; echo e >&2').toString()", {"text": "'s\\n'", "stderr": "e\n"}),
    Case("child_process.execSync('echo s', {stdio: 'inherit'})", {"stdout": "s\n", "text": "null"}),
    Case("child_process.spawnSync('echo', ['s'], {stdio: 'inherit'}).status", {"stdout": "s\n", "text": "0"}),
    Case(
        "const c = child_process.spawn('echo', ['s'], {stdio: 'inherit'})\nawait new Promise(go => c.on('close', go))",
        {"stdout": "s\n", "text": "0"},
    ),
    Case("process.stdin.read()", {"text": "null"}),
    Case("process.stdout.write = null; 1", {"text": "1"}),
    Case("setTimeout(() => { throw new Error('later') }, 1)\nawait new Promise(go => setTimeout(go, 100))", {}),
    Case(
        "for (let n = 0; n < 3000; n++) console.log('y'.repeat(1000))",
        {"stdout_total_bytes": 3_003_000, "stdout_truncated": True, "stdout_bytes": (b"y" * 1000 + b"\n") * 99},
    ),
    Case("while (true) {}", {"end": "deadline"}, error=INTERRUPTED, timeout=1),
    Case("await new Promise(() => {})", {"end": "deadline"}, error=INTERRUPTED, timeout=1),
    Case("child_process.execSync('sleep 600')", {"end": "deadline"}, timeout=1),
    Case("for (;;) console.log('endless')", {"end": "deadline", "stdout_truncated": True}, timeout=3),
]
NODE_DIES: list[Case] = [
    Case("console.log('last'); process.exit(3)", {"stdout": "last\n", "reason": "the interpreter exited with code 3"}),
    Case("process.abort()", {"end": "died", "reason": "the interpreter was killed by SIGABRT"}),
    Case(
        "setTimeout(() => { while (true) {} }, 1)\nawait new Promise(() => {})",
        {"end": "deadline", "reason": "it ignored its interrupt, and was killed"},
        timeout=1,
    ),
    Case(
        "process.on('SIGINT', () => {})\nwhile (true) {}",
        {"end": "deadline", "reason": "it ignored its interrupt, and was killed"},
        timeout=1,
    ),
    Case("fs.writeSync(4, 'X1234')", {"end": "died"}),
]


async def test_what_a_cell_of_node_may_do(shared: Sandbox) -> None:
    async with await shared.interpreter("node", max_output_bytes=100_000) as node:
        await node.run("let kept = 'kept'")
        for case in NODE:
            checked(case, await node.run(case.code, timeout=case.timeout or 120))
            after = await node.run("console.log(kept); kept", timeout=60)
            assert (after.stdout, after.text, after.end) == ("kept\n", "'kept'", "finished"), (case.code, after)


@pytest.mark.parametrize("case", NODE_DIES, ids=lambda case: case.code[:40])
async def test_what_a_node_dies_of(shared: Sandbox, case: Case) -> None:
    async with await shared.interpreter("node") as node:
        await node.run("let kept = 1")
        cell = await node.run(case.code, timeout=case.timeout or 60)
        checked(case, cell)
        assert cell.variables_lost, cell
        after = await node.run("typeof kept")
        assert (after.text, after.restarted, after.execution_count) == ("'undefined'", True, 1)


async def test_results_interrupts_and_variables_of_a_node(shared: Sandbox) -> None:
    async with await shared.interpreter("node", cwd="/tmp", env={"GIVEN": "yes"}) as node:
        assert (await node.run("[process.cwd(), process.env.GIVEN]")).text == "[ '/tmp', 'yes' ]"
        shown = await node.run("display({[Symbol.for('Jupyter.display')]: () => ({'text/html': '<b>'})}); 1")
        assert ([one.main for one in shown.results], shown.results[0].html) == ([False, True], "<b>")
        seen: list[Any] = []
        async with aclosing(node.stream("console.log('first'); display(1); while (true) {}")) as events:
            async for event in events:
                seen.append(event)
                if isinstance(event, CellOutput):
                    await node.interrupt()
        assert (seen[0], type(seen[-1]), seen[-1].end) == (CellOutput("stdout", b"first\n"), Cell, "interrupted")
        await node.run("let a = [1, 2]; var v = null; function f() {}")
        found = [(one.name, one.type, one.text) for one in await node.variables()]
        assert sorted(found) == [("a", "Array", "[ 1, 2 ]"), ("f", "function", "[Function: f]"), ("v", "null", "null")]
        one, again = [await node.run("var n = (globalThis.n ?? 0) + 1\nn", cell_id="once") for _ in range(2)]
        assert (one.text, again.text) == ("1", "1")
        await node.restart()
        assert await node.variables() == []


async def test_a_node_that_the_image_has_not(shared: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match="not found") as missing:
        await shared.interpreter("node", env={"PATH": "/usr/bin:/bin"})
    assert "node (18 or newer)" in missing.value.hint
    with pytest.raises(InvalidArgument, match="leave it out"):
        await shared.interpreter("node", kernel="jupyter")
