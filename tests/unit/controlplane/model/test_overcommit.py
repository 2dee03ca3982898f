"""What is set aside where a create gives limits alone: the same for creates, pools, preflights and repetitions."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controlplane.cluster.documents import Document
from controlplane.lifecycle import Options
from controlplane.lifecycle.admission.candidates import candidate
from controlplane.lifecycle.pools.declared import declared, filled
from controlplane.model import Overcommit, Sandbox, SandboxSpec
from controlplane.model.base import MIB
from controlplane.model.overcommit import LEAST_MEMORY_BYTES, LEAST_MILLICORES
from controlplane.model.spec import Range
from controlplane.settings import rules
from tests.support.world import world

RULE = Overcommit()
CPU = st.integers(10, 1_024_000)
MEMORY = st.integers(16 * MIB, 1 << 42)
SHARE = st.integers(1, 1000)


def spec(**more: object) -> SandboxSpec:
    return SandboxSpec.model_validate({"image": "a", **more})


def wish(asked: SandboxSpec, rule: Overcommit = RULE) -> Sandbox:
    return candidate("a", asked, "k", now_ms=0, idle_timeout_ms=5_000, overcommit=rule)


@given(CPU, MEMORY, SHARE, SHARE)
def test_a_request_is_its_share_of_the_limit_within_bounds(cpu: int, memory: int, one: int, other: int) -> None:
    rule = Overcommit(one, other)
    made = rule.filled(spec(cpu_millicores={"limit": cpu}, memory_bytes={"limit": memory}))
    parts = ((made.cpu_millicores, one, LEAST_MILLICORES), (made.memory_bytes, other, LEAST_MEMORY_BYTES))
    for part, share, least in parts:
        assert min(least, part.limit) <= part.request <= part.limit
        assert part.request in (least, part.limit) or 0 <= part.request * 1000 - part.limit * share < 1000
    assert rule.filled(made) is made


def test_what_was_requested_is_left_as_it_is() -> None:
    both = RULE.filled(spec(cpu_millicores={"request": 7, "limit": 1000}, memory_bytes={"limit": 512 * MIB}))
    assert both.cpu_millicores == Range(request=7, limit=1000)
    assert both.memory_bytes == Range(request=64 * MIB, limit=512 * MIB)
    # A create that leaves both out has requests of its own.
    assert RULE.filled(spec()) == spec()


@pytest.mark.parametrize(
    "cpu", [{"request": 0, "limit": 50}, {"request": 51, "limit": 50}, {"request": 50}, {"limit": None}]
)
def test_what_contradicts_itself_is_refused(cpu: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        spec(cpu_millicores=cpu)


def test_it_says_what_it_does() -> None:
    lone = RULE.filled(spec(cpu_millicores={"limit": 1000}, memory_bytes={"request": 100 * MIB, "limit": 512 * MIB}))
    told = "0.05 of 1 cpu (5 % of the limit, as where no request is given) and 100 of 512 MiB of memory"
    assert RULE.words(lone) == told


def test_a_record_has_what_was_promised_and_the_fingerprint_of_what_was_asked_for() -> None:
    lone = spec(memory_bytes={"limit": 512 * MIB})
    one, other = wish(lone), wish(lone, Overcommit(500, 500))
    # The chart may change between a create and its repetition.
    assert one.fingerprint == other.fingerprint == lone.fingerprint()
    assert (one.spec.memory_bytes.request, other.spec.memory_bytes.request) == (64 * MIB, 256 * MIB)
    # Who asks for the same amounts by number asks for something else.
    assert RULE.filled(lone).fingerprint() != lone.fingerprint()


def test_a_pool_that_gives_limits_alone_serves_creates_that_do() -> None:
    lone = {"image": "a", "memory_bytes": {"limit": 512 * MIB}}
    one = declared(Document("p", "1", {"template": lone, "max_warm": 1}))
    assert one.spec is not None
    assert one.spec.model_dump(mode="json")["template"]["memory_bytes"] == {"limit": 512 * MIB}
    made = filled(one, RULE).spec
    assert made is not None
    assert made.spec().template_hash() == RULE.filled(SandboxSpec.model_validate(lone)).template_hash()


async def test_creates_pools_and_preflights_agree() -> None:
    body = {"image": "python:3.12", "cpu_millicores": {"limit": 1000}, "memory_bytes": {"limit": 512 * MIB}}
    async with world(options=Options(overcommit=Overcommit(100, 500))) as plane:
        pool = await plane.api("PUT", "/v1/pools/p", body={"template": body, "min_warm": 1, "max_warm": 1})
        assert pool.json["spec"]["template"]["cpu_millicores"] == {"limit": 1000}
        await asyncio.sleep(5)
        key = {"Idempotency-Key": "k"}
        created = await plane.api("POST", "/v1/sandboxes", body=body, headers=key)
        assert (created.status, created.json["source"]) == (201, "warm")
        assert created.json["cpu_millicores"] == {"request": 100, "limit": 1000}
        assert created.json["memory_bytes"] == {"request": 256 * MIB, "limit": 512 * MIB}
        told = (await plane.api("GET", f"/v1/sandboxes/{created.json['id']}/timeline")).json["requests"]
        assert told.startswith("0.1 of 1 cpu (10 % of the limit, as where no request is given) and 256 of 512 MiB")
        checked = await plane.api("POST", "/v1/preflight", body={"sandbox": body, "count": 1})
        assert checked.json["requests"] == told
        again = await plane.api("POST", "/v1/sandboxes", body=body, headers=key)
        assert (again.json["id"], again.status) == (created.json["id"], 200)


@pytest.mark.parametrize(
    ("text", "thousandths"), [("0.05", 50), ("0.125", 125), ("1", 1000), ("1.0", 1000), ("0.001", 1)]
)
def test_shares_are_read(text: str, thousandths: int) -> None:
    assert rules.share(text) == thousandths


@pytest.mark.parametrize("text", ["0", "0.0", "1.1", "-1", "5%", "0.0001", "", "nan", "1e-2"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be from"):
        rules.share(text)
