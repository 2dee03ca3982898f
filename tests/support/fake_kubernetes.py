"""An API server in this process: pods, nodes, events and watches, with faults on demand. For paths of failure only;
what a real one does is tested on a real one.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

Json = dict[str, Any]
NAMESPACE: Final = "boxes"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
NODES: Final = "/api/v1/nodes"
DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
EVERYWHERE: Final = "/api/v1/pods"
NODE_EVENTS: Final = "/api/v1/namespaces/default/events"
SERVICES: Final = f"/api/v1/namespaces/{NAMESPACE}/services"
ENDPOINTS: Final = f"/api/v1/namespaces/{NAMESPACE}/endpoints"
SLICES: Final = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
CLAIMS: Final = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def node(name: str = "n1", ready: str = "True", **more: Any) -> Json:
    status = {
        "capacity": {"cpu": "2"},
        "allocatable": {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "50Gi"},
        "conditions": [{"type": "Ready", "status": ready, "message": "so it says"}],
        "runtimeHandlers": [{"name": ""}, {"name": "runsc"}],
    }
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": {**status, **more}}


@dataclass
class Fault:
    """What the next matching call gets instead of its answer; `times` runs down to 0."""

    method: str
    part: str
    status: int = 500
    reason: str = "InternalError"
    message: str = "made to fail"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False
    after: bool = False  # the call does its work, its answer is lost
    times: int = 1


@dataclass
class FakeKubernetes:
    """The state; what tests change, watchers are told."""

    objects: dict[str, dict[str, Json]] = field(
        default_factory=lambda: {
            PODS: {},
            EVERYWHERE: {},
            NODES: {},
            EVENTS: {},
            NODE_EVENTS: {},
            DEPLOYMENTS: {},
            LEASES: {},
            SERVICES: {},
            ENDPOINTS: {},
            SLICES: {},
            CLAIMS: {},
        }
    )
    runtime_classes: dict[str, Json] = field(default_factory=lambda: {"gvisor": {"handler": "runsc"}})
    faults: list[Fault] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    kubelet: bool = True
    change_s: float = 0.0  # how long a change takes
    oldest: int = 0
    version: int = 1
    history: list[tuple[int, str, str, Json]] = field(default_factory=list)
    streams: list[tuple[str, asyncio.Event]] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    changes_under_way: int = 0
    most_changes_at_once: int = 0

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()

    async def put(self, kind: str, thing: Json) -> None:
        """Makes or replaces an object."""
        known = thing["metadata"]["name"] in self.objects[kind]
        await self._tell("MODIFIED" if known else "ADDED", kind, thing)

    async def remove(self, kind: str, name: str) -> None:
        """Takes an object away, whatever its finalizers say."""
        await self._tell("DELETED", kind, self.objects[kind][name])

    async def patch_status(self, name: str, **status: Any) -> None:
        """Changes what the kubelet says of a pod."""
        pod = json.loads(json.dumps(self.objects[PODS][name]))
        pod.setdefault("status", {}).update(status)
        await self.put(PODS, pod)

    def forget(self) -> None:
        """From now on no earlier version can be watched from."""
        self.oldest = self.version

    def watches(self, kind: str) -> list[asyncio.Event]:
        """The watches of a collection that are open; an event is set once its watch is told to end."""
        return [closed for path, closed in self.streams if path == kind]

    async def close_streams(self) -> None:
        """Ends every watch, as servers do."""
        for _, closed in self.streams:
            closed.set()
        async with self._changed:
            self._changed.notify_all()

    async def _tell(self, kind: str, collection: str, thing: Json) -> None:
        self.version += 1
        thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self.version)}}
        name = thing["metadata"]["name"]
        if kind == "DELETED":
            self.objects[collection].pop(name, None)
        else:
            self.objects[collection][name] = thing
        self.history.append((self.version, kind, collection, thing))
        async with self._changed:
            self._changed.notify_all()
        if (kind, collection) == ("DELETED", PODS):
            await self._collect(str(thing["metadata"].get("uid")))

    async def _collect(self, uid: str) -> None:
        """Removes the claims whose last owner is gone, as the garbage collector does."""
        for name, claim in list(self.objects[CLAIMS].items()):
            owners = claim["metadata"].get("ownerReferences") or []
            left = [one for one in owners if one["uid"] != uid]
            if owners and not left:
                await self.remove(CLAIMS, name)
            elif left != owners:
                await self.put(CLAIMS, {**claim, "metadata": {**claim["metadata"], "ownerReferences": left}})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        line = f"{request.method} {request.path}{'?watch' if 'watch' in request.query else ''}"
        self.calls.append(line)
        fault = next(
            (one for one in self.faults if one.times and one.method == request.method and one.part in line), None
        )
        if fault is None:
            return await self._counted(request)
        fault.times -= 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(fault.delay_s):
                await self.over.wait()
        if fault.after:
            await self._answer(request)
        if fault.drop:
            assert request.transport is not None
            request.transport.abort()
        return _status(fault.status, fault.reason, fault.message, fault.headers)

    async def _counted(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await self._answer(request)
        self.changes_under_way += 1
        self.most_changes_at_once = max(self.most_changes_at_once, self.changes_under_way)
        try:
            await asyncio.sleep(self.change_s)
            return await self._answer(request)
        finally:
            self.changes_under_way -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        collection, _, name = request.path.rpartition("/")
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.34.4"})
        if collection.endswith("/runtimeclasses"):
            found = self.runtime_classes.get(name)
            return web.json_response(found) if found else _status(404, "NotFound", f'runtimeclasses "{name}" not found')
        if request.path in self.objects:
            return await self._collection(request)
        return await self._one(request, collection, name)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            body = await request.json()
            name = body["metadata"]["name"]
            if name in self.objects[request.path]:
                return _status(409, "AlreadyExists", "already exists")
            body["metadata"] = {"uid": f"uid-{self.version}", "generation": 1, **body["metadata"]}
            await self.put(request.path, body)
            return web.json_response(self.objects[request.path][name], status=201)
        if "watch" in request.query:
            return await self._watch(request)
        found = [thing for kind in _kinds(request.path) for thing in self.objects[kind].values()]
        items = [one for one in found if _selected(one, request.query)]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _one(self, request: web.Request, collection: str, name: str) -> web.StreamResponse:
        status = name == "status"
        if status:
            collection, _, name = collection.rpartition("/")
        # Before the object is looked at: another call may change it while the body comes.
        asked = None if request.method == "GET" else await request.json()
        found = self.objects.get(collection, {}).get(name)
        if found is None or asked is None:
            return web.json_response(found) if found else _status(404, "NotFound", f"{name} not found")
        if _outdated(asked, found):
            return _status(409, "Conflict", "the object has been modified")
        changed = json.loads(json.dumps(found))
        if request.method == "DELETE":
            if (asked.get("preconditions") or {}).get("uid") not in (None, found["metadata"].get("uid")):
                return _status(409, "Conflict", "the UID in the precondition does not match")
            changed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            grace = asked.get("gracePeriodSeconds")
            changed["metadata"]["ended"] = self.kubelet or grace == 0
        elif status:
            changed["status"] = {**changed.get("status", {}), **asked["status"]}
        elif request.content_type == "application/json-patch+json":
            if not _patched(changed, asked):
                return _status(422, "Invalid", "the server rejected our request due to an error in our request")
        else:
            _merged(changed, asked)
        await self.put(collection, changed)
        if changed["metadata"].get("ended") and not changed["metadata"].get("finalizers"):
            await self.remove(collection, name)
        return web.json_response(changed)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            return _status(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        response = web.StreamResponse()
        await response.prepare(request)
        closed = asyncio.Event()
        self.streams.append(stream := (request.path, closed))
        at = 0
        try:
            while not closed.is_set():
                for version, kind, collection, thing in self.history[at:]:
                    at += 1
                    chosen = collection in _kinds(request.path) and _selected(thing, request.query)
                    if version > since and chosen:
                        await response.write(json.dumps({"type": kind, "object": thing}).encode() + b"\n")
                async with self._changed:
                    while len(self.history) == at and not closed.is_set():
                        await self._changed.wait()
        finally:
            self.streams.remove(stream)
        return response


@asynccontextmanager
async def fake_kubernetes(
    folder: Path,
    change: Callable[[FakeKubernetes], None] = lambda _: None,
    made: type[FakeKubernetes] = FakeKubernetes,
) -> AsyncIterator[FakeKubernetes]:
    """Serves one with a ready node; `folder/kubeconfig` leads to it."""
    fake = made()
    await fake.put(NODES, node())
    change(fake)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    (folder / "kubeconfig").write_text(json.dumps(_kubeconfig(fake.url)))
    try:
        yield fake
    finally:
        fake.over.set()
        await fake.close_streams()
        await runner.cleanup()


def _selected(thing: Json, query: Mapping[str, str]) -> bool:
    """Whether an object is of the pod that a field selector names, and not of a namespace that one excludes.

    All other selectors select all.
    """
    fields = query.get("fieldSelector", "")
    _, _, uid = fields.partition("involvedObject.uid=")
    if f"metadata.namespace!={NAMESPACE}," in fields and thing["metadata"].get("namespace") == NAMESPACE:
        return False
    return not uid or thing.get("involvedObject", {}).get("uid") == uid


def _kinds(path: str) -> tuple[str, ...]:
    """The collections that a path lists: `EVERYWHERE` has the pods of other namespaces."""
    return (PODS, EVERYWHERE) if path == EVERYWHERE else (path,)


def _outdated(patch: Any, found: Json) -> bool:
    """Whether a patch names another version than there is."""
    named = patch.get("metadata", {}).get("resourceVersion") if isinstance(patch, dict) else None
    return named not in (None, found["metadata"]["resourceVersion"])


def _merged(changed: Json, asked: Json) -> None:
    """Applies a merge patch of metadata, spec and endpoints."""
    patch = asked["metadata"]
    changed |= {"endpoints": asked["endpoints"]} if "endpoints" in asked else {}
    if owners := patch.get("ownerReferences"):
        known = changed["metadata"].get("ownerReferences") or []
        changed["metadata"]["ownerReferences"] = [*{one["uid"]: one for one in (*known, *owners)}.values()]
    changed["metadata"].setdefault("annotations", {}).update(patch.get("annotations") or {})
    taken = patch.get("$deleteFromPrimitiveList/finalizers") or ()
    left = [one for one in changed["metadata"].get("finalizers") or () if one not in taken]
    changed["metadata"]["finalizers"] = left
    changed["metadata"]["annotations"] = {
        key: value for key, value in changed["metadata"]["annotations"].items() if value is not None
    }
    changed["spec"] = {
        key: value
        for key, value in {**(changed.get("spec") or {}), **(asked.get("spec") or {})}.items()
        if value is not None
    }


def _patched(thing: Json, changes: list[Json]) -> bool:
    """Applies a JSON patch of tests in the metadata and of whole specs; False when a test fails."""
    for change in changes:
        if change["op"] == "test" and thing["metadata"].get(change["path"].rpartition("/")[2]) != change["value"]:
            return False
        if change["op"] == "add":
            thing["metadata"]["generation"] += thing["spec"] != change["value"]
            thing["spec"] = change["value"]
    return True


def _kubeconfig(url: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }


def _status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)
