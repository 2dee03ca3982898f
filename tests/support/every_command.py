"""A call of every command that the parser has, against a gateway that has something of each kind to tell."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rollbox import Client
from tests.support.forked_commands import TERMINALS, Asked, Ran, forked
from tests.support.gateway_fake import API_KEY, FakeGateway, serving_apart

# ID is a sandbox, FOLDER a folder of this machine. What would wait for ever is refused.
CALLS: Final = {
    "up": "--nope",
    "bridge docker": "--nope",
    "bridge e2b": "--nope",
    "mcp": "--nope",
    "bridge fusion": "--nope",
    "bridge prime": "--nope",
    "create": "python",
    "exec": "ID -- echo hello",
    "processes": "ID",
    "attach": "ID nosuch",
    "kill": "ID nosuch",
    "grade": "ID --image python --run words",
    "cp": "ID:/f FOLDER/copy",
    "ls": "ID:/",
    "stat": "ID:/f",
    "mkdir": "ID:/made",
    "mv": "ID:/f ID:/g",
    "rm": "ID:/g",
    "watch": "ID",
    "egress show": "ID",
    "egress set": "ID open",
    "egress log": "ID",
    "egress preset list": "",
    "egress preset show": "packages",
    "egress preset set": "mine @FOLDER/policy.json",
    "egress preset delete": "mine",
    "expose": "ID 8000",
    "unexpose": "ID 8000",
    "share": "ID",
    "port-forward": "ID nope",
    "commit": "ID team/name:1",
    "checkpoint": "ID",
    "ps": "--all",
    "python": "nosuch-id",
    "logs": "ID",
    "events": "--no-follow",
    "audit": "--since 1h",
    "why": "ID",
    "top": "",
    "ui": "--nope",
    "preflight": "python",
    "capacity": "",
    "node list": "",
    "node show": "node-1.example",
    "node drain": "node-1.example",
    "node undrain": "node-1.example",
    "doctor": "--cluster --kubeconfig FOLDER/nosuch",
    "bench": "python --scenario nosuch",
    "config set": "one http://gateway --key-env KEY",
    "config list": "",
    "config show": "",
    "config use": "one",
    "config remove": "one",
    "completion": "bash",
    "group list": "",
    "group show": "a-group-of-rollouts",
    "group delete": "nosuch",
    "image list": "",
    "image prefetch": "python",
    "image commits": "",
    "image remove": "repo:v1",
    "image build": "FOLDER/context",
    "image convert": "python",
    "image scrub-git": "ID /",
    "dataset set": "mini --claim papers --owner alice",
    "dataset list": "",
    "dataset show": "mini",
    "dataset delete": "mini",
    "pool set": "py python --warm 2:8",
    "pool list": "",
    "pool show": "py",
    "pool drain": "py",
    "pool delete": "py",
    "quota set": "team --sandboxes 64 --memory 1Ti",
    "quota list": "",
    "quota show": "team",
    "quota remove": "team",
    "key create": "ci --scope run --scope images",
    "key list": "",
    "key rotate": "ci --grace 0",
    "key revoke": "ci",
    "delete": "ID",
}
_FREE = {"cpu_millicores": 300, "memory_bytes": 3 << 29, "disk_bytes": 1 << 30, "gpu": 0, "pods": 250}
_ROOM = {"name": "node-1.example", "closed": "is cordoned", "allocatable": _FREE, "free": _FREE, "sandboxes": 4}
_NODE = {"name": "node-1.example", "state": "ready", "max_pods": 256, "claimed": 2, "warm": 1, "starting": 0}
_ATTEMPT = {"at_ms": 2, "host": "a-long-name.of-a-host.example", "port": 443, "verdict": "denied_name", "count": 2}


def commands(group: Any, *names: str) -> Iterator[str]:
    """Yield the names of all commands of a parser's group."""
    for name in group.list_commands(None):
        one = group.get_command(None, name)
        if hasattr(one, "list_commands"):
            yield from commands(one, *names, name)
        else:
            yield " ".join((*names, name))


async def _furnish(fake: FakeGateway) -> None:
    labels = {"rollbox.group": "a-group-of-rollouts", "rollbox.sample": "0", "team": "reinforcement-learning"}
    async with Client(fake.url, API_KEY) as client:
        sandbox = await client.create("registry.example/some/team/image:1", labels=labels, lease=None)
        await sandbox.exec(["echo", "some", "words"])
        ended = await client.create("registry.example/some/other-team/image:2", lease=None)
    fake.end(ended.id, "disk_full")
    now_ms = round(1000 * time.time())
    fake.sandboxes[sandbox.id] |= {"created_at_ms": now_ms, "expires_at_ms": now_ms + 3_600_000}
    fake.quotas.nodes = {"node-1.example": {**_NODE, "why": "it was told to be odd", "drain": None}}
    whole = {"nodes": [{**_ROOM, "pods": 6, "fits": 0}], "nodes_in_all": 1, "waiting": [], "waiting_in_all": 0}
    fake.quotas.capacity = {"known": True, **whole, "free": _FREE, "fits": 0, "sandboxes": 4}
    told = {"policy": "swe-eval", "rule": "swe-eval/github", "protocol": "connect"}
    fake.egress.attempts = [_ATTEMPT | told, _ATTEMPT | told | {"host": "other.example", "verdict": "allowed"}]


def calls(kind: str) -> dict[str, str]:
    """Return the calls that end by themselves on streams of a kind: on a terminal `top` goes on until Ctrl-C."""
    return {name: call for name, call in CALLS.items() if kind not in TERMINALS or name != "top"}


@dataclass(frozen=True)
class Every:
    """What came of all commands.

    Attributes:
        ran: by kind of streams and command the exit code, stdout and stderr.
        fakes: by kind the gateway that they were run against.
    """

    ran: dict[str, dict[str, Ran]]
    fakes: dict[str, FakeGateway]


def every_ran(kinds: Iterable[str], folder: Path) -> Every:
    """Run all of them in turn on streams of each kind, against a gateway of its own, in a folder."""
    asked: list[Asked] = []
    with ExitStack() as gateways:
        fakes = {kind: gateways.enter_context(serving_apart()) for kind in kinds}
        for kind, fake in fakes.items():
            place = folder / kind.replace(" ", "-")
            fake.files.root = place / "inside"
            fake.files.root.mkdir(parents=True)
            (fake.files.root / "f").write_text("data")
            (place / "policy.json").write_text('{"mode": "open"}')
            (place / "context").mkdir()
            (place / "context" / "Dockerfile").write_text("FROM python")
            asyncio.run(_furnish(fake))
            own = {"ROLLBOX_URL": fake.url, "ROLLBOX_API_KEY": API_KEY, "ROLLBOX_CONFIG": f"{place}/config.toml"}
            for name, call in calls(kind).items():
                words = f"{name} {call}".replace("FOLDER", str(place)).replace("ID", "sb-1")
                asked.append((kind, {**own, "NO_COLOR": "1", "TERM": "xterm"}, shlex.split(words)))
        ended = iter(forked(asked))
    return Every({kind: {name: next(ended) for name in calls(kind)} for kind in fakes}, fakes)
