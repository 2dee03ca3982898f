"""Late settings that gateways bind: the control plane has their digest, and decides about what cannot be bound."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from controlplane.errors import Problem
from controlplane.errors.table import HINT_OF_REASON
from controlplane.lifecycle.record.callers import new_caller
from controlplane.lifecycle.service.creates import Created
from tests.support.world import OWNER, SPEC, World, world
from tests.unit.controlplane.lifecycle.test_claims import pooled

ONE, OTHER = (SPEC.model_copy(update={"settings_digest": digit * 64}) for digit in "ab")
Place = Callable[[], AbstractAsyncContextManager[World]]
AWAY = ("sandbox_unreachable", "no answer within 3 s")


async def _unbound(plane: World, sandbox_id: str, code: str = AWAY[0], detail: str = AWAY[1]) -> Problem | None:
    """What a gateway is told that could not bind; None: repeat the create."""
    try:
        await plane.service.unbound(OWNER, sandbox_id, Problem(code, detail))  # type: ignore[arg-type]
    except Problem as problem:
        return problem
    return None


async def _again(plane: World, replaced: int) -> Created:
    """The create that a gateway repeats after so many could not be bound."""
    by_ms = plane.service.deadline_ms(ONE)
    return await plane.service.create(OWNER, ONE, "k", by_ms=by_ms, caller=new_caller(), begun=[], replaced=replaced)


@pytest.mark.parametrize("place", [pooled, world])
async def test_settings_by_digest_are_compared_and_promised_and_not_bound_here(place: Place) -> None:
    async with place() as plane:
        made = await plane.create(OWNER, ONE, "k")
        assert made.sandbox.settings_digest == "a" * 64
        assert (await plane.create(OWNER, ONE, "k")).replayed
        for other in (OTHER, SPEC):
            with pytest.raises(Problem, match="conflict"):
                await plane.create(OWNER, other, "k")


@pytest.mark.parametrize("value", [{"env": {"A": "1"}}, {"cwd": "/w"}, {"user": "u"}])
async def test_values_are_the_gateways_to_bind_and_refused_here(value: dict[str, Any]) -> None:
    async with pooled() as plane:
        whole = {"image": SPEC.image, **value}
        for path, body in (("sandboxes", whole), ("groups/g", {"count": 1, "sandbox": whole})):
            answer = await plane.api("PUT" if "/" in path else "POST", f"/v1/{path}", body=body)
            assert (answer.code, "bound by gateways" in answer.json["detail"]) == ("invalid_argument", True)
        assert await plane.service.find(OWNER, {}, None) == []


async def test_a_claimed_one_that_cannot_be_bound_is_replaced_by_the_repeated_create() -> None:
    async with pooled() as plane:
        first = (await plane.create(OWNER, ONE, "k")).sandbox
        assert await _unbound(plane, first.id) is None
        ended = await plane.service.get(OWNER, first.id)
        assert ended.end is not None
        assert (ended.end.cause, ended.end.detail) == (
            "sandbox_lost",
            "it did not answer when it was claimed: no answer within 3 s",
        )
        assert await _unbound(plane, first.id) is None, "the answer was lost, and the gateway asks again"
        again = await _again(plane, replaced=1)
        assert (again.sandbox.warm, again.replayed) == (True, False)
        assert again.sandbox.id != first.id


async def test_after_a_few_replacements_the_next_one_is_a_cold_start() -> None:
    async with pooled() as plane:
        made = await _again(plane, replaced=4)
        assert (made.sandbox.warm, made.sandbox.cold_reason) == (False, "4 warm ones were dead when they were claimed")


@pytest.mark.parametrize(
    ("place", "why"),
    [(pooled, ("invalid_argument", "no user")), (world, ("invalid_argument", "no user")), (world, AWAY)],
)
async def test_settings_that_cannot_be_and_a_cold_start_that_does_not_answer_are_the_answer(
    place: Place, why: tuple[str, str]
) -> None:
    async with place() as plane:
        made = (await plane.create(OWNER, ONE, "k")).sandbox
        said = await _unbound(plane, made.id, *why)
        assert said is not None
        assert (said.code, said.detail, said.details["ended"]) == (*why, "true")
        end = (await plane.service.get(OWNER, made.id)).end
        assert end is not None
        assert (end.cause, end.detail) == why
        with pytest.raises(Problem, match=why[1]):
            await plane.create(OWNER, ONE, "k")


async def test_a_refusal_keeps_its_reason_and_with_it_its_hint_in_the_record() -> None:
    async with world() as plane:
        made = (await plane.create(OWNER, ONE, "k")).sandbox
        why = Problem("invalid_argument", "there is no /x", reason="cwd_not_found", sandbox_id=made.id)
        with pytest.raises(Problem) as told:
            await plane.service.unbound(OWNER, made.id, why)
        end = (await plane.service.get(OWNER, made.id)).end
        assert end is not None
        assert end.details == {"reason": "cwd_not_found"}
        story = (await plane.api("GET", f"/v1/sandboxes/{made.id}/timeline")).json
        with pytest.raises(Problem) as again:
            await plane.create(OWNER, ONE, "k")
        hint = HINT_OF_REASON["cwd_not_found"]
        assert (told.value.hint, again.value.hint, story["advice"]) == (hint, hint, hint)
        assert {**again.value.details, "ended": "true"}.items() >= told.value.details.items()


@pytest.mark.parametrize("place", [pooled, world])
async def test_one_that_may_be_in_use_is_not_taken_away(place: Place) -> None:
    async with place() as plane:
        made = (await plane.create(OWNER, ONE, "k")).sandbox
        await asyncio.sleep(61)
        said = await _unbound(plane, made.id)
        assert said is not None
        assert (said.code, "ended" in said.details) == ("sandbox_unreachable", False)
        assert (await plane.service.alive(OWNER, made.id)).id == made.id


async def test_what_its_owner_has_deleted_stays_deleted() -> None:
    async with pooled() as plane:
        made = (await plane.create(OWNER, ONE, "k")).sandbox
        await plane.service.delete(OWNER, made.id)
        said = await _unbound(plane, made.id)
        assert said is not None
        assert said.code == "deleted"
        with pytest.raises(Problem, match="sandbox_not_found"):
            await plane.service.unbound("bob", made.id, Problem("internal", "not bob's"))
