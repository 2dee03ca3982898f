"""The gateway's API: one method for each route, with retries, token refresh and the cleanup after cancelled calls."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import uuid4

import aiohttp
from yarl import URL

from rollbox import labels as label_rules
from rollbox import tracing
from rollbox._problem import SandboxError
from rollbox.breaker import Breaker, BreakerPolicy
from rollbox.deadline import Deadline
from rollbox.errors import (
    ExecNotFound,
    InvalidArgument,
    SandboxNotFound,
    Unauthenticated,
)
from rollbox.known_sandboxes import KnownSandboxes
from rollbox.leases import Leases
from rollbox.record import SandboxRecord
from rollbox.recording import current
from rollbox.retry import REPEATABLE, RetryPolicy, repeat
from rollbox.settings import Settings
from rollbox.stalled_gateway import Attempts
from rollbox.transport import Answer, Body, Source, Transport

_T = TypeVar("_T")
Query: TypeAlias = Sequence[tuple[str, str | bytes]]
_log = logging.getLogger("rollbox")

CALL_ID = "Call-Id"
"""The header that names a create, the same for all its attempts. With it a cancelled create withdraws only itself, not
other creates with the same idempotency key."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_CALL_LIMIT_S = 60.0
# Added to an exec's timeout, for the kill and for much output; an answer later than that counts as lost. A guess.
_GRACE_S = 60.0
# The same for a call that the server answers at its deadline in any case.
_ANSWER_GRACE_S = 5.0
# The header with the time left of `start_timeout`: a retry has less than the body says, which must not change.
_LEFT = "Start-Timeout-Ms"
_HEALTH_LIMIT_S = 5.0
# For the question whether a command runs, while its answer has not come.
_LOOK_LIMIT_S = 5.0
# The ttl of the lease that `attach` gives to a sandbox without one: the default of a create.
ATTACHED_MS = 600_000
# The time limit of the cleanup after a cancelled call, which the caller waits for.
_CLEANUP_LIMIT_S = 2.0
# A cancelled exec may reach the server after the first request that kills it: after this pause a second one is sent.
_SECOND_LOOK_S = 0.05


# The header of answers of a sandbox whose node is drained: when it ends at the latest (Unix ms).
_DRAINING = "Rollbox-Draining-At-Ms"

# The codes of calls that the server may or may not have carried out.
_LOST_ANSWERS = ("stream_interrupted", "upstream_timeout")


class SandboxAccess:
    """The token of one sandbox, shared by all its calls, and its exec URL (built only once, which takes 20 us).

    Attributes:
        on_draining: called with what the answer to a command has said of its drain (Unix ms; None: nothing).
    """

    __slots__ = ("exec_url", "on_draining", "refreshing", "sandbox_id", "token")

    def __init__(self, sandbox_id: str, token: str, exec_url: URL) -> None:
        self.sandbox_id = sandbox_id
        self.token = token
        self.exec_url = exec_url
        self.refreshing = asyncio.Lock()
        self.on_draining: Callable[[int | None], None] | None = None


class Opened(NamedTuple):
    """A sandbox's record and the access to it."""

    record: SandboxRecord
    access: SandboxAccess


class Page(NamedTuple):
    """A page or file of the console."""

    content: bytes
    media_type: str


