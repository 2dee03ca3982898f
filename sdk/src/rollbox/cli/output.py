"""Shared by the commands: running a call, printing errors, exit codes, a spinner for long calls."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TextIO, TypeVar, cast

import typer

from rollbox._problem import SandboxError
from rollbox.cli import layout
from rollbox.errors import InvalidArgument, SandboxNotFound
from rollbox.printable import printable_lines

if TYPE_CHECKING:
    from rich.status import Status

    from rollbox.client import Client
    from rollbox.gateway import Gateway

_C = TypeVar("_C")
_Given_co = TypeVar("_Given_co", covariant=True)
_T = TypeVar("_T")


class _Runner(Protocol[_Given_co]):
    """`run` or `run_on_gateway`."""

    def __call__(
        self, call: Callable[[_Given_co], Awaitable[_T]], *, what: str, as_json: bool = False, quiet: bool = False
    ) -> _T: ...


EXIT_BY_FAULT = {"caller": 2, "workload": 3, "capacity": 4, "platform": 5}
# As a shell reports it.
_EXIT_BY_REASON = {"command_not_found": 127, "not_executable": 126}
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_SPINNER_AFTER_S = 2.0
# A person waits: report soon that no gateway answers, instead of retrying through a restart as programs do.
_TRIES = 3
_WATCH_S = 2.0


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


def run_on_gateway(
    call: Callable[[Gateway], Awaitable[_T]], *, what: str, as_json: bool = False, quiet: bool = False
) -> _T:
    """As `run`, for a call that needs none of what a client knows beside its gateway.

    Args:
        call: gets the gateway.
        what: as for `run`.
        as_json: as for `run`.
        quiet: as for `run`.

    Raises:
        Exit: as `run`.
    """
    from contextlib import aclosing

    from rollbox import settings
    from rollbox.cli.imports import gateway_class
    from rollbox.retry import RetryPolicy

    gateway_of = gateway_class()
    opened = partial(gateway_of, retries=RetryPolicy(tries=_TRIES))
    return _run(lambda: aclosing(opened(settings.resolve())), call, what, as_json=as_json, quiet=quiet)


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
            try:
                return await call(client)
            except SandboxNotFound as error:
                await _suggest(cast("Gateway", getattr(client, "gateway", client)), error)
                raise

    try:
        return asyncio.run(called())
    except SandboxError as error:
        fail(error, as_json=as_json)
    except (KeyboardInterrupt, asyncio.CancelledError) as interruption:
        message(f"interrupted while {what}")
        raise typer.Exit(INTERRUPTED if isinstance(interruption, KeyboardInterrupt) else TERMINATED) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question whether one of the known names was meant that is like this one; "" for none."""
    from difflib import get_close_matches

    there = [*known]
    longer = [one for one in there if name and one.startswith(name)]
    found = longer if len(longer) == 1 else get_close_matches(name, there, n=1, cutoff=0.75)
    return f"Did you mean {found[0]}?" if found else ""


async def _suggest(gateway: Gateway, error: SandboxNotFound) -> None:
    """Add to the error the id of a sandbox that was meant, where one of the owner's is alike."""
    with suppress(SandboxError):
        there = [record.id for record in await gateway.list(None, ended=False)]
        if error.sandbox_id and (meant := nearest(error.sandbox_id, there)):
            error.hint = f"{meant} {error.hint}"


def standard_streams() -> None:
    """Let every standard stream be one: what the program was started without gives nothing, and fails to be written.

    Without this the next file or connection would get the number of the stream, and all that is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number, which is that of the stream: those before it are taken by now.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDONLY), mode))


@contextmanager
def exit_on_bad_stdout() -> Iterator[None]:
    """End the program when stdout takes no more: quietly when its reader is gone, as with `| head`, else saying so.

    Raises:
        Exit: with the code that a shell reports for SIGPIPE, or that of a mistake of the caller's.
    """
    try:
        yield
    except OSError as error:
        # An error about a file has its name, and no other stream is written to without being asked.
        if not isinstance(error, BrokenPipeError) and (error.errno not in _FULL or error.filename is not None):
            raise
        if (code := getattr(error.__context__, "exit_code", None)) is not None:
            # A usage error that stderr does not take.
            _give_up(sys.stderr)
            raise typer.Exit(code) from None
        _give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(BROKEN_PIPE) from None
        message(f"error: the standard output cannot be written: {error.strerror}", style="bold red")
        raise typer.Exit(EXIT_BY_FAULT["caller"]) from None


def flush_stderr() -> None:
    """Write what is left for stderr; what it does not take is lost, and changes no exit code of the interpreter's."""
    with _spoken():
        pass


