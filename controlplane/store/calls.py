"""Calls to one Redis: with bounded connections, timeouts and retries; every failure is a ``Problem``."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as AwayError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as SlowError

from controlplane.errors import Problem
from controlplane.store.line import Line, Reply, command
from controlplane.store.protocol import StoreLostError
from controlplane.store.scripts import Value, scripts

# A step takes a tenth of a millisecond; a Redis that needs this long counts as unavailable.
CALL_TIMEOUT_S: Final = 2.0
TRIES: Final = 3
# The connections for pipelines (``piped``); further pipelines wait for a connection.
CONNECTIONS: Final = 32
# How many steps go in one message: they take Redis some milliseconds.
TOGETHER: Final = 128
# Run before any other script is loaded. A restarted Redis has no scripts, so no replica can read a record that may be
# stale before this script has marked the store as lost.
_FIRST: Final = "restarted"
# No answer to a client depends on it, so it goes along with the next message, or after ``BEHIND_S``.
_BEHIND: Final = "free_slot"
BEHIND_S: Final = 0.01

T = TypeVar("T")
# A command, the future for its reply, and when it was asked for (s, the loop's time).
_Step = tuple[bytes, asyncio.Future[Any], float]


class Calls:
    """The connections to one Redis, and the scripts in it.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``; may contain a password, so it is never logged.
        prefix: of every key.
        failed: called for every call that failed, for a metric.
        took: called with the time (s) of every step that was answered, for a metric.
    """

    def __init__(
        self, url: str, prefix: str, failed: Callable[[], None], took: Callable[[float], None] = lambda _: None
    ) -> None:
        self.prefix = prefix
        self._url = url
        self._failed = failed
        self._took = took
        self._retry = retry = Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.05), TRIES)
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=CALL_TIMEOUT_S * TRIES,
            socket_timeout=CALL_TIMEOUT_S,
            socket_connect_timeout=CALL_TIMEOUT_S,
            retry=retry,
            retry_on_error=[AwayError, SlowError],
            decode_responses=True,
        )
        self.redis: Redis = Redis(connection_pool=pool)
        options = pool.connection_kwargs
        self.where = str(options.get("path") or f"{options.get('host')}:{options.get('port')}")
        self._scripts = scripts()
        self._digests: dict[str, str] = {}
        self._line = self.line()
        self._long, self._reading = self.line(), asyncio.Lock()
        self._steps: list[_Step] = []
        self._sending: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    async def load(self) -> None:
        """Loads the scripts into Redis, and before that marks the store as lost if Redis was restarted.

        Raises:
            Problem: upstream_timeout, it does not answer.
        """
        await self._load(_FIRST)
        if run := await self._current_run():
            marked = self._scripts[_FIRST].values({"run": run})
            await self.asked(self.redis.evalsha(self._digests[_FIRST], 1, self.prefix, *marked))
        for name in self._scripts:
            await self._load(name)

    def line(self) -> Line:
        """A new connection; the caller closes it."""
        return Line(self._url, CALL_TIMEOUT_S)

    async def run(self, name: str, /, **args: Value) -> Any:  # noqa: ANN401 - Redis' own types
        """Runs one script: one round trip, more after a restart of Redis, when the scripts have to be loaded.

        Calls that are made while a message is under way are batched in the next one, which costs a tenth under load.
        """
        began_s = time.perf_counter()
        try:
            answer = await self.asked(self._step(name, args))
        except NoScriptError:
            await self.load()
            answer = await self.asked(self._step(name, args))
        self._took(time.perf_counter() - began_s)
        return answer

    async def read(self, name: str, /, **args: Value) -> Any:  # noqa: ANN401 - Redis' own types
        """Runs one script with a long answer, on a separate connection, so that calls of ``run`` do not wait for it."""
        try:
            return await self.asked(self._read(name, args))
        except NoScriptError:
            await self.load()
            return await self.asked(self._read(name, args))

    async def piped(self, pipe: Pipeline) -> Sequence[Any]:
        """Runs a pipeline of ``pipe``; returns the replies to the commands that were added.

        Raises:
            StoreLostError: the store has no ``intact`` key.
        """
        mark, *answers = await self.asked(pipe.execute())
        if not mark:
            raise StoreLostError(self.where)
        return answers

    def pipe(self) -> Pipeline:
        """A pipeline for ``piped``: an atomic read whose first command checks the ``intact`` key."""
        pipe = self.redis.pipeline(transaction=True)
        pipe.exists(f"{self.prefix}intact")
        return pipe

    async def asked(self, call: Awaitable[T]) -> T:
        """Awaits one call, and converts its failures.

        Raises:
            Problem: upstream_timeout, after retries.
            StoreLostError: a script found no ``intact`` key.
            NoScriptError: the scripts have to be loaded first.
        """
        try:
            return await call
        except NoScriptError:
            raise
        except ResponseError as error:
            if str(error).startswith("LOST"):
                raise StoreLostError(self.where) from error
            raise self._problem(error) from error
        except (RedisError, OSError) as error:
            raise self._problem(error) from error

    async def close(self) -> None:
        """Closes all connections; calls under way complete or fail within their timeouts before."""
        self._begin()
        if self._sending is not None:
            await self._sending
        await self._line.close()
        await self._long.close()
        await self.redis.aclose(close_connection_pool=True)  # type: ignore[no-untyped-call,unused-ignore]
        await self.redis.connection_pool.disconnect()

    async def _load(self, name: str) -> None:
        self._digests[name] = str(await self.asked(self.redis.script_load(self._scripts[name].source)))

    async def _current_run(self) -> str:
        """The ``run_id`` of this Redis process; empty: it refuses to say."""
        try:
            return str((await self.redis.info("server")).get("run_id", ""))
        except ResponseError as error:
            words = "Redis refuses INFO: a loss of data in a restart of Redis will not be noticed"
            structlog.get_logger("store").warning(words, at=self.where, detail=str(error))
            return ""
        except (RedisError, OSError) as error:
            raise self._problem(error) from error

    def _problem(self, error: Exception) -> Problem:
        self._failed()
        detail = f"Redis at {self.where} did not do what was asked: {type(error).__name__}: {error}"
        return Problem("upstream_timeout", detail[:500], retry_after_ms=1000)

    def _message(self, name: str, args: Mapping[str, Value]) -> bytes:
        return command("EVALSHA", self._digests[name], 1, self.prefix, *self._scripts[name].values(args))

    async def _read(self, name: str, args: Mapping[str, Value]) -> Reply:
        async with self._reading:
            (answer,) = await self._exchanged(self._long, self._message(name, args), 1)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _step(self, name: str, args: Mapping[str, Value]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._steps.append((self._message(name, args), answer, loop.time()))
        if name != _BEHIND:
            self._begin()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(BEHIND_S, self._begin)
        return answer

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._steps and self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="calls to Redis")

    async def _send(self) -> None:
        while self._steps:
            steps, self._steps = self._steps[:TOGETHER], self._steps[TOGETHER:]
            message = b"".join(step for step, _, _ in steps)
            answers: Sequence[Reply]
            now_s = asyncio.get_running_loop().time
            sent_s = now_s()
            try:
                answers = await self._exchanged(self._line, message, len(steps))
            except Exception as error:
                # Those behind that have waited as long, or for a call's time, fail too: the timeouts of batches add up.
                behind, self._steps = _parted(self._steps, max(sent_s, now_s() - CALL_TIMEOUT_S))
                steps = [*steps, *behind]
                answers = [error] * len(steps)
            for (_, future, _), answer in zip(steps, answers, strict=True):
                _set(future, answer)
        self._sending = None

    async def _exchanged(self, line: Line, message: bytes, count: int) -> Sequence[Reply]:
        """Sends a message, and retries it when Redis did not answer: scripts recognize writes that they did before."""

        async def once() -> Sequence[Reply]:
            answers = await line.exchange(message, count)
            # For instance while Redis loads its data: retried like a lost connection.
            for answer in answers:
                if isinstance(answer, AwayError):
                    raise answer
            return answers

        return await self._retry.call_with_retry(once, _again)


async def _again(_: Exception) -> None:
    """Cleans up after a failed try: nothing to do, ``Line.exchange`` has closed the connection."""


def _parted(steps: list[_Step], at_s: float) -> tuple[list[_Step], list[_Step]]:
    """The steps that were asked for until then, and the later ones."""
    first = next((at for at, (_, _, asked_s) in enumerate(steps) if asked_s > at_s), len(steps))
    return steps[:first], steps[first:]


def _set(future: asyncio.Future[Any], answer: object) -> None:
    if future.done():
        return  # its caller has gone away
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
