"""Room on the nodes, through the SDK and the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from rollbox import Client
from rollbox.cli.app import app
from tests.support.gateway_fake import FakeGateway

FREE = {"cpu_millicores": 300, "memory_bytes": 3 << 29, "disk_bytes": 1 << 30, "gpu": 0, "pods": 250}
ALL = {**FREE, "cpu_millicores": 2000, "memory_bytes": 8 << 30, "pods": 256}
NODE = {"name": "a", "closed": "", "allocatable": ALL, "free": FREE, "sandboxes": 4, "pods": 6, "fits": 2, "later": 1}
CLOSED = {**NODE, "name": "b", "closed": "is cordoned", "sandboxes": 0, "fits": 0}
WHY = "no node has room for it now: node a has 0.3 cpu left"
WAITS = {"sandbox_id": "sb-1", "owner": "alice", "cpu_millicores": 500, "memory_bytes": 1 << 30, "why": WHY}
ROOM = {
    "known": True,
    "nodes": [NODE, CLOSED],
    "nodes_in_all": 2,
    "free": FREE,
    "fits": 2,
    "sandboxes": 4,
    "waiting": [{**WAITS, "since_ms": 1, "until_ms": 2, "estimate_ms": 4_000, "pending": False}],
    "waiting_in_all": 1,
}


async def test_it_is_read_by_node_and_by_start(fake: FakeGateway, client: Client) -> None:
    fake.quotas.capacity = ROOM
    seen = await client.capacity()
    assert [(one.name, one.free.cpu_millicores, one.fits) for one in seen.nodes] == [("a", 300, 2), ("b", 300, 0)]
    assert (seen.free.memory_bytes, seen.waiting[0].why, seen.pending_pods) == (3 << 29, WHY, 0)
    assert seen.to_json()["nodes"][0]["reserved"]["pods"] == 0


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["capacity", *words])


@pytest.mark.parametrize(("pending", "added"), [(0, "no node is added"), (8, "8 of each control plane may be Pending")])
def test_the_command_tells_nodes_and_what_waits(apart: FakeGateway, pending: int, added: str) -> None:
    apart.quotas.capacity = {**ROOM, "pending_pods": pending}
    told = run()
    assert told.exit_code == 0
    for part in ("0.3 of 2", "1.5 of 8Gi", "no: it is cordoned", "alice", WHY):
        assert part in told.stdout
    assert "4 sandboxes on 2 nodes; 2 more of the default size fit" in told.stderr
    assert f"1 start waits for room; {added}" in told.stderr
    assert json.loads(run("--json").stdout)["waiting"][0]["sandbox_id"] == "sb-1"


def test_where_nothing_is_set_aside_it_says_so(apart: FakeGateway) -> None:
    apart.quotas.capacity = {"known": False}
    told = run()
    assert (told.exit_code, told.stdout) == (0, "")
    assert "not known here" in told.stderr


SCALING = {
    "at_ms": 1_000,
    "dry_run": False,
    "node_pools": [
        {
            "name": "general",
            "provider": "cluster-api",
            "min": 1,
            "max": 9,
            "ready": 3,
            "coming": 2,
            "leaving": 1,
            "wanted": 4,
            "why": "pauses: no stock",
            "paused_until_ms": 9_999_999_999_999,
        }
    ],
    "steps": ["general: asks for 4 nodes: 1 more for 8 that wait"],
    "unplaced": [
        {
            "count": 2,
            "need": "waiting",
            "cpu_millicores": 64_000,
            "memory_bytes": 1 << 30,
            "gpu": 0,
            "why": "it needs 64 cpu, and a node of general has 32 cpu",
        }
    ],
    "unplaced_in_all": 2,
}


def test_the_command_tells_what_the_scaler_does(apart: FakeGateway) -> None:
    apart.quotas.capacity = {**ROOM, "scaling": SCALING}
    told = run()
    for part in ("general", "cluster-api", "1 to 9", "pauses: no stock; asked again in", "it needs 64 cpu", "starts"):
        assert part in told.stdout
    assert "it does now:\n  general: asks for 4 nodes: 1 more for 8 that wait" in told.stderr
    assert json.loads(run("--json").stdout)["scaling"]["node_pools"][0]["wanted"] == 4


def test_a_dry_run_and_a_scaler_that_does_not_decide_say_so(apart: FakeGateway) -> None:
    apart.quotas.capacity = {**ROOM, "scaling": {**SCALING, "dry_run": True, "steps": []}}
    assert "it would do now, and does not, since it is a dry run: nothing" in run().stderr
    apart.quotas.capacity = {**ROOM, "scaling": {**SCALING, "at_ms": None}}
    assert "the scaler has decided nothing within the last minute" in run().stderr