def _give_up(stream: TextIO) -> None:
    """Let what is left in the stream's buffer go nowhere: the interpreter writes it at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(error: SandboxError, *, as_json: bool = False) -> NoReturn:
    """Print an error on stderr and exit.

    Raises:
        Exit: always, with the code of the error's fault.
    """
    if as_json:
        with _spoken():
            typer.echo(json.dumps(problem(error)), err=True)
    else:
        message(f"error: {error.detail}", style="bold red")
        if advice := f"{error.hint} {error.wait}".strip():
            message(f"hint: {advice}")
        message(f"code: {error.code} ({error.fault})" + (f"  request: {error.request_id}" if error.request_id else ""))
    raise typer.Exit(_EXIT_BY_REASON.get(error.details.get("reason", ""), EXIT_BY_FAULT[error.fault]))


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


def message(text: str, *, style: str = "") -> bool:
    """Print a message for a person, never data, on stderr; returns whether that took it."""
    from rich.console import Console
    from rich.text import Text

    with _spoken() as spoken:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        # Else a stderr without a reader ends the program, and its stdout too.
        console.on_broken_pipe = _raised  # type: ignore[method-assign]
        told = layout.wrapped(printable_lines(text), console.width if console.is_terminal else None)
        console.print(Text(told, style=style))
        spoken.append(True)
    return bool(spoken)


def _raised() -> NoReturn:
    raise  # noqa: PLE0704  # Called while the error is handled.


@contextmanager
def _spoken() -> Iterator[list[bool]]:
    """Leave a message unsaid that stderr does not take: the exit code says the rest."""
    spoken: list[bool] = []
    try:
        yield spoken
        sys.stderr.flush()
    except OSError:
        spoken.clear()
        _give_up(sys.stderr)


def made(text: str, what: str, undo: Callable[[], object] | None = None) -> None:
    """Print what names a thing that was made and stays.

    Args:
        text: for stdout.
        what: for stderr, where stdout does not take it.
        undo: takes the thing away again where nobody can be told; None: its name is the caller's own.

    Raises:
        OSError: of stdout, after what is lost was said on stderr, or undone.
    """
    try:
        typer.echo(text)
    except OSError:
        if not message(what) and undo is not None:
            # It may end the program itself, which would write the text once more.
            _give_up(sys.stdout)
            undo()
        raise


def written_file(path: Path, text: str, *, as_json: bool) -> None:
    """Write a file that was asked for, as a shell's `>` does, and say so.

    Raises:
        Exit: it cannot be written, which is printed.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(InvalidArgument(f"{path} cannot be written: {error.strerror}"), as_json=as_json)
    message(f"written: {path}")


def data(value: object) -> None:
    """Print JSON on stdout."""
    typer.echo(json.dumps(value, indent=2))


def line(text: str, *, indent: str = "") -> None:
    """Print lines for a person on stdout; names in them that would control a terminal are made harmless.

    Args:
        text: without the last line end.
        indent: of what goes on in a further line of a terminal.
    """
    typer.echo(layout.wrapped(printable_lines(text), width(), indent=indent))


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]], *, told: bool = False) -> None:
    """Print rows on stdout as `written` has them."""
    typer.echo(written(columns, rows, told=told))


def written(columns: tuple[str, ...], rows: list[tuple[str, ...]], *, told: bool = False) -> str:
    """Write rows: a line each into a pipe, on a terminal as they fit (`layout.table`). Nothing is cut.

    Args:
        columns: their names.
        rows: of as many cells.
        told: the last column has sentences.
    """
    return layout.table(columns, rows, width(), told=told)


def width() -> int | None:
    """Return the columns of the terminal that stdout is, None where it is none."""
    return shutil.get_terminal_size().columns if on_terminal() else None


def plain(number: float) -> str:
    """Write a number for people: whole, or with three decimals at most; never with an exponent."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def shown(
    call: Callable[[_C], Awaitable[_T]],
    text: Callable[[_T], str],
    to_json: Callable[[_T], object],
    *,
    what: str,
    as_json: bool,
    watch: bool = False,
    on: _Runner[_C] | None = None,
) -> _T:
    """Print what a call returns: once, or with `watch` anew every two seconds until Ctrl-C.

    Args:
        call: gets the client, or what `on` gives it.
        text: writes it for people.
        to_json: writes it for programs.
        what: as for `run`.
        as_json: print JSON; with `watch` one line each time.
        watch: go on; for people only on a terminal.
        on: `run_on_gateway` for a call that needs no more; None is `run`.

    Raises:
        Exit: as `run`; or people want to watch without a terminal.
    """
    runs = cast("_Runner[_C]", run) if on is None else on
    if not watch:
        found = runs(call, what=what, as_json=as_json)
        told = "" if as_json else text(found)
        data(to_json(found)) if as_json else typer.echo(told, nl=bool(told))
        return found
    if not as_json and not on_terminal():
        hint = "With --json it prints a line each time, into a pipe too."
        fail(InvalidArgument("--watch redraws a terminal, and stdout is none", hint=hint))
    return runs(
        lambda client: _watched(lambda: call(client), text, to_json, as_json=as_json),
        what=what,
        as_json=as_json,
        quiet=True,
    )


async def _watched(
    call: Callable[[], Awaitable[_T]], text: Callable[[_T], str], to_json: Callable[[_T], object], *, as_json: bool
) -> NoReturn:
    import asyncio

    if as_json:
        while True:
            typer.echo(json.dumps(to_json(await call())))
            sys.stdout.flush()
            await asyncio.sleep(_WATCH_S)
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            live.update(Text(text(await call()), overflow="fold"), refresh=True)
            await asyncio.sleep(_WATCH_S)


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
