"""A sandbox next to one that is attacked: it is asked all the time, and is to answer all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from rollbox import ExecResult, Sandbox, SandboxError
from rollbox.errors import PidsExhausted
from tests.support.waiting import until

_T = TypeVar("_T")

# What tells a stall from a busy machine, or a kernel that is out of memory: over the time that a call itself takes.
TOLD_WITHIN_S = 30.0
PAUSE_S = 0.05


@dataclass
class Neighbour:
    """A sandbox that is asked many times a second.

    Attributes:
        answers: how often it has answered in time.
        failures: how it has not.
    """

    sandbox: Sandbox
    answers: int = 0
    failures: list[str] = field(default_factory=list)

    async def ask(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                result = await in_time(self.sandbox.exec(["echo", "here"]))
            except TimeoutError:
                self.failures.append(f"no answer within {TOLD_WITHIN_S:g} s")
            except SandboxError as error:
                self.failures.append(f"{error.code}: {error.detail}")
            else:
                if result.stdout == "here\n":
                    self.answers += 1
                else:
                    self.failures.append(str(result))
            # Else it would take as much of the machine as the attack.
            await asyncio.sleep(PAUSE_S)

    async def answers_again(self, times: int = 1) -> None:
        """Wait until it has answered so many times more.

        Raises:
            TimeoutError: it does not.
        """
        wanted = self.answers + times

        async def more() -> bool:
            await asyncio.sleep(0.01)
            return self.answers >= wanted

        # An answer that was under way does not count among those that come in time.
        await until(more, (times + 1) * TOLD_WITHIN_S)


async def in_time(call: Awaitable[_T], own_s: float = 0) -> _T:
    """What an attack must not hold up, beyond the time that the call itself may take."""
    async with asyncio.timeout(own_s + TOLD_WITHIN_S):
        return await call


async def goes_off(sandbox: Sandbox, bomb: str, ends: set[str], timeout: float) -> ExecResult:  # noqa: ASYNC109
    """Run it; its end is told in time, and one of these."""
    ended = await in_time(sandbox.exec(bomb, timeout=timeout), timeout)
    assert ended.end in ends, ended
    return ended


async def serves_again(sandbox: Sandbox) -> None:
    """Wait until it takes another command, as soon as there are processes to be had."""

    async def served() -> bool:
        try:
            return (await sandbox.exec(["/bin/echo", "alive"])).stdout == "alive\n"
        except PidsExhausted:
            return False

    await until(served, 3 * TOLD_WITHIN_S)
