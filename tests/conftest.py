"""What holds for every test: nothing of it outlives it."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

pytest_plugins = ["tests.support.product"]


@pytest.fixture(autouse=True)
async def no_task_is_left_behind() -> AsyncIterator[None]:
    """Fails a test whose code has left an asyncio task running."""
    before = asyncio.all_tasks()
    yield
    # One turn for tasks that are done but for their last step.
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()]
    assert not left, f"left behind: {left}"


@pytest.fixture(autouse=True)
def the_log_is_as_it_was() -> Iterator[None]:
    """Takes back what a test has set the log to: its streams are closed with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
