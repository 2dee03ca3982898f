"""The tools for servers in a sandbox. Their docstrings are what a model is told of them."""

from __future__ import annotations

import base64
import re
from typing import Final

import aiohttp
from yarl import URL

from rollbox.errors import InvalidArgument, PortUnreachable
from rollbox.printable import what_broke
from rollbox_integrations.mcp.excerpts import before
from rollbox_integrations.mcp.inputs import PublishPort, RequestPort
from rollbox_integrations.mcp.outputs import AnswerOutput, PortOutput
from rollbox_integrations.mcp.sandboxes import Sandboxes

# Who sends the request says these, not a model: where a message ends, and the sandbox's credential.
_NOT_YOURS: Final = {"host", "connection", "content-length", "transfer-encoding", "upgrade", "x-rollbox-token"}
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]{0,8192}")
_MOST_HEADERS: Final = 64
_MOST_VALUE: Final = 1024
# A part of a path that leads up, however it is written.
_UP: Final = re.compile(r"(?i)(^|[/\\]|%2f|%5c)(\.|%2e){1,2}($|[/\\?#]|%2f|%5c)")


async def request_port(sandboxes: Sandboxes, given: RequestPort) -> AnswerOutput:
    """Send an HTTP request to a server that runs in the sandbox, once something listens on its port.

    Redirects are not followed. The port stays private.
    """
    _check(given)
    ports = sandboxes.get(given.sandbox_id).sandbox.ports
    await ports.wait(given.port, timeout=given.wait)
    exposed = await ports.expose(given.port)
    url = URL(exposed.url.rstrip("/") + given.path, encoded=True)
    limit = aiohttp.ClientTimeout(total=given.timeout)
    try:
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=limit) as session,
            session.request(
                given.method,
                url,
                headers={**given.headers, **exposed.headers},
                data=given.body.encode() or None,
                allow_redirects=False,
            ) as answer,
        ):
            return await _told(answer, given.max_bytes)
    except (aiohttp.ClientError, TimeoutError) as error:
        detail = f"port {given.port} gave no whole answer in {given.timeout:g} s: {what_broke(error)}"
        raise PortUnreachable(detail, sandbox_id=given.sandbox_id) from error


async def publish_port(sandboxes: Sandboxes, given: PublishPort) -> PortOutput:
    """Let anybody who has the address reach a port of the sandbox over HTTP, or make it private again."""
    ports = sandboxes.get(given.sandbox_id).sandbox.ports
    exposed = await (ports.expose(given.port, public=True) if given.public else ports.close(given.port))
    return PortOutput(port=given.port, public=exposed.public, url=exposed.url, host_url=exposed.host_url)


def _check(given: RequestPort) -> None:
    if _UP.search(given.path) or "#" in given.path:
        raise InvalidArgument(f"path {given.path!r} has a part that leads up, or a fragment: no server is sent such")
    if mine := _NOT_YOURS & {name.lower() for name in given.headers}:
        raise InvalidArgument(f"headers {', '.join(sorted(mine))} are not for the caller to say")
    if wrong := [
        name for name, value in given.headers.items() if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value))
    ]:
        raise InvalidArgument(f"headers {wrong!r}: the name or the value is none that HTTP can carry")


async def _told(answer: aiohttp.ClientResponse, most: int) -> AnswerOutput:
    data = bytearray()
    # One byte more, to see whether there is more.
    while len(data) <= most and (part := await answer.content.read(most + 1 - len(data))):
        data += part
    truncated = len(data) > most
    cut = bytes(data[: before(bytes(data), most)]) if truncated else bytes(data)
    try:
        body, encoding = cut.decode(), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(cut).decode(), "base64"
    headers = {name: value[:_MOST_VALUE] for name, value in list(answer.headers.items())[:_MOST_HEADERS]}
    told = {"status": answer.status, "headers": headers, "body": body, "encoding": encoding, "truncated": truncated}
    return AnswerOutput.model_validate(told)
