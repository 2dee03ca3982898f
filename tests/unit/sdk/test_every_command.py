"""Every command that the parser has, on streams that are full, closed, without a reader, or narrow terminals."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import typer.main

from rollbox.cli import app
from tests.support.every_command import CALLS, Every, commands, every_ran
from tests.support.forked_commands import KINDS, TERMINALS, Ran

USUAL = "as they are"
# A standard output that takes nothing, by what a shell reports of one without a reader, else as a caller's mistake.
LOST = {kind: 141 if streams[1] == "no reader" else 2 for kind, streams in KINDS.items() if 1 in streams}
MAKES = {"create", "commit", "checkpoint"}
# A row that is a paragraph names no first column, and none that is empty.
COLUMNS = Counter(
    ["id", "exec", "group", "pool", "owner", "key", "node", "image", "sample", "at", "when", "address", "source"]
)
COLUMNS += Counter(["dataset", "why", "it", "ended", "sent/received"])
# What differs from run to run, and what a terminal is told beside the words.
OTHERWISE = (
    r"\x1b\[[\d;?]*[A-Za-z]|sha256:\w+|[0-9a-f]{32}|(?<=:)\d{4,5}\b|[\d:.]{8,}Z?|\b\d{2,7}\b|\b\d+[sm]\b|\S+/nosuch"
)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Every:
    return every_ran([*KINDS, *TERMINALS], tmp_path_factory.mktemp("every"))


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


def words(ran: Ran) -> Counter[str]:
    return Counter(re.sub(OTHERWISE, "", f"{ran[1]} {ran[2]}").split())


@pytest.mark.parametrize("kind", TERMINALS)
def test_a_narrow_terminal_loses_no_word_and_breaks_none(every: Every, kind: str) -> None:
    wrong = []
    for name, ran in every.ran[kind].items():
        usual = every.ran[USUAL][name]
        if (lost := words(usual) - words(ran) - COLUMNS) or ran[0] != usual[0]:
            wrong.append((name, ran, lost))
    assert wrong == []


@pytest.mark.parametrize("kind", TERMINALS)
def test_a_narrow_terminal_has_no_line_of_several_words_that_it_would_break(every: Every, kind: str) -> None:
    long = []
    # A program for a shell is no text, and a path of this test's is longer than a terminal.
    for name in every.ran[kind].keys() - {"completion", "doctor"}:
        for line in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", "\n".join(every.ran[kind][name][1:])).splitlines():
            # The parser's own hint is one line, however long the name of the command.
            if len(line) > TERMINALS[kind] and len(line.split()) > 1 and not line.startswith("Try '"):
                long.append((name, line))
    assert long == []
