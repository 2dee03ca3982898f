"""Recorded copies: whose they are, which starts get them, and what becomes of ones that do not start."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster import Death
from controlplane.errors import Problem
from controlplane.images import Converted, Recorded, in_tags, names_a_file, parse, whose
from controlplane.images.copies import MOST_FIRST, MOST_FIRST_BYTES
from controlplane.lifecycle.images.recordings import MOST_OF_OWNER
from controlplane.lifecycle.images.verdicts import FAILED_MS, KNOWN_MS
from controlplane.lifecycle.record.timeline import story
from controlplane.model import Sandbox, SandboxSpec, State
from tests.support.fake_cluster import FakeSidecars
from tests.support.fake_collector import FakeCollector
from tests.support.fake_mirror import FakeMirror
from tests.support.fake_registry import digest
from tests.support.world import OWNER, World
from tests.unit.controlplane.lifecycle.images.test_lazily import CONVERTED, KEY, LAZY, PRIVATE, created, plane

FIRST = ["/usr/bin/python3", "/usr/lib/libc.so.6"]
OWN = (*KEY, whose(OWNER))


def recorded(*first: str) -> str:
    """The digest of the owner's copy with these files first."""
    return digest(f"lazy {digest('a')} {Recorded.of(OWNER, first)}")


def named(ran: str) -> str:
    """The name by which nodes pull it."""
    return LAZY.replace(CONVERTED, ran)


async def converted(plane: World, *first: str) -> dict[str, Any]:
    """The last line of the answer."""
    answer = await plane.api("POST", "/v1/images/convert", body={"image": "python:3", "first": [*first]})
    assert answer.status == 200, answer
    last: dict[str, Any] = json.loads(answer.body.splitlines()[-1])
    return last


async def other(plane: World) -> str:
    """The image that the cluster is given for a sandbox of another owner."""
    sandbox = (await plane.create("bob", SandboxSpec(image="python:3"))).sandbox
    return plane.cluster.held[sandbox.id].spec.image


async def test_the_owners_starts_get_its_recorded_copy_and_no_others_do() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        assert (await created(running))[1] == LAZY
        ran = recorded(*FIRST)
        assert await converted(running, *FIRST) == {"state": "offered", "digest": digest("a"), "ran": ran}
        assert mirror.lists == [tuple(FIRST)]
        sandbox, image = await created(running)
        assert (image, sandbox.image_ran, sandbox.image_pulled) == (named(ran), ran, "lazy")
        assert await other(running) == LAZY
        # What all owners get was not converted anew, nor judged.
        assert mirror.lazy[KEY] == Converted(CONVERTED, booted=True)


async def test_a_later_list_takes_the_place_of_the_one_before() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        for first in (["/a"], ["/b"]):
            assert (await converted(running, *first))["ran"] == recorded(*first)
            assert (await created(running))[1] == named(recorded(*first))


async def test_one_from_which_no_sandbox_starts_takes_no_place() -> None:
    mirror, sidecars = FakeMirror(), FakeSidecars()
    async with plane(mirror, sidecars=sidecars) as running:
        await converted(running, "/a")
        sidecars.fails = "it ended with 1"
        last = await converted(running, "/b")
        assert (last["state"], "it ended with 1" in last["problem"]["detail"]) == ("failed", True)
        assert (await created(running))[1] == named(recorded("/a"))
        assert mirror.recorded[OWN].digest == recorded("/a")


async def test_a_start_that_fails_from_it_is_none_against_the_copy_of_all_owners() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        await converted(running, "/a")
        running.cluster.hangs = PRIVATE.converted
        creating = asyncio.create_task(created(running, timeout_ms=300_000))
        # Longer than what is known of a copy holds.
        await asyncio.sleep(2 * KNOWN_MS / 1000)
        (waiting,) = running.cluster.held
        running.cluster.kill(Death(waiting, "image_pull_failed", "nothing of it is left"))
        with pytest.raises(Problem, match="nothing of it is left"):
            await creating
        running.cluster.hangs = ""
        assert (await created(running))[1] == LAZY
        assert await other(running) == LAZY
        # The pause is over, and the copy is tried again.
        await asyncio.sleep((FAILED_MS + KNOWN_MS) / 1000)
        assert (await created(running))[1] == named(recorded("/a"))


