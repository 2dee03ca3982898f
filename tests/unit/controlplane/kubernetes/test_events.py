"""Events of a watch: what nobody reads of them is left out before it is parsed."""

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest

from controlplane.cluster.kubernetes.api_server.events import decoded

MANAGED = [
    {"manager": "python", "fieldsV1": {"f:spec": {'k:{"name":"target"}': {".": {}, "f:env": {}}}}},
    {"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}, "subresource": "status"},
]
WORDS = 'x,"managedFields":[{"a":1}]},"spec":{ and more'


class Streamed:
    """An answer that comes in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.content = self
        self._pieces = pieces

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def read(*pieces: bytes) -> list[dict[str, Any]]:
    response = cast("aiohttp.ClientResponse", Streamed(*pieces))
    return [event async for event in decoded(response, "WATCH pods")]


def written(metadata: dict[str, Any], **more: Any) -> bytes:
    event = {"type": "MODIFIED", "object": {"kind": "Pod", "metadata": metadata, **more}}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


async def test_who_has_written_which_field_is_left_out() -> None:
    about = {"name": "sb-1", "annotations": {"words": WORDS}}
    rest = {"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "message": WORDS}}
    whole = written({**about, "managedFields": MANAGED}, **rest)
    for at in (1, 100, len(whole) - 1):
        (event,) = await read(whole[:at], whole[at:])
        assert event["object"] == {"kind": "Pod", "metadata": about, **rest}


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "sb-1", "annotations": {"words": WORDS}},
        # As a custom resource has it, whose members are in order: it is in the middle there.
        {"managedFields": MANAGED, "name": "p", "uid": "u"},
        {"generation": 1, "managedFields": MANAGED, "name": "p", "uid": "u"},
        {"name": "sb-1", "managedFields": []},
    ],
)
async def test_all_else_is_read_as_it_is(metadata: dict[str, Any]) -> None:
    spec = {"template": {"metadata": {"labels": {}}, "spec": {"a": [{"b": 1}]}}}
    (event,) = await read(written(metadata, spec=spec))
    assert event["object"] == {"kind": "Pod", "metadata": metadata, "spec": spec}
    (event,) = await read(written(metadata, endpoints=[]))
    assert event["object"]["metadata"] == metadata
