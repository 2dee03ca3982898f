"""The console over HTTP: for the owner of the key alone, read-only, bounded, and what it says when something fails."""

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from controlplane.api.app import create_app
from controlplane.api.auth import ApiKeys
from controlplane.api.context import Context
from controlplane.cluster import Command, SandboxUsage
from controlplane.errors import Problem
from controlplane.lifecycle.service import searches
from controlplane.model import State
from controlplane.store import Page
from tests.support.asgi import Answer, Caller
from tests.support.world import KEY, OTHER_KEY, OWNER, SPEC, World

PATHS = ("/v1/console", "/v1/console/sandboxes/{id}", "/v1/console/usage", "/v1/console/static/console.css")


async def made(plane: World, owner: str = OWNER, **more: object) -> str:
    return (await plane.create(owner, SPEC.model_copy(update=more))).sandbox.id


async def get(plane: World, path: str = "/v1/console", key: str | None = None, **query: str) -> Answer:
    return await plane.api("GET", path, query=query, key=key)


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_given_without_a_key(plane: World, path: str) -> None:
    path = path.format(id=await made(plane))
    for headers in ({}, {"authorization": "Bearer rbx_unknown_0123456789"}, {"cookie": f"rollbox_console={KEY}"}):
        answer = await Caller(plane.api.app, None)("GET", path, query={"key": KEY, "code": KEY}, headers=headers)
        assert (answer.status, answer.code) == (401, "unauthenticated")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", PATHS)
async def test_nothing_can_be_changed(plane: World, method: str, path: str) -> None:
    assert (await plane.api(method, path.format(id="sb-1"))).status == 405


async def test_the_first_page_has_ones_own_and_nobody_elses(plane: World) -> None:
    mine, other = await made(plane, labels={"task": "mine"}), await made(plane, "bob", labels={"task": "theirs"})
    page = (await get(plane)).body.decode()
    assert (mine in page, other in page, "theirs" in page) == (True, False, False)
    theirs = (await get(plane, key=OTHER_KEY)).body.decode()
    assert (mine in theirs, other in theirs) == (False, True)
    assert "Quotas of all owners" not in theirs
    for path in (f"/v1/console/sandboxes/{other}", "/v1/console/sandboxes/sb-none"):
        assert (await get(plane, path)).code == "sandbox_not_found"
    assert (await get(plane, "/v1/console/usage", id=other)).json == {}
    assert (await get(plane, q=other)).body.decode().count('class="id"') == 0


async def test_answers_bound_what_a_page_may_do_and_are_kept_nowhere(plane: World) -> None:
    one = await made(plane)
    for path, query in ((PATHS[0], {}), (PATHS[1], {}), (PATHS[2], {"id": one}), (PATHS[3], {})):
        answer = await get(plane, path.format(id=one), **query)
        assert answer.status == 200
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert (answer.headers["cache-control"], answer.headers["x-frame-options"]) == ("no-store", "DENY")
        assert "set-cookie" not in answer.headers


async def test_what_is_looked_for_is_found_by_label_id_image_and_cause(plane: World) -> None:
    first, second = await made(plane, labels={"team": "a"}), await made(plane, image="node:22", labels={"team": "ab"})
    await plane.service.delete(OWNER, second, wait_s=5)
    for query, found in (
        ({"q": "team=a"}, [first]),
        ({"q": "team=", "show": "live"}, []),
        ({"q": first[3:10].upper()}, [first]),
        ({"q": "node", "show": "ended"}, [second]),
        ({"q": "deleted team=ab", "show": "ended"}, [second]),
        ({"q": "deleted team=a", "show": "ended"}, []),
        ({"q": "team"}, [first]),
    ):
        page = (await get(plane, **query)).body.decode()
        assert [one for one in (first, second) if f"sandboxes/{one}" in page] == found, query


async def test_pages_are_bounded_however_many_there_are(plane: World) -> None:
    await asyncio.gather(*(made(plane) for _ in range(120)))
    sizes = [(await get(plane, page=str(page))).body.count(b'<td class="id">') for page in (1, 2, 3, 4)]
    assert sizes == [50, 50, 20, 0]
    page = (await get(plane)).body.decode()
    assert "1 to 50 of 120, newest first" in page
    assert plane.sidecars.looks == []