@pytest.mark.parametrize("failures", [1, 2, 16])
async def test_starts_of_an_owner_that_fail_together_leave_others_their_copy(failures: int) -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        await converted(running, "/a")
        running.cluster.hangs = PRIVATE.converted
        creating = [asyncio.create_task(created(running, timeout_ms=300_000)) for _ in range(failures)]
        await asyncio.sleep(1)
        for waiting in [*running.cluster.held]:
            running.cluster.kill(Death(waiting, "image_pull_failed", "nothing of it is left"))
        ends = await asyncio.gather(*creating, return_exceptions=True)
        assert all("nothing of it is left" in str(one) for one in ends)
        running.cluster.hangs = ""
        assert await other(running) == LAZY
        assert (await created(running))[1] == LAZY


@pytest.mark.parametrize("failures", [1, 2, 16])
async def test_a_failure_of_a_copy_that_was_not_offered_here_is_nobodys(failures: int) -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        assert await other(running) == LAZY
        conversions = running.service._core._conversions
        assert conversions is not None
        for _ in range(failures):
            conversions.broke(parse(f"python@{digest('a')}"), OWNER, recorded("/a"), "nothing of it is left")
        assert await other(running) == LAZY


async def test_equal_calls_join_and_others_do_not() -> None:
    mirror = FakeMirror(converts_s=20)
    async with plane(mirror) as running:
        async with asyncio.TaskGroup() as group:
            for first in (["/a"], ["/a"], ["/b"]):
                group.create_task(converted(running, *first))
        assert sorted(mirror.lists) == [("/a",), ("/b",)]


async def pooled(plane: World, **spec: Any) -> Sandbox:
    """The warm sandbox of a pool, once it is ready."""
    body = {"template": {"image": "python:3"}, "min_warm": 1, "max_warm": 1, **spec}
    assert (await plane.api("PUT", "/v1/pools/p", body=body)).status in (200, 201)
    await asyncio.sleep(20)
    (sandbox,) = await plane.deps.store.find(None, {}, {State.WARM})
    return sandbox


async def test_a_pool_has_the_copy_of_all_owners_unless_it_names_one_whose_copy_it_gets() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    mirror.recorded[*KEY, whose("pool:p")] = Converted(recorded("/b"), booted=True)
    async with plane(mirror) as running:
        await converted(running, "/a")
        warm = await pooled(running)
        assert running.cluster.held[warm.id].spec.image == LAZY
        assert (warm.image_ran, warm.image_pulled_why) == (CONVERTED, "")
        # A claim of any owner has what is warm, and says what that is.
        assert (await running.create("bob", SandboxSpec(image="python:3"))).sandbox.id == warm.id
        changed = await running.api("PATCH", "/v1/pools/p", body={"recording_of": OWNER})
        assert changed.json["spec"]["recording_of"] == OWNER
        # The one that had begun by then.
        await running.create("bob", SandboxSpec(image="python:3"))
        await asyncio.sleep(20)
        claimed = (await running.create("bob", SandboxSpec(image="python:3"))).sandbox
        assert (claimed.owner, claimed.pool) == ("bob", "p")
        assert running.cluster.held[claimed.id].spec.image == named(recorded("/a"))
        assert (claimed.image_digest, claimed.image_ran) == (digest("a"), recorded("/a"))
        assert (claimed.image_pulled, claimed.image_pulled_why) == ("lazy", f"from the recorded copy of {OWNER}")
        told = " ".join(one.text for one in story(claimed))
        assert f"its image is mounted while it is fetched: from the recorded copy of {OWNER}" in told
        # Its own lone starts have the copy of all owners, as before.
        bobs = (await running.create("bob", SandboxSpec(image="python:3", node_selector={"a": "b"}))).sandbox
        assert (bobs.pool, bobs.image_ran, bobs.image_pulled_why) == ("", CONVERTED, "")
        # Taken back, the declaration is as one that never named an owner: a version before this field reads it.
        assert (await running.api("PATCH", "/v1/pools/p", body={"recording_of": ""})).status == 200
        (declared,) = await running.deps.documents.list("pools")
        assert "recording_of" not in declared.body


