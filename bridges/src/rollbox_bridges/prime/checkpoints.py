"""Checkpoints of files: images of rollbox whose names say of which sandbox they were made."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import Any, Final, NamedTuple

from aiohttp import web

from rollbox import Client, Commit, SandboxError
from rollbox_bridges.bodies import json_object
from rollbox_bridges.prime.calls import Call
from rollbox_bridges.prime.records import time_of
from rollbox_bridges.prime.words import Refusal, as_refusal
from rollbox_bridges.removals import removed

_ID: Final = re.compile(r"[0-9a-f]{32}")
# The repository of an image says of which sandbox it was made; its tag is the checkpoint's id.
_REPOSITORY: Final = re.compile(r"(?:.*/)?prime-checkpoint/([A-Za-z0-9_.-]+)(?:[:@].*)?")
_ANSWER_WITHIN_S: Final = 20.0
_COMMIT_S: Final = 600.0
_MOST_IDS: Final = 100
# Failures are told until then, so that a client that waits hears of them.
_FAILED_KEPT: Final = 1000


class _Making(NamedTuple):
    """A checkpoint that is being made, or has failed: of whose sandbox."""

    key: str
    sandbox_id: str
    task: asyncio.Task[Any]

    def told(self, name: str) -> dict[str, Any]:
        """The wire form."""
        failed = self.task.done() and not self.task.cancelled() and self.task.exception() is not None
        error = str(self.task.exception()) if failed else None
        now = time_of(round(time.time() * 1000))
        told = {"id": name, "sandbox_id": self.sandbox_id, "state": "FAILED" if failed else "PENDING", "error": error}
        return {**told, "depth": 0, "docker_image": "", "created_at": now, "updated_at": now}


class Checkpoints:
    """Checkpoints, those that are being made among them: each goes on without the request that has begun it."""

    def __init__(self) -> None:
        self._making: dict[str, _Making] = {}

    async def take(self, call: Call) -> web.StreamResponse:
        """Make one; where that takes long, the answer says that it is being made."""
        session = await call.session()
        name = secrets.token_hex(16)
        commit = session.sandbox.commit(f"prime-checkpoint/{call.name.lower()}:{name}", timeout=_COMMIT_S)
        task = asyncio.create_task(commit, name="rollbox bridge checkpoint")
        self._making[name] = _Making(call.key, call.name, task)
        while len(self._making) > _FAILED_KEPT:
            del self._making[next(iter(self._making))]
        await asyncio.wait({task}, timeout=_ANSWER_WITHIN_S)
        if task.done():
            del self._making[name]
            await task
        return web.json_response(await self._one(call, name))

    async def get(self, call: Call) -> web.StreamResponse:
        """Tell of one."""
        return web.json_response(await self._one(call, call.name))

    async def get_many(self, call: Call) -> web.StreamResponse:
        """Tell of several."""
        body = await json_object(call.request, {"checkpoint_ids"})
        wanted = body.get("checkpoint_ids")
        if (
            not isinstance(wanted, list)
            or not 1 <= len(wanted) <= _MOST_IDS
            or not all(isinstance(n, str) for n in wanted)
        ):
            raise Refusal(400, f"checkpoint_ids is not a list of 1 to {_MOST_IDS} texts")
        client = await call.client()
        there, failed = await _all(client), []
        found = []
        for name in wanted:
            if (told := self._told(call.key, name, there)) is not None:
                found.append(told)
            else:
                failed.append({"checkpoint_id": name, "code": "NOT_FOUND", "message": f"there is no checkpoint {name}"})
        return web.json_response({"checkpoints": found, "errors": failed})

    async def of_sandbox(self, call: Call) -> web.StreamResponse:
        """List those of one sandbox, the oldest first."""
        only = call.request.query.get("checkpoint_id")
        there = await _all(await call.client())
        names = [name for name, (of, _) in there.items() if of == call.name.lower()]
        names += [name for name, one in self._making.items() if one.sandbox_id == call.name and name not in there]
        found = [self._told(call.key, name, there) for name in names if only in {None, name}]
        return web.json_response({"checkpoints": [one for one in found if one is not None]})

    async def remove(self, call: Call) -> web.StreamResponse:
        """Remove one."""
        client = await call.client()
        await removed(client, await image_of(client, call.name))
        return web.Response(status=204)

    async def remove_of_sandbox(self, call: Call) -> web.StreamResponse:
        """Remove those of one sandbox."""
        client = await call.client()
        deleted, failed = [], []
        for name, (of, commit) in (await _all(client)).items():
            if of != call.name.lower():
                continue
            try:
                await removed(client, commit.image)
                deleted.append(name)
            except SandboxError as error:
                failed.append({"checkpoint_id": name, "code": "CONFLICT", "message": as_refusal(error).message})
        return web.json_response({"deleted": deleted, "errors": failed})

    async def aclose(self) -> None:
        """End what is being made."""
        tasks = [making.task for making in self._making.values()]
        self._making.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, call: Call, name: str) -> dict[str, Any]:
        if (told := self._told(call.key, name, await _all(await call.client()))) is None:
            raise Refusal(404, f"there is no checkpoint {name[:64]!r}", "not_found")
        return told

    def _told(self, key: str, name: str, there: dict[str, tuple[str, Commit]]) -> dict[str, Any] | None:
        if name in there:
            self._making.pop(name, None)
            return _durable(name, *there[name])
        making = self._making.get(name)
        return None if making is None or making.key != key else making.told(name)


async def image_of(client: Client, name: str) -> str:
    """The image that a checkpoint is.

    Raises:
        Refusal: there is none of this id.
    """
    found = (await _all(client)).get(name) if _ID.fullmatch(name) else None
    if found is None:
        raise Refusal(404, f"there is no checkpoint {name[:64]!r}", "not_found")
    return found[1].image


async def _all(client: Client) -> dict[str, tuple[str, Commit]]:
    """Checkpoints by id, each with its sandbox, the oldest first."""
    images = [(_REPOSITORY.fullmatch(one.image), one) for one in (await client.commits()).images]
    return {tag: (of[1], one) for of, one in images if of is not None for tag in one.tags if _ID.fullmatch(tag)}


def _durable(name: str, sandbox_id: str, commit: Commit) -> dict[str, Any]:
    at = time_of(commit.created_at_ms)
    told = {"id": name, "sandbox_id": sandbox_id, "state": "DURABLE", "depth": 1 + len(commit.built_on), "error": None}
    sizes = {"stored_bytes": commit.size_bytes, "occupied_bytes": commit.size_bytes}
    return {**told, **sizes, "docker_image": commit.image, "created_at": at, "updated_at": at}
