"""A gateway in this process that speaks the public HTTP API, for tests of the SDK and the command line.

It keeps the rules that a client can see (ids, keys, tokens) and runs nothing: a command is answered from `results`, or
echoes its stdin, or, when it is `hold`, waits until it is cancelled. `faults` make a route fail in order. What is
spawned is scripted or a real process of this machine (`fake_processes`), files are those of a folder (`fake_files`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from base64 import b64encode
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from rollbox.errors import BY_CODE
from tests.support import fake_datasets, fake_groups, fake_pools, fake_ports
from tests.support.fake_audit import FakeAudit
from tests.support.fake_egress import FakeEgress
from tests.support.fake_events import FakeEvents
from tests.support.fake_files import FakeFiles, Refused
from tests.support.fake_images import FakeImages
from tests.support.fake_keys import FakeKeys
from tests.support.fake_problems import problem
from tests.support.fake_processes import STDERR, STDOUT, FakeProcesses, Script
from tests.support.fake_quotas import FakeQuotas

API_KEY = "rbx_test"
# Routes that take the owner's key; the others take the sandbox's token.
_OF_OWNERS = (
    "info create list delete_many get delete extend token share set_port lease renew timeline group quota pool egress"
    " key events audit"
)
_OF_IMAGES = ("images", "build", "commit", "convert", "prefetch")
OWNERS = (*_OF_OWNERS.split(), *_OF_IMAGES)


@dataclass
class Fault:
    """What goes wrong with one request.

    Attributes:
        code: a problem to answer; empty breaks the connection instead.
        after: carry the request out first, so that only the answer is lost.
        retry_after_ms: what the problem says.
        raw: answer these bytes with `status` (and `location`), as a proxy would.
        details: of the problem.
    """

    code: str = ""
    after: bool = False
    retry_after_ms: int | None = None
    raw: bytes | None = None
    status: int = 502
    location: str = ""
    details: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeGateway:
    """Sandboxes, execs and what was asked of them."""

    sandboxes: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    callers: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    withdrawn: set[tuple[str, str]] = field(default_factory=set)
    execs: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    renewed: dict[str, int] = field(default_factory=dict)
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    cancelled: dict[str, asyncio.Event] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: defaultdict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    holding: asyncio.Event = field(default_factory=asyncio.Event)
    held: threading.Event = field(default_factory=threading.Event)
    hold_creates: bool = False
    hold_cancels: bool = False
    cancel_came: asyncio.Event = field(default_factory=asyncio.Event)
    cancel_may_go: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    real_execs: bool = False
    draining_at_ms: int | None = None
    use: dict[str, Any] = field(default_factory=dict)  # in the place of what is told of use
    missing_commands: set[str] = field(default_factory=set)
    processes: FakeProcesses = field(default_factory=FakeProcesses)
    files: FakeFiles = field(default_factory=FakeFiles)
    quotas: FakeQuotas = field(default_factory=FakeQuotas)
    images: FakeImages = field(default_factory=FakeImages)
    api_keys: FakeKeys = field(default_factory=FakeKeys)
    egress: FakeEgress = field(default_factory=FakeEgress)
    events: FakeEvents = field(default_factory=FakeEvents)
    audit: FakeAudit = field(default_factory=FakeAudit)

    def fail(self, route: str, *faults: Fault) -> None:
        """Make the next requests of a route fail: create, exec, token, delete, list, info, extend, cancel."""
        self.faults[route].extend(faults)

    def count(self, method: str, path: str = "") -> int:
        """How many requests of a method had `path` in theirs."""
        return sum(1 for seen, where, _ in self.requests if seen == method and path in where)

    def expire_tokens(self) -> None:
        """Make every token that was given out so far invalid."""
        for sandbox_id in self.tokens:
            self.tokens[sandbox_id] = f"expired-{len(self.requests)}"

    def app(self) -> web.Application:
        """Build the routes."""
        app = web.Application(client_max_size=64 * 2**20)
        box = "/v1/sandboxes/{id}"
        app.add_routes(
            [
                web.get("/v1/info", self._route("info", self._info)),
                web.post("/v1/sandboxes", self._route("create", self._create)),
                web.get("/v1/sandboxes", self._route("list", self._list)),
                web.delete("/v1/sandboxes", self._route("delete_many", self._delete_many)),
                web.get(box, self._route("get", self._get)),
                web.delete(box, self._route("delete", self._delete)),
                web.post(f"{box}/extend", self._route("extend", self._extend)),
                web.post(f"{box}/token", self._route("token", self._token)),
                web.post(f"{box}/share", self._route("share", self._share)),
                web.put(f"{box}/lease", self._route("lease", self._lease)),
                web.delete(f"{box}/lease", self._route("lease", self._lease)),
                web.post("/v1/leases/{name}", self._route("renew", self._renew)),
                web.get("/v1/audit", self._route("audit", self.audit.find)),
                web.get("/v1/events/dead", self._route("events", self.events.dead_letters)),
                web.get("/v1/events", self._route("events", self.events.stream)),
                web.get(f"{box}/timeline", self._route("timeline", self._timeline)),
                web.post(f"{box}/exec", self._route("exec", self._exec)),
                web.delete(box + "/execs/{exec}", self._route("cancel", self._cancel)),
                web.get("/v1/images", self._route("images", self.images.all)),
                web.get("/v1/images/config/{name:.+}", self._route("images", self.images.config)),
                web.get("/v1/images/commits", self._route("images", self.images.committed)),
                web.delete("/v1/images/commits/{name:.+}", self._route("images", self.images.remove)),
                web.post("/v1/images/build", self._route("build", self.images.build)),
                web.post("/v1/images/convert", self._route("convert", self.images.convert)),
                web.post("/v1/images/prefetch", self._route("prefetch", self.images.prefetch)),
                web.post(f"{box}/commit", self._route("commit", self.images.commit)),
                web.post(f"{box}/checkpoint", self._route("commit", self.images.checkpoint)),
                web.get("/v1/egress/presets", self._route("egress", self.egress.presets)),
                web.route("*", "/v1/egress/presets/{name}", self._route("egress", self.egress.preset)),
                web.get(f"{box}/egress/log", self._route("egress", self.egress.log)),
                web.route("*", f"{box}/egress", self._route("egress", partial(self.egress.one, self))),
                web.get("/v1/datasets", self._route("dataset", partial(fake_datasets.datasets, self))),
                web.route("*", "/v1/datasets/{name}", self._route("dataset", partial(fake_datasets.dataset, self))),
                web.get("/v1/pools", self._route("pool", partial(fake_pools.pools, self))),
                web.route("*", "/v1/pools/{name}", self._route("pool", partial(fake_pools.pool, self))),
                web.put("/v1/groups/{name}", self._route("group", partial(fake_groups.create, self))),
                web.get("/v1/groups/{name}", self._route("group", partial(fake_groups.get, self))),
                web.delete("/v1/groups/{name}", self._route("group", partial(fake_groups.delete, self))),
                web.get("/v1/quota", self._route("quota", self.quotas.own)),
                web.get("/v1/quotas", self._route("quota", self.quotas.all)),
                web.route("*", "/v1/quotas/{name}", self._route("quota", self.quotas.one)),
                web.get("/v1/keys", self._route("key", self.api_keys.all)),
                web.post("/v1/keys", self._route("key", self.api_keys.create)),
                web.post("/v1/keys/{key}/rotate", self._route("key", self.api_keys.rotate)),
                web.delete("/v1/keys/{key}", self._route("key", self.api_keys.revoke)),
                web.get("/v1/capacity", self._route("quota", self.quotas.room)),
                web.get("/v1/nodes", self._route("quota", self.quotas.node_list)),
                web.get("/v1/nodes/{name}", self._route("quota", self.quotas.node)),
                web.route("*", "/v1/nodes/{name}/drain", self._route("quota", self.quotas.drain)),
                web.post("/v1/preflight", self._route("quota", self.quotas.preflight)),
                web.get(f"{box}/execs", self._route("execs", self._execs)),
                web.delete(f"{box}/execs", self._route("cancel", self._cancel_all)),
                web.post(f"{box}/execs", self._route("spawn", self._spawn)),
                web.get(box + "/execs/{exec}/attach", self._route("attach", self._attach)),
                web.post(box + "/execs/{exec}/signal", self._route("signal", self._signal)),
                web.get(f"{box}/file", self._file("read", self.files.read)),
                web.put(f"{box}/file", self._file("write", self.files.write)),
                web.delete(f"{box}/file", self._file("remove", self.files.remove)),
                web.get(f"{box}/file/info", self._file("stat", self.files.stat)),
                web.post(f"{box}/file/move", self._file("move", self.files.move)),
                web.post(f"{box}/file/copy", self._file("copy", self.files.move)),
                web.get(f"{box}/directory", self._file("list_directory", self.files.list)),
                web.post(f"{box}/directory", self._file("mkdir", self.files.mkdir)),
                web.get(f"{box}/archive", self._file("read_archive", self.files.read_archive)),
                web.put(f"{box}/archive", self._file("write_archive", self.files.write_archive)),
                web.get(f"{box}/watch", self._file("watch", self.files.watch)),
                web.get(f"{box}/usage", self._route("usage", self._usage)),
                web.get(box + "/ports/{port}", self._route("port", fake_ports.state)),
                web.post(box + "/ports/{port}", self._route("set_port", self._set_port)),
                web.delete(box + "/ports/{port}", self._route("set_port", self._set_port)),
                web.get(box + "/ports/{port}/tcp", self._route("tcp", fake_ports.tcp)),
                web.get(box + "/ports/{port}/udp", self._route("udp", fake_ports.udp)),
            ]
        )
        return app

    def _route(
        self, name: str, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.requests.append((request.method, request.path_qs, dict(request.headers)))
            fault = self.faults[name].popleft() if self.faults[name] else None
            if fault is not None and not fault.after:
                return _broken(request, fault)
            scope = request.match_info.get("id", "")
            wanted = API_KEY if name in OWNERS else self.tokens.get(scope)
            if request.headers.get("Authorization") != f"Bearer {wanted}":
                return problem("unauthenticated", "the credential is wrong or expired")
            answered = await answer(request)
            if self.draining_at_ms is not None and name in {"exec", "spawn"}:
                answered.headers["Rollbox-Draining-At-Ms"] = str(self.draining_at_ms)
            return answered if fault is None else _broken(request, fault)

        return handle

    def _file(
        self, name: str, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answered(request: web.Request) -> web.StreamResponse:
            try:
                return await answer(request)
            except Refused as refusal:
                return problem(refusal.code, refusal.detail, details=refusal.details)
            except FileNotFoundError as error:
                return problem("file_not_found", str(error))
            except (OSError, ValueError) as error:
                return problem("invalid_argument", str(error))

        return self._route(name, answered)

    async def _usage(self, request: web.Request) -> web.Response:
        used = {
            "cpu_ms": 1234.5,
            "memory_bytes": 3 << 20,
            "cpu_counted_by": "node",
            "memory_files_bytes": 0,
            "disk_bytes": 5 << 30,
            "processes": 2,
            "later": 1,
        }
        limits = {"memory_limit_bytes": 2 << 30, "disk_limit_bytes": None, "processes_limit": 512}
        return web.json_response({**used, **limits, **self.use})

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0", "backend": "engine", "isolation": "runc", "network": "none"})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        return await self.made(body, request.headers.get("Idempotency-Key", ""), request.headers.get("Call-Id", ""))

    async def made(self, body: dict[str, Any], key: str, call_id: str) -> web.Response:
        """Make a sandbox, or answer the one that has the key."""
        if self.hold_creates:
            self.holding.set()
            await asyncio.Event().wait()
        if (key, call_id) in self.withdrawn:
            return problem("deleted", f"a delete by key {key} came first")
        if body["image"].startswith("missing"):
            return problem("image_not_found", f"image {body['image']} does not exist")
        replayed = key in self.keys
        # All but the lease, which another client of the same caller has another of.
        asked = {name: value for name, value in body.items() if name != "lease"}
        if self.asked.setdefault(key, asked) != asked and replayed:
            return problem("conflict", f"the key {key} was used with other parameters")
        self.asked[key] = asked
        sandbox_id = self.keys.setdefault(key, f"sb-{len(self.sandboxes) + 1}")
        self.callers[key].add(call_id)
        if not replayed:
            self.sandboxes[sandbox_id] = _record(sandbox_id, body)
            self.tokens[sandbox_id] = f"token-{sandbox_id}"
        return self._opened(sandbox_id, status=200 if replayed else 201)

    def _opened(self, sandbox_id: str, status: int = 200) -> web.Response:
        return web.json_response({**self.sandboxes[sandbox_id], "token": self.tokens[sandbox_id]}, status=status)

    async def _list(self, request: web.Request) -> web.Response:
        ended = request.query.get("all") == "true"
        found = [box for box in self._labelled(request) if ended or box["state"] != "ended"]
        return web.json_response({"sandboxes": found})

    def _labelled(self, request: web.Request) -> list[dict[str, Any]]:
        wanted = [label.split("=", 1) for label in request.query.getall("label", [])]
        return [box for box in self.sandboxes.values() if all(box["labels"].get(k) == v for k, v in wanted)]

    async def _get(self, request: web.Request) -> web.Response:
        return self._found(request) or web.json_response(self.sandboxes[request.match_info["id"]])

    def _found(self, request: web.Request) -> web.Response | None:
        sandbox_id = request.match_info["id"]
        if sandbox_id not in self.sandboxes:
            return problem("sandbox_not_found", f"there is no sandbox {sandbox_id}")
        return None

    async def _delete(self, request: web.Request) -> web.Response:
        missing = self._found(request)
        if missing:
            return missing
        self.end(request.match_info["id"])
        return web.json_response(self.sandboxes[request.match_info["id"]])

    @property
    def refused_keys(self) -> set[str]:
        """The keys that a call has taken back."""
        return {key for key, _ in self.withdrawn}

    def end(self, sandbox_id: str, cause: str = "deleted") -> None:
        """End a sandbox, as its owner does unless another cause is given."""
        box = self.sandboxes[sandbox_id]
        kind = BY_CODE[cause]
        verdict = {"fault": kind.fault, "mask_sample": kind.mask_sample}
        end = {"cause": cause, **verdict, "detail": "deleted by its owner", "at_ms": 2, "by": "test"}
        box.update(state="ended", end=box["end"] or end)

    async def _delete_many(self, request: web.Request) -> web.Response:
        key = request.query.get("idempotency_key")
        if key is not None:
            ids = self.withdraw(key, request.headers["Call-Id"])
        else:
            ids = [box["id"] for box in self._labelled(request) if box["state"] != "ended"]
        for sandbox_id in ids:
            self.end(sandbox_id)
        return web.json_response({"deleted": ids, "failed": []})

    def withdraw(self, key: str, call_id: str) -> list[str]:
        """Take back what a call has asked for; the sandbox that nobody else wants, whose key is free then."""
        self.withdrawn.add((key, call_id))
        self.callers[key].discard(call_id)
        return [self.keys.pop(key)] if key in self.keys and not self.callers[key] else []

    async def _extend(self, request: web.Request) -> web.Response:
        missing = self._found(request)
        if missing:
            return missing
        box = self.sandboxes[request.match_info["id"]]
        box["expires_at_ms"] += (await request.json())["ttl_ms"]
        return self._opened(box["id"])

    async def _token(self, request: web.Request) -> web.Response:
        missing = self._found(request)
        if missing:
            return missing
        sandbox_id = request.match_info["id"]
        self.tokens[sandbox_id] = f"token-{sandbox_id}-{len(self.requests)}"
        return self._opened(sandbox_id)

    async def _share(self, request: web.Request) -> web.Response:
        missing = self._found(request)
        if missing:
            return missing
        until_ms = round(time.time() * 1000) + (await request.json())["ttl_ms"]
        made = {"sandbox_id": request.match_info["id"], "key": "rbxs_shared", "expires_at_ms": until_ms}
        return web.json_response(made)

    async def _lease(self, request: web.Request) -> web.Response:
        missing = self._found(request)
        if missing:
            return missing
        box = self.sandboxes[request.match_info["id"]]
        box["lease"] = None if request.method == "DELETE" else await request.json()
        return web.json_response(box)

    async def _renew(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.renewed[name] = self.renewed.get(name, 0) + 1
        having = [box for box in self.sandboxes.values() if (box["lease"] or {}).get("name") == name]
        return web.json_response({"name": name, **await request.json(), "sandboxes": len(having)})

    async def _timeline(self, request: web.Request) -> web.Response:
        missing = self._found(request)
        if missing:
            return missing
        box = self.sandboxes[request.match_info["id"]]
        story = [(0, "requested", "request", "asked for"), (120, "running", "ready", "a command has run in it: ready")]
        if box["end"]:
            story.append((7_200_000, "ending", box["end"]["cause"], "The sandbox was deleted (test)"))
        moments = [
            {"at_ms": 1_800_000_000_000 + at, "after_ms": at, "state": state, "word": word, "text": text, "later": 1}
            for at, state, word, text in story
        ]
        told = {name: box[name] for name in ("id", "state", "image", "labels", "end", "timings_ms", "expires_at_ms")}
        advice = "Create a new sandbox." if box["end"] else ""
        more = {"summary": "It ended: d." if box["end"] else "It runs.", "advice": advice, "retry": None}
        lease = (box["lease"] or {}).get("name")
        return web.json_response({**told, **more, "moments": moments, "idle_timeout_ms": 1000, "lease": lease})

    async def _exec(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        box = self.sandboxes[request.match_info["id"]]
        if box["state"] == "ended":
            return problem(box["end"]["cause"], f"sandbox {box['id']} has ended")
        exec_id = body["exec_id"]
        if body.get("stdin_open"):
            return web.json_response(await self._fed(body))
        if exec_id in self.execs:
            if self.asked.get(exec_id, body) != body:
                return problem("conflict", f"the exec_id {exec_id} was used with other parameters")
            return web.json_response({**self.execs[exec_id], "replayed": True})
        command = body.get("command") or " ".join(body["argv"])
        self.runs.append(exec_id)
        self.asked[exec_id] = body
        if self.real_execs:
            return web.json_response(await self._real(body))
        if command == "hold":
            await self._hold(exec_id)
        self.execs[exec_id] = _result(exec_id, body, self.results.get(command, {}))
        return web.json_response(self.execs[exec_id])

    async def _fed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Join a command that was started with the same body, and wait for its end."""
        made = self.processes.start(body)
        while made.result is None:
            await made.changed.wait()
        said: dict[str, Any] = {"replayed": True}
        for name, kind in (("stdout", STDOUT), ("stderr", STDERR)):
            said |= {name: b64encode(made.outputs[kind]).decode(), f"{name}_encoding": "base64"}
        return _result(body["exec_id"], {}, {**made.result, **said})

    async def _real(self, body: dict[str, Any]) -> dict[str, Any]:
        made = self.processes.start({**body, "user": None})
        while made.result is None:
            await made.changed.wait()
        said = {
            name: made.outputs[kind].decode("utf-8", "replace")
            for name, kind in (("stdout", STDOUT), ("stderr", STDERR))
        }
        return _result(body["exec_id"], {}, {**made.result, **said})

    async def _cancel_all(self, request: web.Request) -> web.Response:
        return self._found(request) or web.json_response({"cancelled": 0, "left": 0})

    async def _execs(self, request: web.Request) -> web.Response:
        return web.json_response({"execs": self.processes.summaries()})

    async def _spawn(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        if (body.get("argv") or [""])[0] in self.missing_commands:
            return problem("invalid_argument", "the command is not there", details={"reason": "command_not_found"})
        command = body.get("command") or " ".join(body["argv"])
        if command in self.results:
            self.processes.scripts[command] = Script.of(self.results[command])
        if command == "hold":
            self.processes.scripts["hold"] = Script(hold=True)
            self.cancelled[body["exec_id"]] = asyncio.Event()
            self.holding.set()
            self.held.set()
        replayed = body["exec_id"] in self.processes.execs
        made = self.processes.start(body)
        while self.processes.hold_starts or (made.process is None and made.result is None and not made.tells_pid):
            await made.changed.wait()
        pid = made.process.pid if made.process else 1
        return web.json_response({"exec_id": made.exec_id, "pid": pid, "spawn_ms": 0.5, "replayed": replayed})

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        box = self.sandboxes[request.match_info["id"]]
        if box["state"] == "ended":
            return problem(box["end"]["cause"], f"sandbox {box['id']} has ended")
        made = self.processes.execs.get(request.match_info["exec"])
        if made is None:
            return problem("exec_not_found", f"there is no exec {request.match_info['exec']}")
        return await self.processes.attach(request, made)

    async def _signal(self, request: web.Request) -> web.Response:
        made = self.processes.execs.get(request.match_info["exec"])
        if made is None:
            return problem("exec_not_found", f"there is no exec {request.match_info['exec']}")
        body = await request.json()
        if "command_id" in body:
            self.processes.abandon(made, body["signal"], body["command_id"], body["spared"])
        else:
            self.processes.signal(made, body["signal"], body["tree"])
        return web.json_response({})

    async def _set_port(self, request: web.Request) -> web.Response:
        box = self.sandboxes[request.match_info["id"]]
        visibility = "private" if request.method == "DELETE" else (await request.json())["visibility"]
        return web.json_response(fake_ports.told(box, int(request.match_info["port"]), visibility))

    async def _hold(self, exec_id: str) -> None:
        cancelled = self.cancelled[exec_id] = asyncio.Event()
        self.holding.set()
        self.held.set()
        await cancelled.wait()
        self.results["hold"] = {"end": "cancelled", "exit_code": None}

    async def _cancel(self, request: web.Request) -> web.Response:
        self.cancel_came.set()
        if self.hold_cancels:
            await self.cancel_may_go.wait()
        made = self.processes.execs.get(request.match_info["exec"])
        if made is not None:
            self.processes.kill(made)
            if made.exec_id in self.cancelled:
                self.cancelled[made.exec_id].set()
            return web.json_response(_result(made.exec_id, {}, {"end": "cancelled", "exit_code": None}))
        event = self.cancelled.get(request.match_info["exec"])
        if event is None:
            return problem("exec_not_found", f"there is no exec {request.match_info['exec']}")
        event.set()
        return web.json_response(_result(request.match_info["exec"], {}, {"end": "cancelled", "exit_code": None}))


def _broken(request: web.Request, fault: Fault) -> web.Response:
    if fault.raw is not None:
        headers = {"Location": fault.location} if fault.location else {}
        return web.Response(body=fault.raw, status=fault.status, headers=headers)
    if fault.code:
        return problem(fault.code, f"told to fail with {fault.code}", fault.retry_after_ms, details=fault.details)
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _record(sandbox_id: str, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": sandbox_id,
        "owner": "test",
        "image": body["image"],
        "state": "running",
        "labels": body.get("labels", {}),
        # What was not requested the installation sets aside.
        "cpu_millicores": {"request": 100, **body["cpu_millicores"]},
        "memory_bytes": {"request": 64 << 20, **body["memory_bytes"]},
        "pids_limit": body.get("pids_limit", 512),
        "created_at_ms": 1,
        "ready_at_ms": 2,
        "expires_at_ms": body["ttl_ms"],
        "idle_timeout_ms": body.get("idle_timeout_ms"),
        "lease": body.get("lease"),
        "isolation": "runc",
        "end": None,
        "timings_ms": {"queue": 0.1, "start": 100.0},
        "generation": 1,
        "a_field_of_a_later_version": True,
    }


def _result(exec_id: str, body: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    echoed = body.get("stdin", "")
    return {
        "exec_id": exec_id,
        "end": "exited",
        "exit_code": 0,
        "signal": None,
        "stdout": echoed,
        "stdout_encoding": body.get("stdin_encoding", "utf-8"),
        "stdout_truncated": False,
        "stdout_total_bytes": len(echoed),
        "stderr": "",
        "stderr_encoding": "utf-8",
        "stderr_truncated": False,
        "stderr_total_bytes": 0,
        "queue_ms": 0.01,
        "spawn_ms": 0.5,
        "run_ms": 1.25,
        "replayed": False,
        **given,
    }


@asynccontextmanager
async def serving(fake: FakeGateway | None = None) -> AsyncIterator[FakeGateway]:
    """Serve a fake gateway on a free port of this machine on the running loop."""
    fake = fake or FakeGateway()
    runner = web.AppRunner(fake.app(), access_log=None, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = "http://{}:{}".format(*runner.addresses[0][:2])
        yield fake
    finally:
        await fake.processes.aclose()
        await runner.cleanup()


@contextmanager
def serving_apart() -> Iterator[FakeGateway]:
    """Serve in a thread of its own, for code that runs its own event loop (the sync face, the command line)."""
    fake, started, stop = FakeGateway(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with serving(fake):
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        if not started.wait(60):
            raise RuntimeError("the fake gateway did not start within 60 s")
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
