"""Every command that the parser has, on standard streams that are full, closed or without a reader."""

from __future__ import annotations

import pytest
import typer.main

from rollbox.cli import app
from tests.support.every_command import CALLS, Every, commands, every_ran
from tests.support.forked_commands import KINDS, Ran

USUAL = "as they are"
# A standard output that takes nothing, by what a shell reports of one without a reader, else as a caller's mistake.
LOST = {kind: 141 if streams[1] == "no reader" else 2 for kind, streams in KINDS.items() if 1 in streams}
MAKES = {"create", "commit", "checkpoint"}


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Every:
    return every_ran(KINDS, tmp_path_factory.mktemp("every"))


def test_every_command_of_the_parser_is_here() -> None:
    assert sorted(commands(typer.main.get_command(app))) == sorted(CALLS)


def test_the_calls_meet_what_they_ask_for(every: Every) -> None:
    told = {name for name, (code, stdout, _) in every.ran[USUAL].items() if code == 0 and stdout}
    assert len(told) >= 45
    assert told >= MAKES | {"exec", "ps", "logs", "why", "egress log", "node list", "capacity"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_state_of_the_streams_is_a_traceback_or_another_result(every: Every, kind: str) -> None:
    wrong = []
    for name, (code, stdout, stderr) in every.ran[kind].items():
        usual_code, usual_stdout, _ = every.ran[USUAL][name]
        due = LOST[kind] if kind in LOST and usual_stdout else usual_code
        noisy = [word for word in ("Traceback", "Exception ignored", "interrupted") if word in stdout + stderr]
        if code != due or noisy or bool(stdout) != (bool(usual_stdout) and kind not in LOST):
            wrong.append((name, code, due, stdout, stderr))
    assert wrong == []


def said(kind: str, name: str, ran: Ran) -> bool:
    """Whether stderr says why nothing is on stdout: of a reader that went only where a thing would be lost."""
    if name in MAKES:
        return "could not be printed" in ran[2]
    return LOST[kind] == 141 or "the standard output cannot be written" in ran[2]


@pytest.mark.parametrize("kind", ["stdout full", "stdout closed", "stdout without a reader"])
def test_what_stdout_does_not_take_is_told_on_stderr(every: Every, kind: str) -> None:
    lost = {name for name, (_, stdout, _) in every.ran[USUAL].items() if stdout}
    assert [name for name in lost if not said(kind, name, every.ran[kind][name])] == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_can_know_of_is_undone(every: Every, kind: str) -> None:
    fake, nobody = every.fakes[kind], 2 in KINDS[kind] and kind in LOST
    assert (fake.sandboxes["sb-3"]["state"], fake.images.removed) == (
        ("ended", ["cp-1", "repo:v1"]) if nobody else ("running", ["repo:v1"])
    )