class Gateway:
    """All calls to one gateway from one event loop."""

    def __init__(self, settings: Settings, retries: RetryPolicy, breaker: BreakerPolicy | None = None) -> None:
        self.settings = settings
        self.breaker = Breaker(breaker or BreakerPolicy())
        self._retries = retries
        self._transport = Transport(settings.url)
        self._background: set[asyncio.Task[Any]] = set()
        self.leases = Leases(self)
        self.known_sandboxes = KnownSandboxes()

    async def create(self, body: Mapping[str, Any], key: str, *, forget: bool, deadline: Deadline) -> Opened:
        """Create a sandbox and return it ready.

        Args:
            body: from `request.create_body`.
            key: the idempotency key; the same for every attempt.
            forget: withdraw the create when it gives up without knowing its result.
            deadline: of the call with all its retries; each attempt sends the time that is left.

        Raises:
            SandboxError: also when the circuit breaker refuses the create (see `breaker`).

        Cancel safety: withdraws this create, within 2 s; a sandbox that another call has with the same key lives on.
        The server refuses attempts of this create that arrive later.
        """
        body = current.labelled(body)
        if tracing.tracer() is None:
            return await self._noted(body, key, forget=forget, deadline=deadline)
        with tracing.creating(body) as made:
            opened = await self._noted(body, key, forget=forget, deadline=deadline)
            made(opened.record)
            return opened

    async def _noted(self, body: Mapping[str, Any], key: str, *, forget: bool, deadline: Deadline) -> Opened:
        run = current.current()
        if run is None:
            return await self._opened(body, key, forget=forget, deadline=deadline)
        with run.creating(body) as create:
            opened = await self._opened(body, key, forget=forget, deadline=deadline)
            create.made(opened.record)
            return opened

    async def _opened(self, body: Mapping[str, Any], key: str, *, forget: bool, deadline: Deadline) -> Opened:
        with self.breaker.watching():
            return self.opened((await self._create(body, key, forget=forget, deadline=deadline)).body)

    async def _create(self, body: Mapping[str, Any], key: str, *, forget: bool, deadline: Deadline) -> Answer:
        call_id = uuid4().hex
        headers = {"Idempotency-Key": key, CALL_ID: call_id}
        url, data = self._url(), json.dumps(self.leases.with_lease(body)).encode()
        try:
            return await self._call("POST", url, data, headers=headers, deadline=deadline)
        except asyncio.CancelledError:
            await self.run_cleanup(self._withdraw_create(key, call_id))
            raise
        except SandboxError as error:
            if forget and error.code in REPEATABLE:
                await self.run_cleanup(self._withdraw_create(key, call_id))
            raise

    async def connect(self, sandbox_id: str, *, attach: bool = False) -> Opened:
        """Get a fresh token and the sandbox's record; with `attach`, put the sandbox on this client's lease."""
        opened = self.opened((await self._call("POST", self._url(sandbox_id, "token"), sandbox_id=sandbox_id)).body)
        if not attach:
            return opened
        lease = self.leases.of((opened.record.lease or {"ttl_ms": ATTACHED_MS})["ttl_ms"])
        body = json.dumps(lease).encode()
        answer = await self._call("PUT", self._url(sandbox_id, "lease"), body, sandbox_id=sandbox_id)
        return Opened(SandboxRecord.from_json(answer.body), opened.access)

    async def detach(self, sandbox_id: str) -> SandboxRecord:
        """Remove a sandbox's lease, so that it outlives its client."""
        answer = await self._call("DELETE", self._url(sandbox_id, "lease"), sandbox_id=sandbox_id)
        return SandboxRecord.from_json(answer.body)

    async def extend(self, access: SandboxAccess, ttl_ms: int) -> SandboxRecord:
        """Extend the life of a sandbox; the token is renewed with it."""
        url = self._url(access.sandbox_id, "extend")
        answer = await self._call("POST", url, json.dumps({"ttl_ms": ttl_ms}).encode(), sandbox_id=access.sandbox_id)
        access.token = answer.body.get("token", access.token)
        return SandboxRecord.from_json(answer.body)

    async def commit(
        self, sandbox_id: str, what: str, body: Mapping[str, Any], key: str | None, deadline: Deadline
    ) -> dict[str, Any]:
        """Make an image of a sandbox; all attempts have one key, so that one whose answer was lost is joined.

        Args:
            sandbox_id: which one.
            what: "commit" or "checkpoint".
            body: of the call, without its timeout.
            key: the idempotency key; None: a random one.
            deadline: of all attempts.
        """
        url, headers = self._url(sandbox_id, what), {"Idempotency-Key": key or uuid4().hex}

        async def once() -> Answer:
            left_s = max(1.0, deadline.left_s())
            data = json.dumps({**body, "timeout_ms": math.ceil(1000 * left_s)}).encode()
            limit_s = left_s + _ANSWER_GRACE_S
            key = self.settings.api_key
            return await self._transport.send("POST", url, key, data, headers=headers, limit_s=limit_s, whole=True)

        try:
            answer: dict[str, Any] = (await repeat(self._retries, once, deadline=deadline)).body
        except SandboxError as error:
            error.sandbox_id = error.sandbox_id or sandbox_id
            self.known_sandboxes.raise_if_forgotten(error)
            raise
        return answer

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """Get the record of one sandbox, ended or not."""
        return SandboxRecord.from_json((await self._call("GET", self._url(sandbox_id), sandbox_id=sandbox_id)).body)

    async def list(self, labels: Mapping[str, str] | None, *, ended: bool) -> list[SandboxRecord]:
        """Get the records of all sandboxes with these labels."""
        query = [*label_rules.query(labels), *([("all", "true")] if ended else [])]
        answer = await self._call("GET", self._url().with_query(query))
        return [SandboxRecord.from_json(item) for item in answer.body["sandboxes"]]

    async def delete(self, sandbox_id: str, *, wait_s: float = 0.0) -> SandboxRecord:
        """Delete one sandbox. Cancel safety: the delete goes on; `aclose` waits for it.

        Args:
            sandbox_id: which one.
            wait_s: seconds in all to wait for the cluster's confirmation; 0: do not wait.
        """
        try:
            record = SandboxRecord.from_json(await self._delete(self._url(sandbox_id), wait_s))
        except SandboxError as error:
            error.sandbox_id = error.sandbox_id or sandbox_id
            self.known_sandboxes.raise_if_forgotten(error)
            raise
        self.known_sandboxes.remove(sandbox_id)
        if (run := current.current()) is not None:
            run.deleted(sandbox_id, record.end)
        return record

    async def delete_labelled(self, labels: Mapping[str, str], *, wait_s: float = 0.0) -> dict[str, Any]:
        """Delete all sandboxes with these labels; `wait_s` and cancel safety as in `delete`."""
        return await self._delete_many(self._url().with_query(label_rules.query(labels)), wait_s)

    async def delete_group(self, name: str, *, wait_s: float = 0.0) -> dict[str, Any]:
        """Delete all sandboxes of a group; `wait_s` and cancel safety as in `delete`."""
        return await self._delete_many(self._named("groups", name), wait_s)

    async def _delete_many(self, url: URL, wait_s: float) -> dict[str, Any]:
        answer = await self._delete(url, wait_s)
        self.known_sandboxes.remove(*answer["deleted"])
        if (run := current.current()) is not None:
            for sandbox_id in answer["deleted"]:
                run.deleted(sandbox_id)
        return answer

    async def _delete(self, url: URL, wait_s: float) -> dict[str, Any]:
        clock = asyncio.get_running_loop().time
        until = clock() + wait_s

        async def send() -> Answer:
            # A retry waits for what is left of the caller's time, not for all of it again.
            left_s = max(0.001, until - clock()) if wait_s else 0.0
            asked = url.update_query(wait_ms=str(math.ceil(1000 * left_s))) if wait_s else url
            return await self._transport.send("DELETE", asked, self.settings.api_key, limit_s=left_s + _CALL_LIMIT_S)

        deleting = self._start_background(repeat(self._retries, send))
        body: dict[str, Any] = (await asyncio.shield(deleting)).body
        return body

    async def info(self) -> dict[str, Any]:
        """Return what this installation is and enforces."""
        body: dict[str, Any] = (await self._call("GET", self._address("v1/info"))).body
        return body

    async def call_api(
        self,
        method: str,
        *parts: str,
        query: Query = (),
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline: Deadline | None = None,
        sandbox_id: str | None = None,
    ) -> Any:  # noqa: ANN401
        """Call a route below /v1 with the API key, with retries; returns the JSON of the answer.

        Args:
            method: of HTTP.
            *parts: of the path; each is escaped.
            query: names and values.
            body: sent as JSON.
            headers: beside those of every request.
            deadline: for creates: each attempt sends the time that is left, and none starts after it.
            sandbox_id: of which sandbox the call is; errors that name none name this one.

        Raises:
            SandboxError: the problem that the gateway answered with, or why there is no answer.
        """
        url = self._named(*parts)
        data = None if body is None else json.dumps(body).encode()
        where = url.with_query(query) if query else url
        answer = await self._call(method, where, data, headers=headers, deadline=deadline, sandbox_id=sandbox_id)
        return answer.body

    async def page(self, *parts: str, query: Query = ()) -> Page:
        """Get a page below /v1 that is no JSON, without retries.

        Args:
            *parts: of the path; each is escaped.
            query: names and values.

        Raises:
            SandboxError: the problem that the platform answered with, or why there is no answer.
        """
        url = self._address("/".join(("v1", *(quote(part, safe="") for part in parts))))
        where = url.with_query(query) if query else url
        async with self._transport.exchange("GET", where, self.settings.api_key) as body:
            return Page(await body.everything(), body.headers.get("Content-Type", "application/octet-stream"))

    async def healthy(self) -> None:
        """Send one request through the gateway to the control plane, without retries; raises its failure."""
        await self._transport.send("GET", self._address("v1/info"), self.settings.api_key, limit_s=_HEALTH_LIMIT_S)

    async def exec(self, access: SandboxAccess, body: Mapping[str, Any]) -> dict[str, Any]:
        """Run a command and return its result as JSON.

        Cancel safety: the command is killed on the server, within 2 s.
        """
        if tracing.tracer() is None:
            return await self._exec_noted(access, body)
        with tracing.executing(access.sandbox_id, body["exec_id"]) as answered:
            answer = await self._exec_noted(access, body)
            answered(answer)
            return answer

    async def _exec_noted(self, access: SandboxAccess, body: Mapping[str, Any]) -> dict[str, Any]:
        run = current.current()
        if run is None:
            return await self._executed(access, body)
        with run.executing(access.sandbox_id) as answered:
            answer = await self._executed(access, body)
            answered(answer)
            return answer

    async def _executed(self, access: SandboxAccess, body: Mapping[str, Any]) -> dict[str, Any]:
        timeout_ms = body.get("timeout_ms")
        deadline = Deadline(timeout_ms / 1000 + _GRACE_S) if timeout_ms else None
        return await self._started(access, access.exec_url, body, deadline, watched=True)

    async def spawn(self, access: SandboxAccess, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start a command and return `{exec_id, pid, ...}`. Cancel safety: as `exec`."""
        return await self._started(access, self.sandbox_url(access, "execs"), body, limit_s=_CALL_LIMIT_S)

    async def end_exec(self, access: SandboxAccess, exec_id: str) -> None:
        """Kill a command with all its processes, within 2 s; failures are logged. Cancel safety: the kill goes on."""
        await self.run_cleanup(self._cancel(access, exec_id))

    async def call_sandbox(
        self,
        access: SandboxAccess,
        method: str,
        *parts: str,
        query: Query = (),
        body: Mapping[str, Any] | None = None,
        idempotent: bool = True,
        deadline: Deadline | None = None,
    ) -> Any:  # noqa: ANN401
        """Call a route of one sandbox with its token, with retries; returns the JSON of the answer.

        Args:
            access: the sandbox, with its token.
            method: of HTTP.
            *parts: of the path below the sandbox; each is escaped.
            query: names and values; bytes are sent unchanged.
            body: sent as JSON.
            idempotent: whether the call may be repeated after a lost answer; else the error is raised.
            deadline: no attempt starts after it.

        Raises:
            SandboxError: the problem that the gateway answered with, or why there is no answer.
        """
        url = self.sandbox_url(access, *parts, query=query)
        data = None if body is None else json.dumps(body).encode()

        async def once() -> Answer:
            limit_s = _CALL_LIMIT_S if deadline is None else min(_CALL_LIMIT_S, deadline.left_s() + _ANSWER_GRACE_S)
            return await self.with_token(
                access, lambda token: self._transport.send(method, url, token, data, limit_s=limit_s)
            )

        try:
            answer = await repeat(self._retries, once, deadline=deadline, final=() if idempotent else _LOST_ANSWERS)
        except SandboxError as error:
            error.sandbox_id = access.sandbox_id
            raise
        return answer.body

    @asynccontextmanager
    async def exchange_api(
        self,
        method: str,
        *parts: str,
        query: Query = (),
        source: Source | None = None,
        media_type: str = "application/json",
    ) -> AsyncIterator[Body]:
        """Call a route below /v1 with the API key, whose answer is streamed, without retries.

        Args:
            method: of HTTP.
            *parts: of the path below /v1.
            query: names and values.
            source: makes the body; None: there is none.
            media_type: of that.
        """
        url = self._named(*parts).with_query(query)
        headers = {} if source is None else {"Content-Type": media_type}
        async with self._transport.exchange(method, url, self.settings.api_key, source=source, headers=headers) as body:
            yield body

    @asynccontextmanager
    async def exchange(
        self,
        access: SandboxAccess,
        method: str,
        *parts: str,
        query: Query = (),
        source: Source | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Body]:
        """Call a route of one sandbox with streamed bodies, without retries; see `Transport.exchange`.

        Args:
            access: the sandbox, with its token.
            method: of HTTP.
            *parts: of the path below the sandbox; each is escaped.
            query: names and values; bytes are sent unchanged.
            source: the body, or makes it.
            headers: beside those of every request.

        Yields:
            the body of the answer.
        """
        url = self.sandbox_url(access, *parts, query=query)
        try:
            async with AsyncExitStack() as stack:
                yield await self.with_token(
                    access,
                    lambda token: stack.enter_async_context(
                        self._transport.exchange(method, url, token, source=source, headers=headers)
                    ),
                )
        except SandboxError as error:
            error.sandbox_id = access.sandbox_id
            raise

    async def attach(
        self, access: SandboxAccess, exec_id: str, offsets: tuple[int, int]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open the WebSocket of a command, from these output offsets, without retries; pings arrive as messages."""
        query = [("stdout_offset", str(offsets[0])), ("stderr_offset", str(offsets[1]))]
        url = self.sandbox_url(access, "execs", exec_id, "attach", query=query)
        return await self.with_token(access, lambda token: self._transport.websocket(url, token, autoping=False))

    async def open_port(self, access: SandboxAccess, port: int, kind: str) -> aiohttp.ClientWebSocketResponse:
        """Open the WebSocket of a connection to a port ("tcp" or "udp"), without retries."""
        url = self.sandbox_url(access, "ports", str(port), kind)
        try:
            return await self.with_token(access, lambda token: self._transport.websocket(url, token))
        except SandboxError as error:
            error.sandbox_id = access.sandbox_id
            raise

    async def set_port(self, access: SandboxAccess, port: int, visibility: str | None) -> dict[str, Any]:
        """Set the visibility of a port; None resets it to private. Returns its addresses."""
        url = self.sandbox_url(access, "ports", str(port))
        body = None if visibility is None else json.dumps({"visibility": visibility}).encode()
        method = "DELETE" if body is None else "POST"
        answer = await self._call(method, url, body, sandbox_id=access.sandbox_id)
        return dict(answer.body)

    async def repeated(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Run a call with retries."""
        return await repeat(self._retries, call)

    @property
    def retries(self) -> RetryPolicy:
        """The retry policy."""
        return self._retries

    def sandbox_url(self, access: SandboxAccess, *parts: str, query: Query = ()) -> URL:
        """Build a URL below one sandbox."""
        url = self._url(access.sandbox_id, *parts)
        if not query:
            return url
        pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
        return URL(f"{url}?{pairs}", encoded=True)

    async def with_token(self, access: SandboxAccess, call: Callable[[str], Awaitable[_T]]) -> _T:
        """Call with the sandbox's token, and once more with a fresh one when it has expired."""
        token = access.token
        try:
            return await call(token)
        except Unauthenticated:
            await self._refresh(access, token)
            return await call(access.token)
        except SandboxNotFound as error:
            error.sandbox_id = access.sandbox_id
            self.known_sandboxes.raise_if_forgotten(error)
            raise

    async def _started(
        self,
        access: SandboxAccess,
        url: URL,
        body: Mapping[str, Any],
        deadline: Deadline | None = None,
        *,
        limit_s: float | None = None,
        watched: bool = False,
    ) -> dict[str, Any]:
        data = json.dumps(body).encode()
        attempts = Attempts(lambda: self._runs(access, body["exec_id"])) if watched else None

        async def once() -> dict[str, Any]:
            within_s = limit_s if deadline is None else deadline.left_s()

            def sent(apart: bool = False) -> Awaitable[Answer]:
                return self.with_token(
                    access,
                    lambda token: self._transport.send("POST", url, token, data, limit_s=within_s, apart=apart),
                )

            answer = await (sent() if attempts is None else attempts.answer(sent))
            if access.on_draining is not None:
                said = answer.headers.get(_DRAINING, "")
                access.on_draining(int(said) if said.isdigit() else None)
            body: dict[str, Any] = answer.body
            return body

        try:
            return await repeat(self._retries, once, deadline=deadline)
        except asyncio.CancelledError:
            await self.run_cleanup(self._cancel(access, body["exec_id"]))
            raise
        except SandboxError as error:
            error.sandbox_id = access.sandbox_id
            raise

    async def aclose(self) -> None:
        """Stop the leases, wait for the cleanup of cancelled calls, then close the connections. Idempotent."""
        await self.leases.aclose()
        if self._background:
            await asyncio.wait(self._background, timeout=_CLEANUP_LIMIT_S)
        await self._transport.aclose()

    async def _refresh(self, access: SandboxAccess, stale: str) -> None:
        """Get a fresh token, once for all calls that found the old one expired."""
        async with access.refreshing:
            if access.token == stale:
                access.token = (await self.connect(access.sandbox_id)).access.token

    async def _runs(self, access: SandboxAccess, exec_id: str) -> bool:
        """Whether a command runs, asked at a connection of its own; True where nobody can tell."""
        url = self.sandbox_url(access, "execs")
        try:
            answer = await self._transport.send("GET", url, access.token, limit_s=_LOOK_LIMIT_S, apart=True)
        except Unauthenticated:
            return True
        except SandboxError as error:
            return error.code in REPEATABLE
        return any(one["exec_id"] == exec_id and one["running"] for one in answer.body["execs"])

    async def _cancel(self, access: SandboxAccess, exec_id: str) -> None:
        url = self._url(access.sandbox_id, "execs", exec_id)
        try:
            await self._transport.send("DELETE", url, access.token)
        except ExecNotFound:
            await self._retries.sleep(_SECOND_LOOK_S)
            await self._transport.send("DELETE", url, access.token)

    async def _withdraw_create(self, key: str, call_id: str) -> None:
        url = self._url().with_query({"idempotency_key": key})
        await self._transport.send("DELETE", url, self.settings.api_key, headers={CALL_ID: call_id})

    async def _call(
        self,
        method: str,
        url: URL,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        sandbox_id: str | None = None,
        deadline: Deadline | None = None,
    ) -> Answer:
        """Send a request with the API key, with retries, until a create's `deadline`."""

        async def send() -> Answer:
            key = self.settings.api_key
            if deadline is None:
                return await self._transport.send(method, url, key, body, headers=headers, limit_s=_CALL_LIMIT_S)
            left_s = deadline.left_s()
            sent = {**(headers or {}), _LEFT: str(max(1, round(left_s * 1000)))}
            limit_s = left_s + _ANSWER_GRACE_S
            return await self._transport.send(method, url, key, body, headers=sent, limit_s=limit_s, whole=True)

        try:
            return await repeat(self._retries, send, deadline=deadline, until_deadline=True)
        except SandboxError as error:
            error.sandbox_id = error.sandbox_id or sandbox_id
            self.known_sandboxes.raise_if_forgotten(error)
            raise

    def opened(self, body: Mapping[str, Any]) -> Opened:
        """Read an answer that has a sandbox and its token."""
        record = SandboxRecord.from_json(body)
        self.known_sandboxes.add(record.id)
        return Opened(record, SandboxAccess(record.id, body["token"], self._url(record.id, "exec")))

    def _named(self, *parts: str) -> URL:
        if parts[0] == "sandboxes":
            return self._url(*parts[1:])
        if wrong := [part for part in parts if not part or "/" in part or not part.strip(".")]:
            raise InvalidArgument(f"{wrong[0]!r} is not the name of anything here", hint="Names and ids have no slash.")
        return self._address("/".join(("v1", *(quote(part, safe="") for part in parts))))

    def _url(self, *parts: str) -> URL:
        if not all(parts):
            raise InvalidArgument("the id of a sandbox or exec is empty")
        if parts and not _ID.fullmatch(parts[0]):
            raise InvalidArgument(f"{parts[0]!r} is not the id of a sandbox", hint="`rollbox ps` lists them.")
        return self._address("/".join(("v1/sandboxes", *(quote(part, safe="") for part in parts))))

    def _address(self, path: str) -> URL:
        try:
            return URL(f"{self.settings.url}/{path}", encoded=True)
        except ValueError as error:
            raise InvalidArgument(f"the gateway address {self.settings.url!r} is not a URL: {error}") from error

    def _start_background(self, call: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a request that must finish even when its caller is cancelled; `aclose` waits for it."""
        task = asyncio.get_running_loop().create_task(call)
        self._background.add(task)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        # Retrieves the exception, which asyncio reports otherwise when the caller was cancelled and does not await it.
        if not task.cancelled() and task.exception() is not None:
            _log.debug("a delete or a cleanup request failed: %s", task.exception())

    async def run_cleanup(self, call: Coroutine[Any, Any, None]) -> None:
        """Run a cleanup request after a cancelled or failed call, shielded from a second cancellation.

        It may take 2 s. Its failure is logged, not raised.
        """

        async def bounded() -> None:
            async with asyncio.timeout(_CLEANUP_LIMIT_S):
                await call

        try:
            await asyncio.shield(self._start_background(bounded()))
        except (SandboxError, TimeoutError) as error:
            _log.debug("the cleanup request after a cancelled or failed call failed: %s", error)
