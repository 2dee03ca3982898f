"""Network policies in SDK and command line: what is sent, what is told, and what is refused before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rollbox.sync
from rollbox import Client, EgressPolicy, EgressRule, Sandbox, SandboxGroup
from rollbox.errors import Conflict, EgressUnavailable, InvalidArgument, NotFound
from tests.support.gateway_fake import FakeGateway, Fault

TRAINER = EgressPolicy(
    mode="allow",
    include=["packages"],
    allow=["a.example", EgressRule(host="trainer.example", ports=[8443, "9000-9010"], name="trainer")],
    deny=[EgressRule(cidr="203.0.113.0/24")],
    connections=5,
)
WRITTEN = {
    "mode": "allow",
    "include": ["packages"],
    "allow": ["a.example", {"host": "trainer.example", "ports": [8443, "9000-9010"], "name": "trainer"}],
    "deny": [{"cidr": "203.0.113.0/24"}],
    "limits": {"connections": 5},
}


async def test_a_switch_tells_what_is_in_force(client: Client, fake: FakeGateway) -> None:
    fake.egress.cut = 2
    async with await client.create("python:3.12-slim") as sandbox:
        before = await sandbox.egress()
        assert (before.policy, before.revision, before.applied, before.link) == ("offline", 0, True, "none")
        after = await sandbox.egress(TRAINER, timeout=3)
        assert (after.policy, after.revision, after.cut, after.link) == ("custom", 1, 2, "up")
        assert after.rules["mode"] == "rules"
        assert await sandbox.egress() == after
        assert sandbox.record.egress == "custom"
        await sandbox.egress("offline")
    assert fake.egress.asked == [{"policy": WRITTEN, "wait_ms": 3000}, {"policy": "offline", "wait_ms": 10_000}]


async def test_a_create_a_group_and_a_lazy_sandbox_ask_for_it(client: Client, fake: FakeGateway) -> None:
    async with await client.create("python:3.12-slim", egress="packages"):
        pass
    async with await client.create("python:3.12-slim", egress=TRAINER):
        pass
    async with await SandboxGroup.create("python:3.12-slim", n=2, egress="packages", client=client):
        pass
    async with rollbox.LazySandbox("python:3.12-slim", egress="packages", client=client) as lazy:
        await lazy.exec("true")
    async with await client.create("python:3.12-slim"):
        pass
    asked = [body.get("egress") for body in fake.asked.values()]
    assert asked[:2] == ["packages", WRITTEN]
    assert [one for one in asked[2:] if one is not None] == ["packages"] * 3
    assert "egress" not in fake.bodies[-1]


async def test_a_switch_that_is_not_confirmed_is_told_and_one_whose_answer_is_lost_is_repeated(
    client: Client, fake: FakeGateway
) -> None:
    async with await client.create("python:3.12-slim") as sandbox:
        fake.fail("egress", Fault("egress_unavailable", retry_after_ms=1))
        with pytest.raises(EgressUnavailable) as refused:
            await sandbox.egress("packages")
        assert (refused.value.sandbox_id, fake.egress.asked) == (sandbox.id, [])
        fake.fail("egress", Fault(after=True))
        assert (await sandbox.egress("packages")).policy == "packages"
        assert len(fake.egress.asked) == 2


@pytest.mark.parametrize("policy", ["", 3, {"mode": "open"}])
async def test_what_is_no_policy_is_refused_before_anything_is_sent(client: Client, policy: object) -> None:
    async with await client.create("python:3.12-slim") as sandbox:
        with pytest.raises(InvalidArgument):
            await sandbox.egress(policy)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await client.create("python:3.12-slim", egress=policy)  # type: ignore[arg-type]


def test_a_policy_reads_back_and_refuses_what_it_has_not() -> None:
    assert EgressPolicy.from_json(WRITTEN).to_json() == WRITTEN
    odd: Any
    for odd in ({}, [], {"mode": "open", "more": 1}, {"mode": "allow", "allow": [{"host": "a", "port": 1}]}):
        with pytest.raises(InvalidArgument):
            EgressPolicy.from_json(odd)
    bad: Any
    for bad in ({}, {"host": "a.example", "cidr": "1.2.3.4"}):
        with pytest.raises(InvalidArgument, match="a host or a cidr"):
            EgressRule(**bad)
    with pytest.raises(InvalidArgument, match="closed"):
        EgressPolicy(mode="closed")  # type: ignore[arg-type]


async def test_a_deleted_sandbox_is_not_switched(client: Client) -> None:
    sandbox: Sandbox = await client.create("python:3.12-slim")
    await sandbox.delete()
    with pytest.raises(rollbox.errors.Deleted):
        await sandbox.egress("offline")


ATTEMPT = {"at_ms": 1_800_000_000_000, "host": "github.com", "port": 443, "verdict": "denied_name", "count": 2}
ATTEMPT |= {"policy": "swe-eval", "rule": "swe-eval/github", "protocol": "connect", "later": 1}


async def test_presets_are_listed_declared_and_removed(client: Client, fake: FakeGateway) -> None:
    assert [(one.name, one.source) for one in await client.egress_presets()] == [
        ("offline", "installation"),
        ("packages", "installation"),
    ]
    assert (await client.egress_preset("packages")).policy.to_json() == {
        "mode": "allow",
        "allow": [{"host": "pypi.org", "name": "pypi"}],
    }
    made = await client.set_egress_preset("mine", TRAINER)
    assert (made.source, made.policy.to_json(), fake.egress.own["mine"]) == ("own", WRITTEN, WRITTEN)
    with pytest.raises(Conflict):
        await client.set_egress_preset("packages", TRAINER)
    assert await client.remove_egress_preset("mine")
    assert not await client.remove_egress_preset("mine")
    with pytest.raises(NotFound):
        await client.egress_preset("mine")


def written(folder: Path) -> str:
    file = folder / "policy.json"
    file.write_text(json.dumps(WRITTEN))
    return f"@{file}"
