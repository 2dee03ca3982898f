"""Quotas and preflights on the real product: exact in their numbers and words, ending nothing, and taken back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from rollbox import Client, Preflight, Sandbox
from rollbox.errors import QuotaExceeded
from tests.support.images import IMAGE
from tests.support.replicas import of_each
from tests.support.stack import Product
from tests.support.waiting import until

SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


@pytest.fixture
async def owner(stack: Product, client: Client) -> AsyncIterator[str]:
    """The tests' owner, who has no quota before and none afterwards."""
    before = await client.quota()
    assert before.declared_for is None
    yield before.owner
    await client.remove_quota(before.owner)
    await until(lambda: _limited(stack, None))


async def test_creates_wait_in_their_places_for_room_and_a_lower_limit_ends_nothing(
    stack: Product, client: Client, shared: Sandbox, owner: str
) -> None:
    await client.set_quota(owner, sandboxes=1)
    await until(lambda: _limited(stack, 1))
    first, second = partial(_create, client, "1"), partial(_create, client, "2")
    async with asyncio.TaskGroup() as creates:
        waiting = [creates.create_task(first())]
        await until(lambda: _in_line(stack, {"1"}))
        waiting.append(creates.create_task(second()))
        await until(lambda: _in_line(stack, {"1", "2"}))
        await client.set_quota(owner, sandboxes=3)
    made = [create.result() for create in waiting]
    told = await client.set_quota(owner, sandboxes=1)
    assert (told.limits["sandboxes"], told.used["sandboxes"], told.free("sandboxes")) == (1, 3, 0)
    await until(lambda: _limited(stack, 1))
    refused = await _refused(client, start_timeout=2, **SMALL)
    words = (
        f"{owner} uses 3 sandboxes of 1 sandbox, and this needs 1 sandbox; it was number 1 of 1 of {owner} "
        f"that waited for quota; delete sandboxes, or an operator raises the limit with "
        f"`rollbox quota set {owner} --sandboxes N`"
    )
    assert re.fullmatch(words, refused.detail), refused.detail
    assert _facts(refused, "used") == {**_knob(owner, "sandboxes", "1", "false"), "used": "3"}
    assert refused.retry_after_ms
    assert [(await sandbox.exec("true")).exit_code for sandbox in (shared, *made)] == [0, 0, 0]
    await client.delete(*(sandbox.id for sandbox in made))


async def test_what_an_owner_may_never_have_is_refused_at_once(
    stack: Product, client: Client, shared: Sandbox, owner: str
) -> None:
    await client.set_quota(owner, sandboxes=2, cpu=1, memory="1Gi")
    await until(lambda: _limited(stack, 2))
    refused = await _refused(client, cpu=(1.5, 2))
    assert refused.detail == (
        f"this needs 1.5 cores, and the quota of {owner} is 1 core: waiting does not help; an operator raises it with "
        f"`rollbox quota set {owner} --cpu N`"
    )
    assert _facts(refused, "needed") == {**_knob(owner, "cpu_millicores", "1000", "true"), "needed": "1500"}
    told = await until(lambda: _here(client, 3))
    assert told is not None
    assert (told.fits, told.may_have, told.may_have_alone) == (False, 1, 2)
    with pytest.raises(QuotaExceeded) as blocked:
        told.require()
    words = f"this needs 3 sandboxes; {owner} may have 2 sandboxes and uses 1 sandbox"
    assert (blocked.value.detail, blocked.value.details["for_good"]) == (words, "true")
    assert blocked.value.hint == f"An operator raises it: rollbox quota set {owner} --sandboxes N"
    fits = await client.preflight(IMAGE, **SMALL)
    assert (fits.fits, fits.may_have, fits.blockers) == (True, 1, [])
    fits.require()
    # Neither nodes nor podman ask a registry before they pull.
    absent = await client.preflight("localhost/rollbox/there-is-none:1", **SMALL)
    assert (absent.fits, absent.image) == (True, "unknown")


async def _create(client: Client, place: str) -> Sandbox:
    return await client.create(IMAGE, labels={"place": place}, **SMALL)


async def _here(client: Client, n: int) -> Preflight | None:
    """A run's preflight, once its image is known to be on the node: a kubelet tells seconds after it has pulled it."""
    told = await client.preflight(IMAGE, n, **SMALL)
    return told if told.image == "here" else None


async def _refused(client: Client, **options: Any) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as refused:
        await client.create(IMAGE, **options)
    return refused.value


def _facts(refused: QuotaExceeded, *more: str) -> dict[str, str]:
    return {name: refused.details[name] for name in ("resource", "limit", "owner", "knob", "for_good", *more)}


def _knob(owner: str, resource: str, limit: str, for_good: str) -> dict[str, str]:
    """What every refusal names."""
    option = {"sandboxes": "--sandboxes", "cpu_millicores": "--cpu"}[resource]
    knob = f"rollbox quota set {owner} {option} N"
    return {"resource": resource, "limit": limit, "owner": owner, "knob": knob, "for_good": for_good}


async def _limited(stack: Product, sandboxes: int | None) -> bool:
    """Whether every replica has heard of the limit: each does by itself."""
    return {one.limits.get("sandboxes") for one in await of_each(stack, Client.quota)} == {sandboxes}


async def _in_line(stack: Product, wanted: set[str]) -> bool:
    """Whether exactly these creates wait, each in a place of its replica's line."""
    seen: set[str] = set()
    for one in await of_each(stack, Client.quota):
        assert [place.position for place in one.queue] == list(range(1, one.waiting + 1))
        labels = [place.labels["place"] for place in one.queue]
        assert labels == sorted(labels), "who came first stands first"
        seen.update(labels if one.queue and one.queue[0].waits_for == "sandboxes" else ())
    return seen == wanted
