"""What holds for every test: nothing of it outlives it."""

import ast
import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

# Here, and not by its plugin at the end of a run: so deep in the stack Python 3.11.7's parser fails, and with it the
# report of what failed.
import hypothesis
import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from controlplane.telemetry import configure_log
from tests.support.examples import EXAMPLES, QUICK, VARIABLE

pytest_plugins = ["tests.support.product", "tests.support.commits"]

# Two busy cores are slow at times, and that is no property of what is tested. A failure prints what repeats it.
hypothesis.settings.register_profile(
    "quick",
    max_examples=QUICK,
    stateful_step_count=40,
    derandomize=False,
    print_blob=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "fuzz", parent=hypothesis.settings.get_profile("quick"), max_examples=EXAMPLES, stateful_step_count=80
)
hypothesis.settings.load_profile("fuzz" if os.environ.get(VARIABLE) else "quick")

# A run that was started in the background ignores Ctrl-C, and so would every program that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Up to 3.11.7 two threads that parse at once spoil each other's count of depth (python/cpython#106905), and a
# SystemError in pytest's own report ends the whole run: one at a time, then.
if sys.version_info < (3, 11, 8):
    _parse, _one_at_a_time = ast.parse, threading.RLock()

    def _parse_alone(*args: Any, **kwargs: Any) -> Any:
        with _one_at_a_time:
            return _parse(*args, **kwargs)

    ast.parse = _parse_alone


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """The name of the argument for bytes that are no text: what a compressor writes may hold the time at which it ran,
    and two processes that collect the same tests have to give them the same names.
    """
    return argname if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()) else None


# How a gRPC server names the tasks of a call.
GRPC_CALL = ("rpc_task", "HandleExceptions[")


@pytest.fixture(autouse=True)
async def no_task_is_left_behind() -> AsyncIterator[None]:
    """Fails a test whose code has left an asyncio task running."""
    before = asyncio.all_tasks()
    yield
    # One turn for tasks that are done but for their last step; those that were told to end may need some, and those
    # of a gRPC server end some turns after their call was answered or their server stopped.
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if ending := {task for task in left if task.cancelling() or task.get_name().startswith(GRPC_CALL)}:
        await asyncio.wait(ending, timeout=30)
    left = {task for task in left if not task.done()}
    assert not left, f"left behind: {left}"


@pytest.fixture(autouse=True)
def the_log_is_as_it_was() -> Iterator[None]:
    """Takes back what a test has set the log to: its streams are closed with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def said(the_log_is_as_it_was: None) -> Iterator[list[EventDict]]:
    """The lines that the control plane logs during the test."""
    configure_log("info")
    with capture_logs() as lines:
        yield lines
