"""Interpreters: what a cell may do, and what its caller gets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

import pytest

from rollbox import Sandbox, sync
from rollbox.errors import Conflict, InvalidArgument, OomKilled
from rollbox.interpreter.cell import Cell, CellOutput, CellResult
from tests.support.images import AGAINST_CLUSTER
from tests.support.stack import Product
from tests.support.waiting import succeeds, until


class Case(NamedTuple):
    """A cell and what it answers: attributes of the `Cell`; `error` is the name of what it raises."""

    code: str
    answer: Mapping[str, Any]
    error: str | None = None
    timeout: float | None = None
    kept: bool = True


FINISHED: list[Case] = [
    Case("6 * 7", {"text": "42"}),
    Case("6 * 7;", {"text": None}),
    Case("", {"text": None, "stdout": ""}),
    Case("x = 1\nx + 1", {"text": "2"}),
    Case("1 +", {"end": "finished"}, error="SyntaxError"),
    Case("1 / 0", {"end": "finished"}, error="ZeroDivisionError"),
    Case("import sys; sys.exit(3)", {"end": "finished"}, error="SystemExit"),
    Case("quit()", {"end": "finished"}, error="SystemExit"),
    Case("raise KeyboardInterrupt", {"end": "interrupted"}, error="KeyboardInterrupt"),
    Case("input('name? ')", {"end": "finished"}, error="RuntimeError"),
    Case("import sys; sys.stdin.read()", {"text": "''"}),
    Case("import asyncio\nawait asyncio.sleep(0.001)\nasync def f(): return 5\nawait f()", {"text": "5"}),
    Case("import asyncio\nasync def g(): return 6\nasyncio.run(g())", {"text": "6"}),
    Case("def deep(n): return deep(n + 1)\ndeep(0)", {"end": "finished"}, error="RecursionError"),
    Case(
        "import os\nprint('a')\nos.system('echo b')\nprint('c')\nos.system('echo e >&2')",
        {"stdout": "a\nb\nc\n", "stderr": "e\n", "text": "0"},
    ),
    Case("import sys; sys.stdout.buffer.write(bytes([0, 255, 10]));", {"stdout_bytes": b"\x00\xff\n"}),
    Case("import os; os.write(1, bytes([128, 129]));", {"stdout_bytes": b"\x80\x81"}),
    Case("print('\\udc80')", {"stdout": "\\udc80\n"}),
    Case("print('no newline', end='')", {"stdout": "no newline"}),
    Case(
        "for _ in range(3000): print('y' * 1000)",
        {
            "stdout_total_bytes": 3_003_000,
            "stdout_truncated": True,
            "stdout_bytes": (b"y" * 1000 + b"\n") * 99 + b"y" * 101,
        },
    ),
    Case(
        "import subprocess\nsubprocess.run('head -c 3000000 /dev/zero | tr \"\\\\0\" z', shell=True).returncode",
        {"text": "0", "stdout_total_bytes": 3_000_000, "stdout_bytes": b"z" * 10_000, "stdout_truncated": True},
    ),
    Case("import sys; sys.stdout.close(); sys.stderr.close()", {"end": "finished"}),
    Case("import os; os.close(1); os.close(2)", {"end": "finished"}),
    Case(
        "import sys, io; old = sys.stdout; sys.stdout = io.StringIO(); print('hid'); sys.stdout = old", {"stdout": ""}
    ),
    Case("import sys, io; sys.stdout = sys.stderr = io.StringIO(); print('hid')", {"stdout": "", "stderr": ""}),
    Case(
        "import sys, io; sys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'latin-1'); print('\u00e9', end='')",
        {"stdout_bytes": b"\xe9"},
    ),
    Case("import sys\nclass Bad:\n def flush(self): 1 / 0\nsys.stderr = Bad()", {"end": "finished", "stderr": ""}),
    Case(
        "import os, sys\nfor n in range(40): print(n) if n % 2 else os.write(1, b'%d\\n' % n) and None",
        {"stdout": "".join(f"{n}\n" for n in range(40))},
    ),
    Case("import os; os.chdir('/usr'); os.getcwd()", {"text": "'/usr'"}),
    Case("import sys; sys.modules.clear()", {"end": "finished"}),
    Case("import builtins; builtins.len = builtins.repr = builtins.bytes = None", {"end": "finished"}),
    Case("import os\nif os.fork() == 0: print('child')\nelse: os.wait()", {"stdout": "child\n", "stderr": ""}),
    Case("import os\nif os.fork() == 0: 1 / 0\nelse: print(os.wait()[1] >> 8)", {"stdout": "1\n"}),
    Case(
        "import os\nif os.fork() == 0:\n  if os.fork() == 0: print('grandchild')\n  else: os.wait()\nelse: os.wait()",
        {"stdout": "grandchild\n", "stderr": ""},
    ),
    Case(
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, 2]))",
        {"stdout": "[1, 2]\n", "stderr": ""},
    ),
    Case(
        "import threading\nt = threading.Thread(target=print, args=('thread',)); t.start(); t.join()",
        {"stdout": "thread\n"},
    ),
    Case("import threading\nthreading.Thread(target=lambda: 1 / 0).start()\n1", {"text": "1"}),
    Case("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)", {"end": "finished"}),
    Case("class B:\n def __repr__(self): return 1 / 0\nB()", {"end": "finished"}, error="ZeroDivisionError"),
    Case(
        "class M:\n def __str__(self): return 1 / 0\nclass E(Exception, M): __str__ = M.__str__\nraise E", {}, error="E"
    ),
    Case("'a' * 3_000_000", {"results_omitted": 0}),
    Case("bytearray(1 << 50)", {}, error="MemoryError"),
    Case("from __future__ import annotations\ndef f(x: missing): pass", {"text": None}),
    Case(
        "__name__, __builtins__.__name__, [n for n in dir() if 'rollbox' in n]",
        {"text": "('__main__', 'builtins', [])"},
    ),
    Case("import pickle\nclass P: pass\ntype(pickle.loads(pickle.dumps(P()))).__name__", {"text": "'P'"}),
    Case(
        "def source(): return 9\nimport inspect\nprint(inspect.getsource(source))",
        {"stdout": "def source(): return 9\n\n"},
    ),
    Case("import time\ntime.sleep(600)", {"end": "deadline"}, error="KeyboardInterrupt", timeout=1),
    Case("while True: pass", {"end": "deadline"}, error="KeyboardInterrupt", timeout=1),
    Case(
        "import subprocess\nsubprocess.run(['sleep', '600'])", {"end": "deadline"}, error="KeyboardInterrupt", timeout=1
    ),
    Case("import os\nos.system('sleep 600')", {"end": "deadline"}, timeout=1),
    Case("import asyncio\nawait asyncio.sleep(600)", {"end": "deadline"}, error="KeyboardInterrupt", timeout=1),
    Case(
        "while True: print('endless')",
        {"end": "deadline", "stdout_truncated": True},
        error="KeyboardInterrupt",
        timeout=2,
    ),
]
STUBBORN = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
DIED: list[Case] = [
    Case("import os; print('last words'); os._exit(3)", {"stdout": "last words\n", "end": "died"}),
    Case("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {"end": "died"}),
    Case("import ctypes; ctypes.string_at(0)", {"end": "died"}),
    Case("import os; os.abort()", {"end": "died"}),
    Case("import os; os.closerange(3, 1000)", {"end": "died"}),
    Case("import os; os.execv('/bin/true', ['true'])", {"end": "died"}),
    Case(STUBBORN, {"end": "deadline", "reason": "it ignored its interrupt, and was killed"}, timeout=1),
    # Its own descriptors: the interpreter says what no interpreter says.
    *(
        Case(
            f"import os\nfor fd in range(200, 220):\n  try: os.write(fd, {forged!r})\n  except OSError: pass",
            {"end": "died"},
        )
        for forged in (b"X\0\0\0\0", b"O\xff\xff\xff\xff", b"O\0\0\0\x04\0\0\0\x09", b"F\0\0\0\0")
    ),
]


def checked(case: Case, cell: Cell) -> None:
    assert (cell.error.name if cell.error else None) == case.error or case.answer.get("end") == "deadline", cell
    for name, right in case.answer.items():
        found = getattr(cell, name)
        assert found[: len(right)] == right if isinstance(right, bytes) else found == right, (name, cell, cell.stderr)


@pytest.mark.core
@pytest.mark.parametrize("case", FINISHED, ids=lambda case: case.code[:40])
async def test_what_a_cell_may_do(shared: Sandbox, case: Case) -> None:
    async with await shared.interpreter(max_output_bytes=100_000) as python:
        await python.run("kept = 'kept'")
        checked(case, await python.run(case.code, timeout=case.timeout))
        after = await python.run("print(kept)\nkept", timeout=60)
        assert (after.stdout, after.text, after.end) == ("kept\n", "'kept'", "finished"), after


@pytest.mark.parametrize("case", DIED, ids=lambda case: case.code[:40])
async def test_what_an_interpreter_dies_of(shared: Sandbox, case: Case) -> None:
    async with await shared.interpreter() as python:
        await python.run("kept = 1")
        cell = await python.run(case.code, timeout=case.timeout or 60)
        checked(case, cell)
        assert cell.variables_lost, cell
        assert cell.reason, cell
        after = await python.run("'kept' in globals()")
        assert (after.text, after.restarted, after.execution_count) == ("False", True, 1)
        assert not (await python.run("1")).restarted


async def test_output_and_results_come_while_it_runs(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        code = "import time\nprint('first')\ndisplay('shown')\ntime.sleep(600)"
        seen: list[object] = []
        async with aclosing(python.stream(code)) as events:
            async for event in events:
                seen.append(event)
                if isinstance(event, CellResult):
                    break
        assert seen[0] == CellOutput("stdout", b"first\n")
        # Left before its end: it was interrupted.
        assert (await python.run("time.__name__", timeout=60)).text == "'time'"


async def test_interrupt_restart_and_variables(shared: Sandbox) -> None:
    async with await shared.interpreter(cwd="/tmp", env={"GIVEN": "yes"}) as python:
        await python.run("import os, time\na, _hidden = [1, 2], 3")
        assert [(v.name, v.type, v.text) for v in await python.variables() if v.name == "a"] == [
            ("a", "list", "[1, 2]")
        ]
        assert (await python.run("os.getcwd(), os.environ['GIVEN']")).text == "('/tmp', 'yes')"
        async with aclosing(python.stream("print('on')\ntime.sleep(600)")) as events:
            await anext(events)
            await python.interrupt()
            last = [event async for event in events][-1]
        assert isinstance(last, Cell)
        assert (last.end, last.variables_lost) == ("interrupted", False)
        await python.restart()
        assert await python.variables() == []
        first = await python.run("1")
        assert (first.execution_count, first.restarted) == (1, False)


async def test_a_cell_is_told_that_its_interpreter_was_restarted_or_closed(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        for end, said in ((python.restart, "restarted"), (python.aclose, "closed")):
            async with aclosing(python.stream("import time\nprint('on')\ntime.sleep(600)")) as events:
                await anext(events)
                ending = asyncio.create_task(end())
                last = [event async for event in events][-1]
                await ending
            assert isinstance(last, Cell)
            assert (last.end, last.reason, last.stdout) == ("died", f"it was {said} while the cell ran", "on\n")


async def test_what_is_no_cell_is_not_the_first_one_of_a_new_interpreter(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        assert (await python.run("import os; os._exit(1)")).variables_lost
        assert await python.variables() == []
        assert [(await python.run("1")).restarted for _ in range(2)] == [True, False]


async def test_a_cell_that_is_sent_again_does_not_run_again(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        code = "n = globals().get('n', 0) + 1\nprint(n)\nn"
        one, again = [await python.run(code, cell_id="once") for _ in range(2)]
        assert (one.text, one.stdout, again.text, again.stdout) == ("1", "1\n", "1", "1\n")
        assert (await python.run(code)).text == "2"


async def test_a_cancelled_call_interrupts_its_cell_or_lets_it_go_on(shared: Sandbox) -> None:
    folder = (await shared.exec("mktemp -d", check=True)).stdout.strip()
    async with await shared.interpreter(cwd=folder) as python:
        for on_disconnect, right in (("interrupt", "'interrupted'"), ("continue", "'whole'")):
            await python.run("import os, time\nfor name in ('on', 'go'): os.path.exists(name) and os.remove(name)")
            code = "def wait():\n open('on', 'w').close()\n while not os.path.exists('go'): time.sleep(0.01)\n"
            code += "try: wait()\nexcept BaseException: how = 'interrupted'\nelse: how = 'whole'"
            running = asyncio.create_task(python.run(code, on_disconnect=on_disconnect))  # type: ignore[arg-type]
            await until(lambda: succeeds(shared, f"test -e {folder}/on"))
            running.cancel()
            await asyncio.wait([running])
            if on_disconnect == "continue":
                await shared.files.write(f"{folder}/go", b"")
            assert (await python.run("how")).text == right


async def test_a_cell_that_goes_on_without_its_caller_keeps_its_time_limit(shared: Sandbox) -> None:
    folder = (await shared.exec("mktemp -d", check=True)).stdout.strip()
    async with await shared.interpreter(cwd=folder) as python:
        await python.run("import time")
        code = "open('on', 'w').close()\ntry: time.sleep(600)\nexcept KeyboardInterrupt: how = 'limited'"
        running = asyncio.create_task(python.run(code, timeout=4, on_disconnect="continue"))
        await until(lambda: succeeds(shared, f"test -e {folder}/on"))
        running.cancel()
        await asyncio.wait([running])
        assert (await python.run("how")).text == "'limited'"


async def test_what_comes_between_cells_is_told_with_the_next(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        await python.run(
            "import subprocess\np = subprocess.Popen('read x; echo late', shell=True, stdin=subprocess.PIPE)"
        )
        own = await python.run("p.stdin.close(); p.wait(); print('own')")
        assert (own.stdout, own.background) == ("late\nown\n", b"")
        await python.run("import threading\nthreading.Timer(0.2, print, ('between',)).start()")
        for _ in range(100):
            cell = await python.run("1")
            if cell.background or cell.stdout:
                break
            await asyncio.sleep(0.05)
        assert cell.background + cell.stdout_bytes == b"between\n"


async def test_forms_of_a_value(shared: Sandbox) -> None:
    async with await shared.interpreter() as python:
        code = """
