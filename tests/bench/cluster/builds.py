"""A build in the pod that builds run in, against the same builder outside gVisor: one manifest, two runtimes."""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import tarfile
import time
from collections.abc import AsyncIterator
from itertools import product
from typing import Any, NamedTuple
from uuid import uuid4

import aiohttp

from controlplane.cluster.kubernetes.builds.builder import Builder
from controlplane.cluster.kubernetes.builds.manifests import Base, Blob
from controlplane.cluster.kubernetes.builds.pod import CAPABILITIES, DROPPED, PORT, STATE, kept_by_gvisor
from controlplane.cluster.protocol.builds import BuildWish
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.addresses import pod_address
from tests.support.images import ON_CLUSTER, pushed
from tests.support.installed import Installed, apply, kubectl
from tests.support.waiting import until

ROUNDS = 5
DISK_BYTES = 2 << 30
BASE = "rollbox/0"
# Of an image that differs from the last one in its end, as those of a data set do.
NEXT = "RUN echo next > next\n"
# Files that are copied, many that a step writes, a compiler over a tree, and one large file: without a network.
DOCKERFILE = f"""FROM {BASE}
WORKDIR /app
COPY . .
RUN mkdir many && cd many && for n in $(seq 1500); do echo $n > $n; done
RUN mkdir lib && cp -r /usr/lib/python3* lib && (python3 -m compileall -q -f lib || true)
RUN head -c 67108864 /dev/urandom > large && sha256sum large > sum
RUN tar -cf tree.tar many && rm -r many
"""
# BuildKit takes itself for rootless in gVisor alone. Only then it shares its processes with steps, as the builder asks.
OUTSIDE = r"""mv /usr/bin/buildkitd /usr/bin/own
cat > /usr/bin/buildkitd <<'END'
#!/bin/sh
for one; do shift; [ "$one" = --oci-worker-no-process-sandbox ] || set -- "$@" "$one"; done
exec /usr/bin/own "$@"
END
chmod 755 /usr/bin/buildkitd
exec /rollbox-builder"""


class Place(NamedTuple):
    """Where a builder runs, and where its files are."""

    in_gvisor: bool
    in_memory: bool

    def __str__(self) -> str:
        return f"{'in' if self.in_gvisor else 'outside'} gVisor, state {'in memory' if self.in_memory else 'on disk'}"


PLACES = [Place(*chosen) for chosen in product((True, False), (False, True))]
MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


async def measure(_: Installed) -> list[Record]:
    """The records of this scenario. Cost: ten minutes."""
    async with _registry() as registry:
        base, blobs = await _base(registry)
    took: dict[tuple[str, Place], list[float]] = {at: [] for at in product(("first", "next"), PLACES)}
    for number, place in product(range(ROUNDS + 1), PLACES):
        doing(f"builds, round {number}, {place}")
        for which, seconds in (await _built(place, base=base, blobs=blobs)).items():
            # The first ones bring the builder's image to the node.
            took[which, place] += [seconds] if number else []
    names = {
        "first": "a build, from its context to its layers",
        "next": "the next one in the same pod, with another last step",
    }
    return [
        _record(name, in_memory, took[which, Place(True, in_memory)], took[which, Place(False, in_memory)])
        for (which, name), in_memory in product(names.items(), (False, True))
    ]


def _record(name: str, in_memory: bool, inside_s: list[float], outside_s: list[float]) -> Record:
    own, other = of_rounds(inside_s), of_rounds(outside_s)
    what = "the same builder in a privileged pod under runc, whose steps have process namespaces of their own"
    where = f"a Dockerfile of six steps and 40 files, {ROUNDS} rounds in turn, a new pod each, 2 cores"
    baseline, state = Baseline(what, other["p50"], other), "state in memory" if in_memory else "state on disk"
    return Record(f"{name}, {state}", own["p50"], "s", where, baseline, distribution=own)


