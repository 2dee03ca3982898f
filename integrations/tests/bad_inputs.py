"""What programs and models may give to any host that is bad: tests that a host's suite takes up by a subclass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pytest
from losing import lose

from rollbox import Client

TOO_LARGE = f"true {'x' * (3 << 20)}"
NOBODY = "nobody-of-this-name"


class Told(NamedTuple):
    """What a host says of a command: its code, and what it wrote to both outputs."""

    code: int
    output: str


@dataclass(frozen=True)
class Box:
    """A sandbox of a host.

    Attributes:
        id: of the sandbox.
        run: runs a line of a shell by the host's own call.
    """

    id: str
    run: Callable[[str], Awaitable[Told]]


class BadInputs:
    """The tests of a host with commands.

    Attributes:
        lost: what the host's call raises where there is no sandbox any more.
        undecodable: what the host has in place of a byte, 377 of three octal digits, that is no text.
    """

    lost: ClassVar[type[Exception]]
    undecodable: ClassVar[str] = "\ufffd"

    def opened(self, **options: Any) -> AbstractAsyncContextManager[Box]:
        """A sandbox while a block runs, made by the host with these options of the adapter."""
        raise NotImplementedError

    async def test_binary_output_and_a_command_of_megabytes_are_results(self, client: object) -> None:
        async with self.opened() as box:
            assert await box.run(r"printf 'a\377b'") == Told(0, f"a{self.undecodable}b")
            told = await box.run(TOO_LARGE)
            assert (told.code, "argument list too long" in told.output) == (126, True)
            assert await box.run("echo on") == Told(0, "on\n")

    async def test_each_call_of_a_sandbox_that_was_taken_away_says_so(self, client: object) -> None:
        async with self.opened() as box, Client() as other:
            # A host that is killed leaves it to its lease.
            assert (await other.get(box.id)).lease is not None
            await other.delete(box.id)
            await self._says_each_time(box, "deleted")

    async def test_each_call_of_a_sandbox_that_the_platform_has_lost_says_so(self, client: object) -> None:
        async with self.opened() as box:
            await asyncio.to_thread(lose, box.id)
            await self._says_each_time(box, "sandbox_lost")

    async def _says_each_time(self, box: Box, code: str) -> None:
        for _ in range(3):
            with pytest.raises(self.lost, match=rf"{code} \(\w+; mask the sample\): "):
                await box.run("true")


class BadUsers(BadInputs):
    """And of one whose sandboxes have a user.

    Attributes:
        wrong: what the host raises where a sandbox cannot be as it is asked for.
    """

    wrong: ClassVar[type[Exception]]

    async def test_a_user_that_does_not_exist_is_refused(self, client: object) -> None:
        with pytest.raises(self.wrong, match=rf"score the sample\): .*{NOBODY}"):
            async with self.opened(user=NOBODY):
                pass