async def test_usage_is_asked_for_once_for_a_page_and_of_those_that_answer(plane: World) -> None:
    ids = [await made(plane) for _ in range(3)]
    dead = (await plane.service.get(OWNER, ids[0])).address or ""
    plane.sidecars.dead.add(dead)
    answer = await plane.api("GET", "/v1/console/usage", query=[("id", one) for one in (*ids, "sb-none")])
    assert sorted(answer.json) == sorted(ids[1:])
    assert answer.json[ids[1]]["memory"] == "64 MiB / 512 MiB"
    for query in ([], [("id", "a")] * 51, [("id", "a"), ("x", "1")]):
        assert (await plane.api("GET", "/v1/console/usage", query=query)).code == "invalid_argument"


async def test_what_gvisor_has_counted_is_asked_of_the_node(plane: World) -> None:
    ids = [await made(plane) for _ in range(3)]
    answering = plane.sidecars.usage
    linux = (await plane.service.get(OWNER, ids[2])).address

    async def usage(address: str, token: str) -> SandboxUsage:
        return replace(await answering(address, token), cpu_by_node=address == linux)

    plane.sidecars.usage = usage  # type: ignore[method-assign]
    plane.cluster.cpu = {ids[0]: 2_491_999, ids[2]: 5_000}

    async def counted() -> list[tuple[object, object]]:
        told = (await plane.api("GET", "/v1/console/usage", query=[("id", one) for one in ids])).json
        return [(told[one]["cpu_ms"], told[one]["cpu_by_node"]) for one in ids]

    assert await counted() == [(2491, True), (1000, False), (1000, True)]
    plane.cluster.cpu_problem = Problem("upstream_timeout", "its agent is away")
    assert await counted() == [(1000, False), (1000, False), (1000, True)]


async def test_sandboxes_that_hang_take_nothing_from_those_that_answer(plane: World) -> None:
    ids = [await made(plane) for _ in range(20)]
    hung = {(await plane.service.get(OWNER, one)).address for one in ids[2:]}
    answering = plane.sidecars.usage

    async def usage(address: str, token: str) -> SandboxUsage:
        await asyncio.sleep(2 if address in hung else 0)
        if address in hung:
            raise Problem("upstream_timeout", "it hangs")
        return await answering(address, token)

    plane.sidecars.usage = usage  # type: ignore[method-assign]
    answer = await plane.api("GET", "/v1/console/usage", query=[("id", one) for one in reversed(ids)])
    assert (answer.status, sorted(answer.json)) == (200, sorted(ids[:2]))
    plane.sidecars.usage = lambda *_: asyncio.sleep(60)  # type: ignore[method-assign,assignment]
    answer = await plane.api("GET", "/v1/console/usage", query=[("id", one) for one in ids])
    assert (answer.status, answer.json) == (200, {})


async def test_one_sandbox_has_its_timeline_and_its_commands(plane: World) -> None:
    one = await made(plane, labels={"team": "a"})
    address = (await plane.service.get(OWNER, one)).address or ""
    plane.sidecars.ran_there[address] = [Command("e1", ["echo", "a b"], 1, "exited", 3, 2048, 0)]
    page = (await get(plane, f"/v1/console/sandboxes/{one}")).body.decode()
    for text in ("a command has run in it: ready", "exited 3", "echo &#39;a b&#39;", "2 KiB", "<i>team</i>a"):
        assert text in page
    plane.sidecars.dead.add(address)
    assert "not known now: sandbox_unreachable" in (await get(plane, f"/v1/console/sandboxes/{one}")).body.decode()
    await plane.service.delete(OWNER, one)
    ended = (await get(plane, f"/v1/console/sandboxes/{one}")).body.decode()
    assert "It ended: it was deleted by its owner." in ended
    assert "which commands ran in it is not known any more" in ended


async def test_ends_of_the_day_are_counted_by_fault(plane: World) -> None:
    for cause in ("deleted", "oom_killed", "sandbox_lost"):
        ident = await made(plane)
        await plane.service._core.ledger.end(ident, Problem(cause, "d"), "x")
    page = (await get(plane)).body.decode()
    for text in (
        "platform <b>1</b>",
        "workload <b>1</b>",
        "deleted by their owner <b>1</b>",
        'data-name="sample">mask it</td>',
    ):
        assert text in page
    assert "platform <b>0</b>" in (await get(plane, key=OTHER_KEY)).body.decode()


