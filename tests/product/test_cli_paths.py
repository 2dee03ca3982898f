"""The command line's files, ports and limits on the running product."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

from rollbox import Client, Sandbox
from tests.support.command_line import answer, rollbox
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.terminal import on_terminal
from tests.support.waiting import until


async def test_a_sandbox_begins_with_files(stack: Product, client: Client, tmp_path: Path) -> None:
    (tmp_path / "task").write_text("solve")
    made = await answer(stack, "create", IMAGE, "--memory", "128Mi", "--file", f"{tmp_path}/task:/repo/task")
    try:
        assert (await rollbox(stack, "exec", made["id"], "--", "cat", "/repo/task"))[:2] == (0, b"solve")
    finally:
        await client.delete(made["id"])


async def test_what_of_an_output_is_kept(stack: Product, shared: Sandbox) -> None:
    limits = ("--max-output-bytes", "4", "--umask", "077")
    command = ("--", "sh", "-c", "umask; seq 100 >&2; cat; exit 3")
    status, out, err = await rollbox(stack, "exec", "-i", shared.id, *limits, "--keep", "head", *command, stdin=b"in")
    assert (status, out) == (3, b"0077")
    assert err.startswith("1\n2\n")
    assert "stdout: 3 of 7 bytes were not kept" in err
    status, out, _ = await rollbox(stack, "exec", shared.id, "--json", *limits, *command)
    told = json.loads(out)
    assert (status, told["stdout"], told["stderr"]) == (3, "077\n", "100\n")


async def test_paths_of_a_sandbox(stack: Product, shared: Sandbox) -> None:
    place = f"{shared.id}:/tmp/cli-paths"
    assert (await answer(stack, "mkdir", f"{place}/sub", "-p", "-m", "700"))["mode"] == 0o700
    await shared.files.write("/tmp/cli-paths/a", "text")
    assert (await answer(stack, "mv", f"{place}/a", f"{place}/sub/b"))["path"] == "/tmp/cli-paths/sub/b"
    status, out, _ = await rollbox(stack, "stat", f"{place}/sub/b")
    assert (status, out.split()[3]) == (0, b"4")
    await shared.exec("touch a; ln -s sub link", cwd="/tmp/cli-paths", check=True)
    status, out, _ = await rollbox(stack, "stat", f"{place}/link", "--no-follow")
    assert (status, out.rstrip().endswith(b"/link -> sub")) == (0, True)
    moves = [(await rollbox(stack, "mv", *force, f"{place}/a", f"{place}/sub/b"))[0] for force in ((), ("-f",))]
    assert moves == [2, 0]
    assert (await answer(stack, "rm", "-r", place))["removed"] == 4
    assert [(await rollbox(stack, "rm", *force, place))[0] for force in ((), ("-f",))] == [2, 0]
    assert not await shared.files.exists("/tmp/cli-paths")


async def test_changes_come_as_lines(stack: Product, shared: Sandbox) -> None:
    await shared.files.mkdir("/tmp/cli-watch")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rollbox",
        "watch",
        f"{shared.id}:/tmp/cli-watch",
        "--json",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key},
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert json.loads(await process.stdout.readline())["change"] == "watching"
        await shared.files.write("/tmp/cli-watch/new", "x")
        while json.loads(await process.stdout.readline())["path"] != "/tmp/cli-watch/new":
            pass
    process.terminate()
    assert await process.wait() == 143


async def test_ports_for_anyone_and_no_longer(stack: Product, shared: Sandbox) -> None:
    async with await shared.spawn(["python3", "-m", "http.server", "8020"], cwd="/tmp"):
        await shared.ports.wait(8020, timeout=30)
        private = await shared.ports.expose(8020)
        assert await _status(private.url, {}) == 401
        public = await answer(stack, "expose", shared.id, "8020", "--public")
        await _reaches(public["url"], 200)
        again = await answer(stack, "unexpose", shared.id, "8020")
        await _reaches(public["url"], 401)
        assert (again["public"], await _status(again["url"], again["headers"])) == (False, 200)


async def test_a_bar_on_a_terminal(stack: Product, shared: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(20_000_000))
    environ = {**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key, "TERM": "xterm"}
    command = [sys.executable, "-m", "rollbox", "cp", str(tmp_path / "large"), f"{shared.id}:/tmp/large"]
    with on_terminal(command, environ) as terminal:
        # It is drawn ten times a second: of a fast copy only the beginning and the end are sure to be shown.
        await terminal.sees("0/? bytes")
        await terminal.sees("20.0/20.0 MB")
        assert await terminal.ended() == 0
    assert await shared.files.remove("/tmp/large") == 1


async def _status(url: str, headers: dict[str, str]) -> int:
    def asked() -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answered:
                return int(answered.status)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code

    return await asyncio.to_thread(asked)


async def _reaches(url: str, expected: int) -> None:
    """Every gateway learns of a change by a push, a moment after the answer."""

    async def reached() -> bool:
        return await _status(url, {}) == expected

    await until(reached)