async def _built(place: Place, *, base: Base, blobs: dict[str, bytes]) -> dict[str, float]:
    """Seconds of a build in a new pod that has the base already, and of the next build in the same pod."""
    async with _builder(place) as builder:
        for digest, content in blobs.items():
            await builder.bring(digest, content)
        return {
            "first": await _one(builder, base, DOCKERFILE),
            "next": await _one(builder, base, DOCKERFILE + NEXT),
        }


async def _one(builder: Builder, base: Base, dockerfile: str) -> float:
    wish, began = BuildWish(dockerfile, {}, "", ""), time.perf_counter()
    steps = builder.build(wish, dockerfile, {BASE: base}, _context(), {}, mark=f".rollbox-{secrets.token_hex(8)}")
    async for told in steps:
        made = told
    assert isinstance(made, dict), made
    return time.perf_counter() - began


def _context() -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number in range(40):
            entry = tarfile.TarInfo(f"src/{number}.py")
            content = f"value = {number}\n".encode() * 100
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made


@contextlib.asynccontextmanager
async def _builder(place: Place) -> AsyncIterator[Builder]:
    name, token = f"bench-{uuid4().hex[:8]}", secrets.token_hex(16)
    await apply(_pod(name, token, place))
    try:
        await kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=180s")
        address = await pod_address(name, "default")
        async with Builder.open(f"http://{address}:{PORT}", token, DISK_BYTES) as builder:
            await until(builder.ready)
            yield builder
    finally:
        await kubectl("delete", "pod", name, "--wait=true")


def _pod(name: str, token: str, place: Place) -> dict[str, Any]:
    # Outside gVisor the volume has the size of the node's disk.
    most_bytes = DISK_BYTES if place.in_gvisor or place.in_memory else 1 << 60
    told = {"TOKEN": token, "STATE": STATE, "MOST_BYTES": str(most_bytes)}
    told |= {"IN_MEMORY": "true"} if place.in_memory else {}
    powers = {"add": list(CAPABILITIES), "drop": list(DROPPED)}
    container = {
        "name": "builder",
        "image": pushed("builder"),
        **({} if place.in_gvisor else {"command": ["/bin/sh", "-c", OUTSIDE]}),
        "env": [{"name": f"ROLLBOX_BUILDER_{one}", "value": value} for one, value in told.items()],
        "securityContext": {"capabilities": powers} if place.in_gvisor else {"privileged": True},
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "100m", "memory": "512Mi"}},
        "volumeMounts": [] if place.in_memory else [{"name": "state", "mountPath": STATE}],
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **({"runtimeClassName": "gvisor"} if place.in_gvisor else {}),
        **({} if place.in_memory else {"volumes": [{"name": "state", "emptyDir": {}}]}),
    }
    noted = kept_by_gvisor(DISK_BYTES) if place.in_gvisor and not place.in_memory else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": noted}, "spec": spec}


@contextlib.asynccontextmanager
async def _registry() -> AsyncIterator[aiohttp.ClientSession]:
    host = ON_CLUSTER.partition("/")[0]
    async with aiohttp.ClientSession(f"http://{host}/v2/", raise_for_status=True) as session:
        yield session


async def _base(registry: aiohttp.ClientSession) -> tuple[Base, dict[str, bytes]]:
    """The image of the tests as a build reads it, and all its contents."""
    repository, _, tag = ON_CLUSTER.partition("/")[2].rpartition(":")
    async with registry.get(f"{repository}/manifests/{tag}", headers={"Accept": MANIFESTS}) as answer:
        manifest, digest = await answer.read(), answer.headers["Docker-Content-Digest"]
    said = json.loads(manifest)
    config, *layers = (Blob(one["digest"], one["size"], one["mediaType"]) for one in (said["config"], *said["layers"]))
    blobs = {digest: manifest}
    for one in (config, *layers):
        async with registry.get(f"{repository}/blobs/{one.digest}") as answer:
            blobs[one.digest] = await answer.read()
    return Base(BASE, repository, digest, manifest, config, layers), blobs
