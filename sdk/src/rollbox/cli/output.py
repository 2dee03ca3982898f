"""Shared by the commands: running a call, printing errors, exit codes, a spinner for long calls."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from rollbox._problem import SandboxError

if TYPE_CHECKING:
    from rich.status import Status

    from rollbox.client import Client
    from rollbox.gateway import Gateway

_C = TypeVar("_C")
_T = TypeVar("_T")

EXIT_BY_FAULT = {"caller": 2, "workload": 3, "capacity": 4, "platform": 5}
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141
_SPINNER_AFTER_S = 2.0
# A person waits: report soon that no gateway answers, instead of retrying through a restart as programs do.
_TRIES = 3


def run(call: Callable[[Client], Awaitable[_T]], *, what: str, as_json: bool = False, quiet: bool = False) -> _T:
    """Run one call with a client of its own.

    Args:
        call: gets the client.
        what: shown beside the spinner when it takes more than 2 s.
        as_json: print an error as JSON.
        quiet: no spinner, for calls that print output themselves.

    Raises:
        Exit: the call failed, which is printed, with the exit code of the fault; or Ctrl-C or SIGTERM interrupted it.
    """
    from rollbox.cli.imports import client_class
    from rollbox.retry import RetryPolicy

    client_of = client_class()
    return _run(lambda: client_of(retries=RetryPolicy(tries=_TRIES)), call, what, as_json=as_json, quiet=quiet)


def run_on_gateway(call: Callable[[Gateway], Awaitable[_T]], *, what: str, as_json: bool = False) -> _T:
    """As `run`, for a call that needs none of what a client knows beside its gateway.

    Raises:
        Exit: as `run`.
    """
    from contextlib import aclosing

    from rollbox import settings
    from rollbox.cli.imports import gateway_class
    from rollbox.retry import RetryPolicy

    gateway_of = gateway_class()
    opened = partial(gateway_of, retries=RetryPolicy(tries=_TRIES))
    return _run(lambda: aclosing(opened(settings.resolve())), call, what, as_json=as_json)


def _run(
    opened: Callable[[], AbstractAsyncContextManager[_C]],
    call: Callable[[_C], Awaitable[_T]],
    what: str,
    *,
    as_json: bool,
    quiet: bool = False,
) -> _T:
    import asyncio

    async def called() -> _T:
        # SIGTERM cancels the call, as Ctrl-C does: `timeout 10 rollbox exec ...` kills the command on the server too.
        calling = asyncio.current_task()
        if calling is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, calling.cancel)
        async with opened() as client, nullcontext() if quiet else _spinner(what):
            return await call(client)

    try:
        return asyncio.run(called())
    except SandboxError as error:
        fail(error, as_json=as_json)
    except (KeyboardInterrupt, asyncio.CancelledError) as interruption:
        message(f"interrupted while {what}")
        raise typer.Exit(INTERRUPTED if isinstance(interruption, KeyboardInterrupt) else TERMINATED) from None


@contextmanager
def exit_on_closed_stdout() -> Iterator[None]:
    """End the program quietly when the reader of stdout is gone, as with `| head`.

    Raises:
        Exit: with the code that a shell reports for SIGPIPE.
    """
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


def fail(error: SandboxError, *, as_json: bool = False) -> NoReturn:
    """Print an error on stderr and exit.

    Raises:
        Exit: always, with the code of the error's fault.
    """
    if as_json:
        typer.echo(json.dumps(problem(error)), err=True)
    else:
        message(f"error: {error.detail}", style="bold red")
        if error.hint:
            message(f"hint: {error.hint}")
        message(f"code: {error.code} ({error.fault})" + (f"  request: {error.request_id}" if error.request_id else ""))
    raise typer.Exit(EXIT_BY_FAULT[error.fault])


def problem(error: SandboxError) -> dict[str, Any]:
    """Return an error as JSON, with the same names as on the wire."""
    names = (
        "code",
        "fault",
        "retry",
        "mask_sample",
        "detail",
        "hint",
        "details",
        "request_id",
        "sandbox_id",
        "retry_after_ms",
    )
    return {name: getattr(error, name) for name in names}


def message(text: str, *, style: str = "") -> None:
    """Print a message for a person, never data, on stderr."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text, style=style))


def data(value: object) -> None:
    """Print JSON on stdout."""
    typer.echo(json.dumps(value, indent=2))


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows on stdout, one line each however narrow the terminal: nothing is cut, so all can be copied."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        typer.echo("  ".join(map(str.ljust, row, widths)).rstrip())


@asynccontextmanager
async def _spinner(what: str) -> AsyncIterator[None]:
    import asyncio

    status: Status | None = None

    def start() -> None:
        nonlocal status
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal:
            status = console.status(f"{what} …")
            status.start()

    timer = asyncio.get_running_loop().call_later(_SPINNER_AFTER_S, start)
    try:
        yield
    finally:
        timer.cancel()
        if status is not None:
            status.stop()
