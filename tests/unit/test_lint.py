"""The lint of tests: what each rule finds, what it lets pass, how a line is excused; and a rule for all Python."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.lint import __main__ as command
from tests.lint import speed

WRONG = {
    "a limit": "asyncio.timeout(2)",
    "a limit by keyword": "event.wait(timeout=0.5)",
    "a limit by a name": "WITHIN_S: Final = 3\nasyncio.wait_for(call(), WITHIN_S)",
    "a limit of a whole test": "@pytest.mark.timeout(4)\ndef test_a(): ...",
    "a limit of a look": "until(look, limit_s=1)",
    "a limit of a program": "subprocess.run(['a'], timeout=1)",
    "a limit of a socket": "asked.settimeout(3)",
    "a sleep": "async def test_a():\n    await asyncio.sleep(0.2)\n    assert came",
    "something quick": "assert time.monotonic() - began < 60",
    "something quick in its place": "began = loop.time()\nact()\nassert 1 < loop.time() - began < 3",
    "something quick by a name": "took = time.perf_counter() - began\nassert took <= 1",
    "something quick, the other way round": "assert 2 > 1000 * (time.time() - began)",
    "two moments": "a = time.monotonic()\nb = time.monotonic()\nassert b - a == 0",
    "a port": "server.bind(('127.0.0.1', 8000))",
    "a port behind a handler": "asyncio.start_server(serve, '127.0.0.1', port=8000)",
    "a port by a name": "PORT = 8000\nasyncio.start_server(serve, '127.0.0.1', PORT)",
    "a port for datagrams": "loop.create_datagram_endpoint(make, local_addr=('127.0.0.1', 53))",
    "a name": "Path('/tmp/mine').mkdir()",
    "a name that is put together": "os.mkdir(f'/tmp/mine-{number}')",
    "an alarm": "signal.alarm(1)",
    "a loop that spins": "while not ready():\n    pass",
}
RIGHT = {
    "a limit that tells a hang": "async def test_a():\n    async with asyncio.timeout(60): ...",
    "no limit": "asyncio.timeout(None)",
    "a look without waiting": "event.wait(0)",
    "a limit that a sandbox has": "shell.run('sleep 100', timeout=0.3)",
    "words that are joined": "', '.join(words)",
    "a sleep between looks": "async def test_a():\n    while not came:\n        await asyncio.sleep(0.2)",
    "a sleep of a helper": "async def played():\n    await asyncio.sleep(0.2)",
    "a turn of the loop": "async def test_a():\n    await asyncio.sleep(0)",
    "something slow": "assert time.monotonic() - began >= 1.0",
    "what is no time": "assert len(seen) - before < 3",
    "any port": "server.bind(('127.0.0.1', 0))",
    "a backlog": "server.listen(5)",
    "a port of a test's own": "server.bind(('127.0.0.1', port))",
    "a folder of a test's own": "tempfile.mkdtemp(prefix='rb-', dir='/tmp')",
    "a name in a sandbox": "sandbox.files.write('/tmp/mine', b'')\nsandbox.exec('cat /tmp/mine')",
    "a loop that waits": "while not await look():\n    pass",
}


def told(source: str, path: str = "tests/unit/test_a.py") -> list[int]:
    """The lines with a problem."""
    return [one.line for one in speed.problems(dedent(source), path)]


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG.keys())
def test_what_depends_on_speed_is_found_once(source: str) -> None:
    assert len(told(source)) == 1


@pytest.mark.parametrize("source", RIGHT.values(), ids=RIGHT.keys())
def test_what_does_not_is_let_pass(source: str) -> None:
    assert told(source) == []


@pytest.mark.parametrize("folder", ["tests/bench", "tests/unit/controlplane/lifecycle"])
def test_where_time_is_measured_or_virtual_only_names_and_ports_count(folder: str) -> None:
    source = "asyncio.timeout(1)\nassert loop.time() - began < 1\nserver.bind(('', 80))\n"
    assert told(source, f"{folder}/a.py") == [3]
    assert told(source, "tests/unit/sdk/a.py") == [1, 2, 3]


def test_an_excuse_is_on_the_line_or_alone_above_it() -> None:
    assert told("asyncio.timeout(1)  # speed: only to be passed") == []
    assert told("# speed: only to be passed\nasyncio.timeout(1)") == []
    assert told("event.wait(\n    timeout=1,  # speed: only to be passed\n)") == []
    assert told("first()  # speed: of something else\nasyncio.timeout(1)") == [1, 2]


@pytest.mark.parametrize("folder", ["controlplane", "sdk", "tests", "contract", "helm"])
def test_no_list_is_unpacked_where_it_is_written(folder: str) -> None:
    """`*(a, b),` in the place of `a, b,` keeps the formatter from giving each a line of its own."""
    found = [
        f"{file.relative_to(command.ROOT)}:{node.lineno}"
        for file in (command.ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List | ast.Set)
    ]
    assert found == []
