"""The images of the fake gateway: what is asked for is noted, and answered as a platform of two nodes would."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.fake_problems import problem


@dataclass
class FakeImages:
    """Nodes and what they have.

    Attributes:
        missing: images that no registry has.
        breaks: after so many lines each of the next answers to a prefetch breaks off.
        prefetched, converted: what was asked for, each call.
        first: of each conversion, the files that come first.
        recorded: commands, each with its time in ms.
        nodes: on how many nodes, each prefetch.
        stuck: images of which a prefetch never ends.
        removed: names, as they were asked for.
        builds: what was asked for, each request, with whether its context came.
        built: the images that are there, by the digest of the context.
        commits: how often each idempotency key has come, and the body of each call.
    """

    missing: set[str] = field(default_factory=set)
    nodes: list[int | None] = field(default_factory=list)
    stuck: set[str] = field(default_factory=set)
    breaks: list[int] = field(default_factory=list)
    prefetched: list[list[str]] = field(default_factory=list)
    converted: list[str] = field(default_factory=list)
    first: list[list[str] | None] = field(default_factory=list)
    recorded: list[tuple[str, int]] = field(default_factory=list)
    builds: list[tuple[dict[str, Any], bool]] = field(default_factory=list)
    built: dict[str, str] = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    kept: list[str] = field(default_factory=lambda: ["repo:v1"])
    removed: list[str] = field(default_factory=list)

    async def all(self, _: web.Request) -> web.Response:
        """What the nodes have."""
        digest = f"sha256:{64 * 'a'}"
        known = {"lazy": None, "last_used_ms": None, "later": 1}
        image = {"node": "n1", "names": ["a:1"], "digest": digest, "size_bytes": 5, **known}
        return web.json_response({"images": [image]})

    async def config(self, request: web.Request) -> web.Response:
        """One that runs `serve` by `sh`."""
        name = request.match_info["name"]
        lists = {"entrypoint": ["sh", "-c"], "cmd": ["serve"], "env": ["A=1=2", "B"], "ports": ["80/tcp"]}
        texts = {"digest": f"sha256:{64 * 'a'}", "architecture": "amd64", "created": "", "cwd": "/srv", "user": "u"}
        return web.json_response({"image": name, **lists, **texts, "stop_signal": "", "labels": {"l": "1"}, "later": 1})

    async def commit(self, request: web.Request) -> web.Response:
        """An image whose digest is that of its key: what is repeated has the same."""
        key, body = request.headers["Idempotency-Key"], await request.json()
        self.keys[key] += 1
        self.bodies.append(body)
        if body["name"] != body["name"].lower():
            return problem("invalid_argument", "name: it must be small")
        digest = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
        told = {"image": f"commits/me/{body['name']}@{digest}", "digest": digest, "size_bytes": 7, "skipped": ["/s: x"]}
        return web.json_response(told)

    async def checkpoint(self, request: web.Request) -> web.Response:
        """One whose digest is that of its key."""
        key, body = request.headers["Idempotency-Key"], await request.json()
        self.keys[key] += 1
        self.bodies.append(body)
        digest = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
        known = {"checkpoint": "cp-1", "expires_at_ms": 5, "depth": 2, "later": 1}
        told = {"image": f"commits/me/checkpoints:cp-1@{digest}", "digest": digest, "size_bytes": 7, "skipped": []}
        return web.json_response({**told, **known})

    async def committed(self, _: web.Request) -> web.Response:
        """What was made of sandboxes."""
        digest = f"sha256:{64 * 'c'}"
        known = {"digest": digest, "size_bytes": 7, "created_at_ms": 1, "built_on": [], "later": 1}
        images = [
            {"image": f"commits/me/{one}@{digest}", "tags": [one.rpartition(":")[2]], **known} for one in self.kept
        ]
        return web.json_response({"images": images, "used_bytes": 7 * len(images), "limit_bytes": 100})

    async def remove(self, request: web.Request) -> web.Response:
        """Removes one."""
        name = request.match_info["name"]
        self.removed.append(name)
        removed = name in self.kept
        self.kept = [one for one in self.kept if one != name]
        return web.json_response({"name": name, "removed": removed, "digest": "", "freed_bytes": 7 * removed})

    async def build(self, request: web.Request) -> web.StreamResponse:
        """An image whose digest is that of its context; a Dockerfile with `false` fails."""
        head, _, context = (await request.read()).partition(b"\n")
        body = json.loads(head)
        self.builds.append((body, bool(context)))
        assert not context or body["context"] == f"sha256:{hashlib.sha256(context).hexdigest()}"
        there = body["context"] in self.built
        image = self.built.get(body["context"], f"commits/me/builds:1@{body['context']}")
        done = {"state": "built", "image": image, "digest": body["context"], "cached": there, "later": 1}
        lines: list[dict[str, Any]] = [{"state": "building"}]
        if there:
            lines += [done]
        elif not context:
            lines += [{"state": "context_wanted"}]
        elif "RUN false" in body["dockerfile"]:
            failure = {"code": "build_failed", "detail": "no image was built: RUN false", "details": {}}
            lines += [{"state": "building", "text": "STEP 1\n"}, {"state": "failed", "problem": failure}]
        else:
            self.built[body["context"]] = image
            lines += [{"state": "queued", "place": 2}, {"state": "building", "text": "STEP 1\n"}]
            lines += [{**done, "size_bytes": 7}]
        left = self.breaks.pop(0) if self.breaks and context else len(lines)
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        for line in lines[:left]:
            await answer.write(json.dumps(line).encode() + b"\n")
        if left < len(lines):
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def convert(self, request: web.Request) -> web.StreamResponse:
        """The progress of one image."""
        body = await request.json()
        image = body["image"]
        self.converted.append(image)
        self.first.append(body.get("first"))
        lines: list[dict[str, Any]] = [{"state": "copying"}, {"state": "converting", "text": "1 of 2 layers"}]
        if image in self.missing:
            problem = {"code": "unsupported", "detail": f"{image}: 128 layers", "details": {"option": "pull"}}
            lines.append({"state": "failed", "problem": problem})
        else:
            offered: dict[str, Any] = {"state": "offered", "digest": "sha256:a", "ran": "sha256:b", "later": 1}
            if "record" in body:
                self.recorded.append((body["record"], body["record_timeout_ms"]))
                lines.append({"state": "recording", "text": "the command runs"})
                offered |= {"files": 7, "more": True, "run_failed": "it exited with 1"}
            lines.append(offered)
        left = self.breaks.pop(0) if self.breaks else len(lines)
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        for line in lines[:left]:
            await answer.write(json.dumps(line).encode() + b"\n")
        if left < len(lines):
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def prefetch(self, request: web.Request) -> web.StreamResponse:
        """The progress of all of them."""
        body = await request.json()
        images = body["images"]
        self.prefetched.append(images)
        self.nodes.append(body.get("nodes"))
        if self.stuck & {*images}:
            await asyncio.Event().wait()
        left = self.breaks.pop(0) if self.breaks else None
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        lines = [one for image in images for one in self._lines(image)]
        for line in (*lines, {"summary": {"here": 1, "failed": 0}}):
            if left == 0:
                assert request.transport is not None
                request.transport.abort()
                return answer
            await answer.write(json.dumps(line).encode() + b"\n")
            left = None if left is None else left - 1
        return answer

    def _lines(self, image: str) -> list[dict[str, Any]]:
        if image in self.missing:
            failure = {"code": "image_not_found", "detail": f"{image}: manifest unknown", "details": {"image": image}}
            return [{"image": image, "state": "failed", "problem": failure}]
        return [
            {"image": image, "node": "n1", "state": "pulling", "done_bytes": 1, "total_bytes": 2},
            {"image": image, "node": "n1", "state": "here"},
            {"image": image, "node": "n2", "state": "here"},
        ]