class Rich:
    def __repr__(self): return 'rich'
    def _repr_html_(self): return '<b>rich</b>'
    def _repr_markdown_(self): return '**rich**'
    def _repr_latex_(self): return '$r$'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_jpeg_(self): return 'anBlZw=='
    def _repr_json_(self): return {'a': [1, None]}
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'own', 'x/y': 'z'}, {}
display(Bundle(), {'text/html': 'raw'})
display({'text/html': 'raw'}, raw=True)
Rich()
"""
        cell = await python.run(code)
        bundle, plain, raw, rich = cell.results
        assert (bundle.text, bundle.forms["x/y"], plain.text, raw.html) == ("own", b"z", "{'text/html': 'raw'}", "raw")
        assert [one.main for one in cell.results] == [False, False, False, True]
        assert (rich.text, rich.html, rich.markdown, rich.latex) == ("rich", "<b>rich</b>", "**rich**", "$r$")
        assert (rich.svg, rich.png, rich.jpeg, rich.json) == ("<svg/>", b"\x89PNG", b"jpeg", {"a": [1, None]})
        assert cell.text == "rich"


async def test_two_interpreters_share_nothing_and_run_at_once(shared: Sandbox) -> None:
    async with await shared.interpreter() as one, await shared.interpreter() as two:
        await asyncio.gather(one.run("x = 1"), two.run("x = 2"))
        assert [cell.text for cell in await asyncio.gather(one.run("x"), two.run("x"))] == ["1", "2"]
        cells = await asyncio.gather(*(one.run(f"x += {n}; x") for n in range(4)))
        assert [cell.text for cell in cells] == ["1", "2", "4", "7"]


async def test_a_cell_that_takes_all_memory(sandbox: Sandbox) -> None:
    python = await sandbox.interpreter()
    took = "taken = []\nwhile True: taken.append(bytearray(b'x') * 2**24)"
    if AGAINST_CLUSTER:
        # Under gVisor that ends the sandbox: this cell or the next one is told so.
        with pytest.raises(OomKilled):
            assert [cell.end for cell in [await python.run(took), await python.run("1")]] == ["never here"]
    else:
        cell = await python.run(took)
        assert (cell.end, cell.variables_lost, "memory was full" in cell.reason) == ("died", True, True), cell
        assert (await python.run("1 + 1")).text == "2"


async def test_without_await(stack: Product, shared: Sandbox) -> None:
    def used() -> list[object]:
        with (
            sync.Client(stack.url, stack.api_key) as client,
            sync.Sandbox.connect(shared.id, client=client).interpreter() as python,
        ):
            kinds = [type(event).__name__ for event in python.stream("x = 1\nprint('out')\nx")]
            late = python.run("while True: pass", timeout=1)
            python.restart()
            return [kinds, late.end, python.run("'x' in globals()").text, [one.name for one in python.variables()]]

    found = await asyncio.to_thread(used)
    assert found == [["CellOutput", "CellResult", "Cell"], "deadline", "False", []]


async def test_what_is_refused(shared: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match="no interpreter of 'r'"):
        await shared.interpreter("r")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument) as missing:
        await shared.interpreter(env={"PATH": "/nowhere"})
    assert "python3" in missing.value.hint
    python = await shared.interpreter()
    for code in ("a\0b", "\udc80"):
        with pytest.raises(InvalidArgument):
            await python.run(code)
    await python.aclose()
    with pytest.raises(Conflict, match="closed"):
        await python.run("1")