async def test_a_pool_whose_owner_has_no_recording_of_its_image_has_the_copy_of_all_owners() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        warm = await pooled(running, recording_of="alice")
        assert (warm.image_ran, warm.image_pulled_why) == (CONVERTED, "")


@pytest.mark.parametrize("owner", ["pool:p", "check:images", "a" * 129])
async def test_nobodys_recording_is_named_by_no_pool(owner: str) -> None:
    async with plane(FakeMirror()) as running:
        body = {"template": {"image": "python:3"}, "max_warm": 1, "recording_of": owner}
        assert (await running.api("PUT", "/v1/pools/p", body=body)).code == "invalid_argument"


async def test_where_nothing_is_converted_no_pool_names_a_recording() -> None:
    async with plane(FakeMirror(), lazy=False) as running:
        body = {"template": {"image": "python:3"}, "max_warm": 1, "recording_of": OWNER}
        refused = await running.api("PUT", "/v1/pools/p", body=body)
        assert (refused.code, refused.json["details"]["value"]) == ("unsupported", "lazyPulling.enabled")
        assert (await running.api("PUT", "/v1/pools/p", body=body | {"recording_of": ""})).status == 201


async def test_a_recorded_copy_that_breaks_starts_of_a_pool_is_left_by_the_pool_for_the_copy_of_all() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        await converted(running, "/a")
        running.cluster.hangs = named(recorded("/a"))
        body = {"template": {"image": "python:3"}, "min_warm": 1, "max_warm": 1, "recording_of": OWNER}
        await running.api("PUT", "/v1/pools/p", body=body)
        await asyncio.sleep(5)
        (waiting,) = running.cluster.held
        running.cluster.kill(Death(waiting, "image_pull_failed", "nothing of it is left"))
        await asyncio.sleep(60)
        (warm,) = await running.deps.store.find(None, {}, {State.WARM})
        assert warm.image_ran == CONVERTED


@pytest.mark.parametrize(
    "first",
    [
        "/a",
        [1],
        ["a"],
        ["/"],
        ["//a"],
        ["/a/../b"],
        ["/a/"],
        ["/\0"],
        [f"/{'a' * 4096}"],
        ["/a"] * (MOST_FIRST + 1),
        [f"/{number}{'a' * 4000}" for number in range(270)],
    ],
)
async def test_a_list_that_is_none_is_refused(first: Any) -> None:
    async with plane(FakeMirror()) as running:
        refused = await running.api("POST", "/v1/images/convert", body={"image": "python:3", "first": first})
        assert (refused.status, refused.code) == (400, "invalid_argument")


@given(st.lists(st.one_of(st.text(), st.text("/a.\0", min_size=1).map(lambda path: f"/{path}"))))
def test_what_is_kept_of_a_list_is_what_a_conversion_takes(first: list[str]) -> None:
    kept = Recorded.of(OWNER, first).first
    assert [*kept] == [*dict.fromkeys(one for one in first if names_a_file(one))]
    for one in kept:
        assert one.startswith("/")
        assert not {"", ".", ".."} & set(one[1:].split("/"))


