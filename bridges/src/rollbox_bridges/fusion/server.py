"""The server: whose a request is, when its turn is, and how it is answered."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from rollbox import SandboxError
from rollbox.printable import what_broke
from rollbox_bridges.answering import answered, runner_of
from rollbox_bridges.clients import Clients
from rollbox_bridges.faults import sentence
from rollbox_bridges.fusion import requests, words
from rollbox_bridges.fusion.languages import RECIPES
from rollbox_bridges.fusion.requests import Notebook, Program
from rollbox_bridges.fusion.running import LanguageMissing, run
from rollbox_bridges.fusion.settings import Settings
from rollbox_bridges.fusion.shelves import Kind, Shelves
from rollbox_bridges.fusion.turns import Turns
from rollbox_bridges.fusion.words import Refusal
from rollbox_bridges.keys import owner_key

_log = logging.getLogger("rollbox_bridges")
_MOST_BODY_BYTES: Final = 2**26
_BODY_S: Final = 60.0
# Clients give up when nothing comes for 10 s beyond the time of the program.
_ALIVE_S: Final = 5.0
_DATASETS: Final = frozenset({"submit", "get_prompts", "get_prompt_by_id", "list_datasets", "list_ids", "get_metrics"})


class Bridge:
    """Serves SandboxFusion's protocol.

    Args:
        settings: of it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = Clients(settings.url)
        self._shelves = Shelves(settings, self._clients)
        self._turns = Turns(settings.at_once, settings.waiting)
        # What images have turned out not to have; a new image of the same name is tried after a restart.
        self._missing: set[tuple[str, str]] = set()
        # They undo what they have begun longer than the server waits for their requests.
        self._working: set[asyncio.Task[dict[str, Any]]] = set()

    def runner(self) -> web.AppRunner:
        """What serves it once it is set up, and deletes its sandboxes at its cleanup."""
        return runner_of(self.handle, self._cleanup)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request, whatever becomes of it."""

        def told(error: Exception) -> web.Response:
            if isinstance(error, Refusal):
                _log.info("%s %s was refused: %s", request.method, request.path[:200], str(error)[:500])
            else:
                _log.error("a request failed", exc_info=error)
                error = Refusal(500, f"the bridge has failed: {what_broke(error)}")
            return web.json_response(error.body(), status=error.status, headers=error.headers)

        return await answered(request, self._served(request), told)

    async def _served(self, request: web.Request) -> web.StreamResponse:
        match request.method, request.path.strip("/"):
            case "GET" | "HEAD", "v1/ping":
                return web.json_response("pong")
            case "POST", "run_code":
                return await self._asked(request, requests.program_of)
            case "POST", "run_jupyter":
                return await self._asked(request, requests.notebook_of)
            case _, path if path.split("/")[0] in _DATASETS:
                raise Refusal(
                    501, f"{path[:100]} is not supported by rollbox's bridge: it runs code, and has no data sets"
                )
            case _, "run_code" | "run_jupyter" | "v1/ping":
                raise Refusal(405, "Method Not Allowed")
        raise Refusal(404, "Not Found")

    async def _asked(self, request: web.Request, read: Callable[[bytes], Program | Notebook]) -> web.StreamResponse:
        """Serve a request that runs something: its body is read at once, and it runs when its turn is."""
        key = self._key(request)
        async with self._turns.admitted(_size(request)):
            asked = read(await _body(request))
            kind = Kind(key, self._settings.image_of(asked.language), asked.memory_bytes)
            if (kind.image, asked.language) in self._missing:
                raise self._unknown(asked.language)
            task = asyncio.create_task(self._run(asked, kind), name="rollbox bridge request")
            self._working.add(task)
            task.add_done_callback(self._working.discard)
            return await _told(request, task)

    async def _run(self, asked: Program | Notebook, kind: Kind) -> dict[str, Any]:
        """Run it when its turn is.

        Raises:
            Refusal: it cannot be run.
        """
        async with self._turns.turn():
            try:
                return await run(asked, kind, self._shelves)
            except LanguageMissing as error:
                _log.warning("%s of %s is refused from now on: %s", asked.language, kind.image, error)
                self._missing.add((kind.image, asked.language))
                raise self._unknown(asked.language) from error
            except SandboxError as error:
                if (refusal := words.refusal_of(error)) is not None:
                    raise refusal from error
                _log.warning("a request failed: %s", sentence(error))
                return words.failure(sentence(error), notebook=isinstance(asked, Notebook))

    def _unknown(self, language: str) -> Refusal:
        lacking = {name for name in RECIPES if (self._settings.image_of(name), name) in self._missing}
        return requests.unknown_language(language, [name for name in RECIPES if name not in lacking])

    def _key(self, request: web.Request) -> str | None:
        """The owner's key of a request; None: the bridge's own."""
        given = _credential(request)
        if given is None and self._settings.keyless:
            return None
        key = None if given is None else owner_key(given, self._settings.keys)
        if key is None:
            detail = "there is no key in the request: give it as the password of the address, http://rollbox:KEY@HOST"
            wrong = "the key of the request is none of this bridge"
            raise Refusal(401, detail if given is None else wrong, {"WWW-Authenticate": "Basic"})
        return key

    async def _cleanup(self, _: web.Application) -> None:
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
        await self._shelves.aclose()
        await self._clients.aclose()


def _credential(request: web.Request) -> str | None:
    """What a request has as its key: a password, which clients take from the address, or a token."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return request.headers.get("X-API-Key")
    try:
        user, _, password = b64decode(value, validate=True).decode().partition(":")
    except (NotBase64, ValueError):
        return ""
    return password or user


def _size(request: web.Request) -> int:
    """How long a body is.

    Raises:
        Refusal: that is not said, it is too long, or no JSON.
    """
    # Pages of browsers can send other types elsewhere without being asked.
    if request.content_type != "application/json":
        raise Refusal(415, f"the body is {request.content_type[:100]!r}, not application/json")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Refusal(415, "the body is compressed: send it as it is")
    if request.content_length is None:
        raise Refusal(411, "the length of the body is not said: send a Content-Length")
    if request.content_length > _MOST_BODY_BYTES:
        raise Refusal(413, f"the body has {request.content_length} bytes, over the {_MOST_BODY_BYTES} that are taken")
    return request.content_length


async def _body(request: web.Request) -> bytes:
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.content.iter_any():
                data += part
    except TimeoutError as error:
        raise Refusal(408, f"the body had not come after {_BODY_S:g} s") from error
    return bytes(data)


async def _told(request: web.Request, task: asyncio.Task[dict[str, Any]]) -> web.StreamResponse:
    """Answer with the result of work; while that takes long, blanks before the JSON say that it goes on.

    Raises:
        Refusal: of the work, where nothing was sent yet; else it is the answer.
    Cancel safety: the work is cancelled.
    """
    try:
        if (await asyncio.wait([task], timeout=_ALIVE_S))[0]:
            return web.json_response(task.result())
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while not task.done():
            await response.write(b" ")
            await asyncio.wait([task], timeout=_ALIVE_S)
        await response.write_eof(json.dumps(_late(request, task)).encode())
        return response
    finally:
        task.cancel()
        await asyncio.wait([task])


def _late(request: web.Request, task: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    """The result of work whose answer has begun."""
    try:
        return task.result()
    except Refusal as error:
        _log.info("%s was refused: %s", request.path[:200], str(error)[:500])
        return words.failure(str(error), notebook=request.path.strip("/") == "run_jupyter")
