"""`rollbox python`: one cell from the input, and a prompt on a terminal."""

import os
import pty
import subprocess

import pytest

from rollbox.cli.python import whole
from tests.support.eventually import LIMIT_S
from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_cli import made
from tests.unit.sdk.test_cli_processes import command, environment


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("print('out')\n6 * 7", (0, b"out\n42\n", b"")),
        ("1 / 0", (1, b"", b"ZeroDivisionError: division by zero\n")),
        ("import sys; print('err', file=sys.stderr); sys.exit(0)", (1, b"", b"err\nSystemExit: 0\n")),
        ("import os; os._exit(4)", (1, b"", b"variables are gone\n")),
    ],
)
def test_the_input_is_one_cell(apart: FakeGateway, code: str, right: tuple[int, bytes, bytes]) -> None:
    apart.real_execs = True
    box = made(apart)
    for arguments, given in ((("-c", code), b""), ((), code.encode())):
        started = command("python", box, *arguments)
        ran = subprocess.run(started, env=environment(apart), input=given, capture_output=True, timeout=60, check=False)
        assert (ran.returncode, ran.stdout) == right[:2], ran
        assert ran.stderr.endswith(right[2]), ran
    assert apart.sandboxes[box]["state"] == "running"


def test_a_deadline_has_its_exit_code(apart: FakeGateway) -> None:
    apart.real_execs = True
    started = command("python", made(apart), "--timeout", "1", "-c", "while True: pass")
    ran = subprocess.run(started, env=environment(apart), capture_output=True, timeout=60, check=False)
    assert ran.returncode == 124
    assert b"KeyboardInterrupt" in ran.stderr


def test_the_prompt_keeps_variables_and_ctrl_c_interrupts_a_cell(apart: FakeGateway) -> None:
    apart.real_execs = True
    ours, theirs = pty.openpty()
    started = command("python", made(apart))
    variables = {**environment(apart), "TERM": "dumb"}
    with subprocess.Popen(
        started, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as one:
        os.close(theirs)
        seen = b""

        def until(text: bytes, typed: bytes = b"") -> None:
            nonlocal seen
            os.write(ours, typed)
            seen = b""
            while text not in seen:
                seen += os.read(ours, 2**16)

        until(b">>> ")
        until(b"... ", b"def f():\n")
        until(b"... ", b"    return 7\n")
        until(b">>> ", b"\n")
        until(b"7\r\n>>> ", b"f()\n")
        until(b"on\r\n", b"import time; print('on'); time.sleep(600)\n")
        one.send_signal(2)
        until(b">>> ")
        until(b"7\r\n>>> ", b"f()\n")
        until(b"gone\r\n>>> ", b"import os; os._exit(4)\n")
        until(b"8\r\n>>> ", b"4 + 4\n")
        assert b"gone" not in seen, "said once"
        # At the prompt, where Ctrl-D is a key.
        os.write(ours, b"\x04")
        assert one.wait(LIMIT_S) == 0
    os.close(ours)


@pytest.mark.parametrize(
    ("code", "right"),
    [("1", True), ("if 1:", False), ("if 1:\n  2", False), ("await x", True), ("(", False), ("1 +", True), ("", True)],
)
def test_a_prompt_knows_when_code_is_whole(code: str, right: bool) -> None:
    assert whole(code) is right
