"""Terminals: `exec -it` as a person uses it, and a process on one from a program."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager

import pytest

from rollbox import Sandbox
from rollbox.errors import InvalidArgument
from tests.support.stack import Product
from tests.support.terminal import Terminal, on_terminal


def typed(stack: Product, *arguments: str) -> AbstractContextManager[Terminal]:
    environ = {**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key, "TERM": "xterm"}
    return on_terminal([sys.executable, "-m", "rollbox", *arguments], environ)


async def test_a_shell_on_a_terminal_feels_local(stack: Product, shared: Sandbox) -> None:
    with typed(stack, "exec", "-it", shared.id, "--", "bash", "--norc") as terminal:
        # Written so that the echo of what is typed is not taken for the answer. Each line waits for its prompt: a
        # Ctrl-C that comes before the shell reads again throws away what was typed ahead, here as on any terminal.
        await terminal.sees("# ")
        terminal.type("echo $((40+2)) $(tty)\r")
        await terminal.sees("42 /dev/pts/")
        await terminal.sees("# ")
        terminal.type("stty size\r")
        await terminal.sees("30 100")
        await terminal.sees("# ")
        terminal.resize(71, 19)
        # The command line hears of its window's size by a signal, beside the keys.
        terminal.type("until stty size | grep '19 7''1'; do sleep 0.1; done\r")
        await terminal.sees("19 71")
        await terminal.sees("# ")
        terminal.type("sh -c 'echo star''ted; exec sleep 7100'\r")
        await terminal.sees("started")
        terminal.type("\x03")
        await terminal.sees("# ")
        terminal.type("echo status $?; exit 7\r")
        await terminal.sees("status 130")
        assert await terminal.ended() == 7
    assert (await shared.exec("pgrep -f 'sleep 710[0]'")).exit_code == 1


async def test_the_end_of_input_ends_it(stack: Product, shared: Sandbox) -> None:
    with typed(stack, "exec", "-it", shared.id, "--", "sh", "-c", "cat; exit 5") as terminal:
        terminal.type("line\r")
        await terminal.sees("line\r\nline")
        terminal.type("\x04")
        assert await terminal.ended() == 5


async def test_a_window_that_is_closed_leaves_nothing_behind(stack: Product, shared: Sandbox) -> None:
    with typed(stack, "exec", "-it", shared.id, "--", "sh", "-c", "echo re''ady; exec sleep 7101") as terminal:
        await terminal.sees("ready")
        terminal.type("\x1c")
        assert await terminal.ended() == 131
    assert (await shared.exec("pgrep -f 'sleep 710[1]'")).exit_code == 1


@pytest.mark.core
async def test_a_program_uses_a_terminal(shared: Sandbox) -> None:
    command = "stty size; echo $TERM; read x; stty size; exit 6"
    async with await shared.spawn(command, terminal=(80, 25)) as process:
        lines = process.stdout.lines()
        # The image's own TERM holds where it has one: engines give every image one.
        assert [await anext(lines), (await anext(lines)).partition("-")[0].strip()] == ["25 80\r", "xterm"]
        await process.resize(132, 50)
        await process.stdin.write("go\n")
        assert [await anext(lines), await anext(lines)] == ["go\r", "50 132\r"]
        assert (await process.wait()).exit_code == 6
        assert await process.stderr.read() == b""


async def test_bad_terminals_are_refused(shared: Sandbox) -> None:
    for size in ((0, 25), (80, 70_000), (-1, 1)):
        with pytest.raises(InvalidArgument):
            await shared.spawn(["true"], terminal=size)
    async with await shared.spawn(["sleep", "600"]) as process:
        await process.resize(80, 25)
        with pytest.raises(InvalidArgument):
            await process.wait()
