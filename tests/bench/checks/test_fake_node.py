"""The played kubelet sees which pods wait for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench.cluster.fake_node import Ending, WatchError, ending


def line(kind: str, **about: Any) -> bytes:
    thing = {"metadata": {"namespace": "boxes", "name": "sb-1", "uid": "u", **about}, "status": {}}
    return json.dumps({"type": kind, "object": thing}, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_a_pod_that_was_asked_to_end_waits(kind: str) -> None:
    assert ending(line(kind, deletionTimestamp="2026-01-01T00:00:00Z")) == Ending("boxes", "sb-1", "u")


@pytest.mark.parametrize(
    "other",
    [
        line("ADDED"),
        line("MODIFIED", annotations={"note": 'it has no "deletionTimestamp"'}),
        line("MODIFIED", deletionTimestamp=None),
        line("DELETED", deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
)
def test_pods_that_live_or_are_gone_do_not(other: bytes) -> None:
    assert ending(other) is None


def test_a_watch_that_breaks_is_no_silence() -> None:
    broken = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    with pytest.raises(WatchError, match="too old resource version"):
        ending(json.dumps(broken, separators=(",", ":")).encode())
