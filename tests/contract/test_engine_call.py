"""A call that is cancelled waits for the engine's answer; a second cancellation does not."""

import asyncio

from controlplane.cluster.finish import finish


async def test_a_cancelled_call_waits_for_the_answer() -> None:
    answer = asyncio.Event()
    work = asyncio.create_task(answer.wait())
    call = asyncio.create_task(finish(work))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.sleep(0)
    assert not call.done()
    answer.set()
    await asyncio.wait([call])
    assert call.cancelled()
    assert work.result()


async def test_a_second_cancellation_gives_the_work_up() -> None:
    work = asyncio.create_task(asyncio.Event().wait())
    call = asyncio.create_task(finish(work))
    for _ in range(2):
        await asyncio.sleep(0)
        call.cancel()
    await asyncio.wait([call, work])
    assert call.cancelled()
    assert work.cancelled()


async def test_a_failure_after_a_cancellation_is_not_left_unseen() -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    call = asyncio.create_task(finish(asyncio.create_task(failing())))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
