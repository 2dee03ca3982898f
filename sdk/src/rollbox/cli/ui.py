"""`rollbox ui`: the console in a browser."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json
from rollbox.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from rollbox.cli.console.front import Front
    from rollbox.gateway import Gateway, Page, Query

_HOST = "127.0.0.1"
# By one of these programs find a browser on Linux; macOS and Windows always have one.
_HAVE_BROWSER = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


def ui(
    *,
    only_print: Annotated[bool, typer.Option("--print", help="Print the address and open no browser.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; 0 takes a free one.")] = 0,
    json: Json = False,
) -> None:
    """Show sandboxes, pools, quotas and ends in a browser, until Ctrl-C. Prints the address, which logs one browser in
    and then lets it look; nothing can be changed there. The API key stays in this process.
    """
    opens = not only_print and not json and output.on_terminal() and has_browser(os.environ, sys.platform)

    async def call(gateway: Gateway) -> None:
        from rollbox.cli.console.front import Front

        async def fetch(parts: tuple[str, ...], query: Query) -> Page:
            return await gateway.page("console", *parts, query=query)

        await _check(gateway)
        await _serve(Front(fetch, output.message), port, opens=opens, as_json=json)

    output.run_on_gateway(call, what="showing the console", as_json=json, quiet=True)


def has_browser(environ: Mapping[str, str], platform: str) -> bool:
    """Whether a browser with windows can be opened here."""
    return platform in ("darwin", "win32") or any(environ.get(name) for name in _HAVE_BROWSER)


async def _check(gateway: Gateway) -> None:
    """Get the first page once, so that what is wrong is said here and not in the browser.

    Raises:
        SandboxError: there is no answer, the key is refused, the platform has no console.
    """
    from rollbox.transport import OLDER

    try:
        await gateway.page("console")
    except InvalidArgument as error:
        if error.hint != OLDER:
            raise
        detail = f"the platform at {gateway.settings.url} has no console: it is older than this client"
        raise Unsupported(
            detail, hint="Upgrade it; `rollbox top`, `rollbox ps` and `rollbox why` work with it."
        ) from error


async def _serve(front: Front, port: int, *, opens: bool, as_json: bool) -> None:
    import asyncio
    import socket
    import webbrowser

    from rollbox.cli.console.front import serving

    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        hint = "Give another one with --port, or none for any free one."
        raise InvalidArgument(f"cannot listen on port {port} of this machine: {error.strerror}", hint=hint) from error
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with listener:
        taken = listener.getsockname()[1]
        url = f"http://{_HOST}:{taken}{front.login_path}"
        async with serving(front, listener):
            output.data({"url": url}) if as_json else output.line(url)
            sys.stdout.flush()
            output.message("The address logs in one browser, within ten minutes; Ctrl-C ends it.")
            if opens:
                await asyncio.to_thread(webbrowser.open, url)
            else:
                output.message(
                    f"From another machine: ssh -L {taken}:{_HOST}:{taken} THIS_MACHINE, then the same address."
                )
            await stop.wait()
