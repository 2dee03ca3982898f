"""Steps that wait behind a message which Redis does not answer: the old ones fail with it, the fresh ones are sent."""

import asyncio
from collections.abc import Sequence

import pytest
from redis.exceptions import TimeoutError as SlowError

from controlplane.errors import Problem
from controlplane.store.calls import CALL_TIMEOUT_S, TRIES, Calls


class SilentLine:
    """Answers nothing at first, then everything.

    Args:
        tries: how many exchanges time out.
    """

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.answered: list[int] = []

    async def exchange(self, _: bytes, count: int) -> Sequence[int]:
        if self.tries:
            self.tries -= 1
            await asyncio.sleep(CALL_TIMEOUT_S)
            raise SlowError("no answer")
        self.answered.append(count)
        return [7] * count

    async def close(self) -> None:
        pass


async def asked(calls: Calls, after_s: float) -> object:
    await asyncio.sleep(after_s)
    return await calls.run("usage", owner="a")


async def test_one_timeout_fails_what_has_waited_as_long_and_nothing_that_was_just_asked() -> None:
    calls = Calls("redis://127.0.0.1:1", "p:", lambda: None)
    calls._digests = dict.fromkeys(calls._scripts, "digest")
    calls._line = line = SilentLine(1 + TRIES)  # type: ignore[assignment]
    lasts_s = (1 + TRIES) * CALL_TIMEOUT_S
    first, old, fresh = (asyncio.create_task(asked(calls, after_s)) for after_s in (0, 1, lasts_s - 0.1))
    for failed in (first, old):
        with pytest.raises(Problem) as refused:
            await failed
        assert refused.value.code == "upstream_timeout"
    assert await fresh == 7
    assert line.answered == [1]
    await calls.close()