def test_a_list_is_kept_as_far_as_there_is_room() -> None:
    assert len(Recorded.of(OWNER, (f"/{one}" for one in range(MOST_FIRST + 1))).first) == MOST_FIRST
    long = Recorded.of(OWNER, (f"/{one}{'a' * 4000}" for one in range(1000))).first
    assert MOST_FIRST_BYTES - 5000 < sum(len(one) for one in long) <= MOST_FIRST_BYTES
    assert whose("alice") != whose("bob")


async def lines(plane: World, **wish: Any) -> list[dict[str, Any]]:
    """The lines of the answer to a recording."""
    answer = await plane.api("POST", "/v1/images/convert", body={"image": "python:3", "record": "pytest -q", **wish})
    assert answer.status == 200, answer
    return [json.loads(one) for one in answer.body.splitlines()]


async def test_what_a_command_opens_comes_first_for_its_owner() -> None:
    mirror, sidecars = FakeMirror(), FakeSidecars(run_s=60)
    async with plane(mirror, sidecars=sidecars) as running:
        running.cluster.lazy.opens = tuple(FIRST)
        told = await lines(running)
        states = list(dict.fromkeys(one["state"] for one in told))
        assert states == ["copying", "converting", "recording", "offered"] or states[-2:] == ["recording", "offered"]
        ran = recorded(*FIRST)
        assert told[-1] == {"state": "offered", "digest": digest("a"), "ran": ran, "files": 2}
        assert (sidecars.runs, mirror.lists) == (["pytest -q"], [tuple(FIRST)])
        assert (await created(running))[1] == named(ran)
        assert await other(running) == LAZY
        # The sandbox of the command was its owner's, from the copy of all owners, and is gone.
        (sandbox_id,) = running.cluster.lazy.recorded
        record = (await running.api("GET", f"/v1/sandboxes/{sandbox_id}")).json
        assert (record["image"], record["owner"], record["end"]["cause"]) == (LAZY, OWNER, "deleted")
        assert sandbox_id not in running.cluster.held


async def test_a_command_that_fails_is_told_and_what_it_opened_comes_first_all_the_same() -> None:
    mirror = FakeMirror()
    async with plane(mirror, sidecars=FakeSidecars(run_fails="it exited with 1")) as running:
        running.cluster.lazy.opens = ("/a",)
        last = (await lines(running))[-1]
        assert (last["state"], last["run_failed"], last["ran"]) == ("offered", "it exited with 1", recorded("/a"))


async def test_one_that_opens_nothing_changes_nothing() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        assert (await lines(running))[-1] == {"state": "offered", "digest": digest("a"), "ran": CONVERTED}
        assert mirror.lists == []


async def test_one_that_is_not_over_in_time_changes_nothing_and_its_sandbox_ends() -> None:
    mirror = FakeMirror()
    async with plane(mirror, sidecars=FakeSidecars(run_s=60)) as running:
        running.cluster.lazy.opens = ("/a",)
        last = (await lines(running, record_timeout_ms=30_000))[-1]
        assert (last["state"], last["problem"]["code"]) == ("failed", "exec_deadline")
        assert mirror.lists == []
        await asyncio.sleep(1)
        assert running.cluster.lazy.recorded[0] not in running.cluster.held


async def test_equal_recordings_join_and_outlive_a_caller_that_leaves() -> None:
    mirror, sidecars = FakeMirror(), FakeSidecars(run_s=60)
    async with plane(mirror, sidecars=sidecars) as running:
        running.cluster.lazy.opens = ("/a",)
        gone = asyncio.Event()
        body = {"image": "python:3", "record": "pytest -q"}
        calling = asyncio.create_task(running.api("POST", "/v1/images/convert", body=body, hang_up=gone))
        while not sidecars.runs:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(1)
        gone.set()
        await asyncio.wait([calling], timeout=5)
        assert (await lines(running))[-1]["ran"] == recorded("/a")
        assert len(sidecars.runs) == 1


