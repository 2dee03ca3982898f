"""As much of an API server as Helm needs to look things up (`lookup`) when it renders with `--dry-run=server`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

Json = dict[str, Any]
# Of what the chart looks up: kind -> group and version, plural, whether it has a namespace.
KINDS: Final = {
    "Secret": ("v1", "secrets", True),
    "StatefulSet": ("apps/v1", "statefulsets", True),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses", False),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
}
_OBJECT: Final = re.compile(
    r"/apis?/(?P<group>.+/)?v1/(namespaces/(?P<namespace>[^/]+)/)?(?P<plural>[a-z]+)(/(?P<name>.+))?"
)


@contextmanager
def helm_cluster(*things: Json) -> Iterator[str]:
    """A cluster that has these objects, and takes none; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = _answer(self.path.partition("?")[0], things)
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self.wfile.write(json.dumps(found or missing).encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _answer(path: str, things: Sequence[Json]) -> Json | None:
    if path == "/version":
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    versions = sorted({version for version, _, _ in KINDS.values()})
    if path == "/apis":
        return {"kind": "APIGroupList", "groups": [_group(one) for one in versions if "/" in one]}
    if path.removeprefix("/apis/").removeprefix("/api/") in versions:
        return _resources(path.removeprefix("/apis/").removeprefix("/api/"))
    return _object(path, things)


def _group(version: str) -> Json:
    entry = {"groupVersion": version, "version": "v1"}
    return {"name": version.partition("/")[0], "versions": [entry], "preferredVersion": entry}


def _resources(version: str) -> Json:
    resources = [
        {"name": plural, "kind": kind, "namespaced": namespaced, "verbs": ["get", "list"]}
        for kind, (its, plural, namespaced) in KINDS.items()
        if its == version
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def _object(path: str, things: Sequence[Json]) -> Json | None:
    asked = _OBJECT.fullmatch(path)
    if asked is None:
        return None
    kinds = {plural: (kind, version) for kind, (version, plural, _) in KINDS.items()}
    kind, version = kinds.get(asked["plural"], ("", ""))
    items = [
        {"apiVersion": version, **one}
        for one in things
        if one["kind"] == kind and one["metadata"].get("namespace") == asked["namespace"]
    ]
    if asked["name"] is None:
        return {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": items}
    return next((one for one in items if one["metadata"]["name"] == asked["name"]), None)
