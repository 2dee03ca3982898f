"""Whatever replicas do in whatever order: no warm sandbox is given twice, and what is used is what is there."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.clock import SystemClock
from tests.contract.claim_steps import STEPS, Player, Step, check
from tests.support.examples import EXAMPLES
from tests.support.refilled import refilled
from tests.support.shared_store import SharedMemory


@settings(max_examples=3 * EXAMPLES)
@given(steps=st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=1, max_size=4))
def test_no_order_of_steps_gives_a_warm_sandbox_twice(steps: list[tuple[int, list[Step]]]) -> None:
    async def run() -> None:
        core, given, ids = SharedMemory(SystemClock()), list[str](), list[str]()
        stores = [core.view(name) for name in "ab"]
        await refilled(stores[0])
        players = [Player(name, store, given, ids) for name, store in zip("ab", stores, strict=True)]
        for number, some in steps:
            for step in some:
                await players[number].perform(step)
        await check(stores, given)

    asyncio.run(run())