async def test_so_many_of_an_owner_are_recorded_at_once() -> None:
    async with plane(FakeMirror(), sidecars=FakeSidecars(run_s=60)) as running:
        running.cluster.lazy.opens = ("/a",)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(lines(running, record=f"run {one}")) for one in range(MOST_OF_OWNER + 1)]
        ends = [one.result()[-1] for one in calls]
        assert sorted(one["state"] for one in ends) == ["failed"] + ["offered"] * MOST_OF_OWNER
        (refused,) = [one for one in ends if one["state"] == "failed"]
        assert refused["problem"]["code"] == "capacity_unavailable"


async def test_without_node_agents_recording_is_refused_before_anything_is_done() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        running.cluster.lazy.records = False
        refused = await running.api("POST", "/v1/images/convert", body={"image": "python:3", "record": "true"})
        assert (refused.status, refused.code) == (422, "unsupported")
        assert mirror.conversions == []


LIMIT = 1000
TAG = in_tags(whose(OWNER))


def kept(size: int, owner: str = TAG) -> FakeCollector:
    """A registry with one recorded copy of an owner, which is needed by nobody and young."""
    made = FakeCollector(disk_bytes=10**9)
    made.put("estargz/docker.io/library/mine", digest("mine"), 10**15, mine=size)
    made.recorded_for("estargz/docker.io/library/mine", digest("mine"), owner, offered=True)
    return made


async def test_an_owner_that_has_as_much_as_it_may_is_refused_before_anything_is_done() -> None:
    mirror, sidecars = FakeMirror(), FakeSidecars()
    async with plane(mirror, sidecars=sidecars, collector=kept(LIMIT), recorded_bytes=LIMIT) as running:
        for wish in ({"first": ["/a"]}, {"record": "true"}):
            refused = await running.api("POST", "/v1/images/convert", body={"image": "python:3", **wish})
            assert (refused.status, refused.code) == (429, "quota_exceeded")
            details = refused.json["details"]
            assert (details["knob"], details["used"]) == ("registry.recordedGibibytesPerOwner", str(LIMIT))
            assert f"{OWNER} has {LIMIT} B of at most {LIMIT} B in 1 copy." in refused.json["detail"]
        assert (mirror.conversions, sidecars.runs) == ([], [])
        # The copy of all owners is nobody's.
        answer = await running.api("POST", "/v1/images/convert", body={"image": "python:3"})
        assert json.loads(answer.body.splitlines()[-1])["state"] == "offered"


@pytest.mark.parametrize("collector", [kept(LIMIT - 1), kept(LIMIT, in_tags(whose("bob")))])
async def test_what_others_have_is_not_its_own(collector: FakeCollector) -> None:
    async with plane(FakeMirror(), collector=collector, recorded_bytes=LIMIT) as running:
        assert (await converted(running, "/a"))["ran"] == recorded("/a")


async def test_of_lists_that_were_let_in_together_the_later_ones_are_refused() -> None:
    mirror, collector = FakeMirror(converts_s=60), kept(LIMIT - 1)
    async with plane(mirror, collector=collector, recorded_bytes=LIMIT) as running:
        calls = [asyncio.create_task(converted(running, f"/{one}")) for one in "ab"]
        await asyncio.sleep(30)
        collector.put("estargz/docker.io/library/more", digest("more"), 10**15, more=1)
        collector.recorded_for("estargz/docker.io/library/more", digest("more"), TAG, offered=False)
        first, second = await asyncio.gather(*calls)
        assert first["state"] == "offered"
        assert second["problem"]["code"] == "quota_exceeded"


async def test_without_an_answer_of_the_collector_no_recorded_copy_is_begun() -> None:
    collector = kept(0)
    collector.away = True
    async with plane(FakeMirror(), collector=collector, recorded_bytes=LIMIT) as running:
        refused = await running.api("POST", "/v1/images/convert", body={"image": "python:3", "first": ["/a"]})
        assert (refused.status, refused.code) == (504, "upstream_timeout")