async def test_pools_and_quotas_are_shown_and_operators_see_those_of_others(plane: World) -> None:
    await plane.api("PUT", "/v1/quotas/bob", body={"sandboxes": 7})
    await plane.api("PUT", "/v1/pools/py", body={"template": {"image": "a"}, "min_warm": 1, "max_warm": 2})
    page = (await get(plane)).body.decode()
    assert '<td class="name">py</td>' in page
    assert "Quotas of all owners (1)" in page
    assert "of 7" in (await get(plane, key=OTHER_KEY)).body.decode()


async def test_a_store_that_does_not_answer_is_named(plane: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(plane.deps.store, "page", hangs)
    answer = await get(plane)
    assert (answer.code, "store has not answered within 5 s" in answer.json["detail"]) == ("upstream_timeout", True)


async def test_pools_that_cannot_be_read_leave_the_rest(plane: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise Problem("upstream_timeout", "the API server is away")

    one = await made(plane)
    monkeypatch.setattr(plane.service.pools, "list", away)
    page = (await get(plane)).body.decode()
    assert "Pools could not be read: upstream_timeout: the API server is away" in page
    assert one in page


class Reads:
    """The readings of a store's sandboxes for searches: each page takes so long."""

    def __init__(self, plane: World, monkeypatch: pytest.MonkeyPatch, takes_s: float) -> None:
        self.of: list[tuple[str, int]] = []
        page = plane.deps.store.page

        async def counted(owner: str, states: Collection[State], offset: int, most: int) -> Page:
            if states:
                self.of.append((owner, offset))
                await asyncio.sleep(takes_s)
            return await page(owner, states, offset, most)

        monkeypatch.setattr(plane.deps.store, "page", counted)


async def test_many_that_look_for_something_share_one_read(plane: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await made(plane)
    reads = Reads(plane, monkeypatch, takes_s=0.5)
    await asyncio.gather(*(get(plane, q=f"python{'' if number % 2 else ' sb'}") for number in range(10)))
    assert len(reads.of) == 1
    # It serves for twenty times what it took, so that searches cost a twentieth of a processor at most.
    await asyncio.sleep(9.9)
    assert b"as of 10 s ago" in (await get(plane, q="python")).body
    assert len(reads.of) == 1
    await asyncio.sleep(0.2)
    assert b"as of" not in (await get(plane, q="python")).body.partition(b"newest first")[2][:40]
    assert len(reads.of) == 2


async def test_a_search_of_one_owner_waits_for_none_of_another(plane: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, began_ms = plane.service.console_views, plane.deps.clock.now_ms()
    reads = Reads(plane, monkeypatch, takes_s=2.0)
    await asyncio.gather(*(looks.find(one, {State.RUNNING}, ["x"], 0, 50) for one in ("alice", "bob")))
    assert plane.deps.clock.now_ms() - began_ms < 2_100
    assert {owner for owner, _ in reads.of} == {"alice", "bob"}


async def test_a_search_shows_sandboxes_as_they_are_now(plane: World) -> None:
    first, second = await made(plane), await made(plane)
    assert b"1 to 2 of 2" in (await get(plane, q="python")).body
    await plane.service.delete(OWNER, second, wait_s=5)
    page = (await get(plane, q="python")).body.decode()
    assert ("1 to 1 of 1" in page, first in page, f">{second}<" in page) == (True, True, False)


async def test_a_search_gives_up_on_the_rest_where_reading_takes_long(
    plane: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "READ_AT_ONCE", 1)
    for _ in range(4):
        await made(plane)
    reads = Reads(plane, monkeypatch, takes_s=1.0)
    found = await plane.service.console_views.find(OWNER, {State.RUNNING}, ["python"], 0, 50)
    assert [offset for _, offset in reads.of] == [0, 1]
    assert (len(found.page.sandboxes), found.matching, found.among) == (2, 2, 2)


async def test_where_it_is_switched_off_that_is_said(plane: World) -> None:
    keys = ApiKeys({KEY: OWNER}, frozenset(), plane.service.keys, plane.deps.key, plane.deps.clock)
    app = create_app(Context(plane.service, plane.deps, keys, {}))
    for path in PATHS:
        assert (await Caller(app, KEY)("GET", path.format(id="sb-1"))).code == "unsupported"


async def test_the_key_of_a_sandbox_is_not_on_its_page(plane: World) -> None:
    ident = (await plane.create(OWNER, SPEC, "secret-key")).sandbox.id
    page = (await get(plane, f"/v1/console/sandboxes/{ident}")).body.decode()
    assert "secret" not in page
