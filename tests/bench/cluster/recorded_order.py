"""What a command opens, recorded as `rollbox image convert --record` does, and the image with that first."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from grpc import aio

from controlplane.cluster.kubernetes.marks import TARGET
from controlplane.images import Recorded
from controlplane.wire import node_pb2, node_pb2_grpc
from rollbox import Client
from tests.bench.cluster.large_images import LargeImage, ordered_image
from tests.bench.progress import doing
from tests.cluster import layout
from tests.support.installed import Installed, kubectl
from tests.support.waiting import until

WITHIN_S = 300.0


async def with_recorded_order(
    product: Installed, client: Client, image: LargeImage, command: Sequence[str]
) -> tuple[str, int]:
    """The name of an image's converted form in which what a command opens comes first, and how many files that are."""
    doing("recording what the suite opens")
    files = Recorded.of("bench", await _opened(product, client, image, command)).first
    doing(f"converting the image with {len(files)} files first")
    return await asyncio.to_thread(_ordered, image, files), len(files)


async def _container(product: Installed, sandbox_id: str) -> str:
    pod = json.loads(await kubectl("get", "pod", sandbox_id, "-n", product.sandboxes, "-o", "json"))
    told = (one for one in pod["status"].get("containerStatuses", ()) if one["name"] == TARGET)
    return next((str(one.get("containerID", "")).rpartition("//")[2] for one in told), "")


def _ordered(image: LargeImage, files: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="bench-ordered-", dir=layout.CACHE) as name:
        return ordered_image(image, files, Path(name))


async def _opened(product: Installed, client: Client, image: LargeImage, command: Sequence[str]) -> Sequence[str]:
    async with await client.create(
        image.lazy, pull="lazy", cpu=(0.001, 2), memory=("64Mi", "1Gi"), start_timeout=600
    ) as sandbox:
        # A sandbox is ready before its kubelet has told of its containers.
        container = await until(lambda: _container(product, sandbox.id))
        async with aio.insecure_channel(f"unix://{layout.SNAPSHOTTER_SOCKET}") as channel:
            recorder = node_pb2_grpc.RecorderStub(channel)  # type: ignore[no-untyped-call]
            call = recorder.Record(timeout=WITHIN_S)
            await call.write(node_pb2.ContainerRecordRequest(container_id=container))
            await call.read()  # it has begun
            await sandbox.exec([*command], check=True, timeout=WITHIN_S)
            await call.done_writing()
            told = await call.read()
    paths: Sequence[str] = told.opened.paths
    if not paths:
        raise RuntimeError(f"{command} has opened nothing, as the snapshotter tells")
    return paths
