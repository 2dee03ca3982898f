"""What a sandbox tried to reach, beside the commands that ran at that time. Which of them tried it is not known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.egress import EgressAttempt
    from rollbox.process import ExecSummary

COLUMNS = ("at", "by", "host", "verdict", "rule", "address", "sent/received")
BESIDE = "while these ran"
# Attempts of one second are told as one, and the clocks of two machines differ.
_NEAR_MS = 1_500
_SHOWN_CHARS, _SHOWN_COMMANDS = 60, 3
# Verdicts of what was reached.
REACHED = frozenset({"allowed", "idle"})


@dataclass(frozen=True, slots=True)
class Met:
    """An attempt.

    Attributes:
        commands: that ran at that time, oldest first; None: commands are not known, as after the end.
    """

    attempt: EgressAttempt
    commands: Sequence[ExecSummary] | None

    def row(self) -> tuple[str, ...]:
        """Its cells below `COLUMNS`, and what ran below `BESIDE` where that is known."""
        one = self.attempt
        at = time.strftime("%H:%M:%S", time.localtime(one.at_ms / 1000))
        host = f"{one.host}:{one.port}" + (f" x{one.count}" if one.count > 1 else "")
        moved = f"{one.sent_bytes}/{one.received_bytes}" if one.sent_bytes or one.received_bytes else ""
        told = (at, one.protocol, host, one.verdict, one.rule or one.policy, one.address, moved)
        return told if self.commands is None else (*told, _told(self.commands))

    def to_json(self) -> dict[str, Any]:
        """Its fields, with `commands`: what ran, or null."""
        ran = None if self.commands is None else [{"exec_id": one.exec_id, "argv": one.argv} for one in self.commands]
        return {**self.attempt.to_json(), "commands": ran}


def beside(attempts: Sequence[EgressAttempt], commands: Sequence[ExecSummary] | None) -> list[Met]:
    """Put the commands of a sandbox, which come newest first, beside its attempts."""
    return [
        Met(one, None if commands is None else [ran for ran in reversed(commands) if _ran(ran, one.at_ms)])
        for one in attempts
    ]


async def commands_of(client: Client, sandbox_id: str) -> Sequence[ExecSummary] | None:
    """Ask a sandbox for its commands, newest first; None: it does not run, or has ended meanwhile.

    Raises:
        SandboxError: it runs, and its commands could not be had.
    """
    from rollbox.errors import SandboxError

    if (await client.get(sandbox_id)).state != "running":
        return None
    try:
        return await (await client.connect(sandbox_id)).processes.list()
    except SandboxError:
        if (await client.get(sandbox_id)).state == "running":
            raise
        return None


def table(met: Sequence[Met]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and rows of attempts of one sandbox."""
    known = any(one.commands is not None for one in met)
    return (*COLUMNS, BESIDE) if known else COLUMNS, [one.row() for one in met]


def _ran(command: ExecSummary, at_ms: int) -> bool:
    ended_ms = command.ended_at_ms
    return command.started_at_ms <= at_ms + _NEAR_MS and (ended_ms is None or at_ms - _NEAR_MS <= ended_ms)


def _told(commands: Sequence[ExecSummary]) -> str:
    if not commands:
        return "none that is known"
    told = [f"{_short(one)} ({one.exec_id})" for one in commands[-_SHOWN_COMMANDS:]]
    more = len(commands) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _short(command: ExecSummary) -> str:
    line = " ".join(" ".join(command.argv).split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…"
