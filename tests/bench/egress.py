"""Egress by itself: what a connection through it costs, how soon a policy is in force, what idle links take.

The program under test is a process of its own; feed, relays, name server and servers are fakes of one Rust program
(`gateway-rs/crates/egress/examples/load.rs`). What the relay in a sandbox adds is not in these figures.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from pathlib import Path
from typing import Any

from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.stack import Stack

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ("--locked", "--quiet", "--release", "--manifest-path", "gateway-rs/Cargo.toml", "--package", "egress")


async def measure(_stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: a build of both programs the first time, then 20 s."""
    doing("a build of rollbox-egress and of its fakes")
    await _cargo("build", *PACKAGE, "--bin", "rollbox-egress")
    doing("connections, downloads, 1,000 links, switches")
    told: dict[str, Any] = json.loads(await _cargo("run", *PACKAGE, "--example", "load"))
    return [*_connections(told), *_links(told)]


def _connections(told: dict[str, Any]) -> list[Record]:
    direct, through = told["set_up"]["direct"], told["set_up"]["egress"]
    moved = told["moved"]
    return [
        Record(
            "connection through egress by name, until the first byte of an answer, p50",
            through["p50"],
            "ms",
            f"{through['n']:,} of each, alternating, one at a time, a look-up of the name for each",
            Baseline("the same without egress, p50", direct["p50"], direct),
            distribution=through,
        ),
        Record(
            "one download through egress",
            statistics.median(moved["egress"]),
            "MB/s",
            "1 GiB over loopback, a fake relay",
            Baseline("the same without egress", statistics.median(moved["direct"]), of_rounds(moved["direct"])),
            faster_is="larger",
            distribution=of_rounds(moved["egress"]),
        ),
    ]


def _links(told: dict[str, Any]) -> list[Record]:
    idle, switches = told["idle"], told["switches"]
    return [
        Record(
            f"egress memory (VmRSS) with {idle['links']:,} idle links",
            idle["with"],
            "MiB",
            f"over {idle['policies']} policies of 30 rules, after the downloads",
            Baseline("the same process before them", idle["before"]),
        ),
        Record(
            "switch of a policy, from the feed to its report, p99",
            switches["one"]["p99"],
            "ms",
            f"{switches['one']['n']} one after the other, no open connection, without the control plane",
            distribution=switches["one"],
        ),
        Record(
            f"switch of {switches['at_once']} policies at once, the last report",
            switches["all_ms"],
            "ms",
            "of as many sandboxes, without the control plane",
        ),
    ]


async def _cargo(verb: str, *arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        "setup/cargo.sh", verb, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"cargo {verb} of egress ended with {process.returncode}")
    return out
