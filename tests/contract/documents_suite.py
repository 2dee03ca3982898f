"""What every store of documents must do; a module of tests subclasses this and provides `documents`."""

import asyncio

import pytest

from controlplane.cluster.documents import NONE_YET, Documents
from controlplane.errors import Problem

BODY = {"template": {"image": "a:1"}, "max_warm": 3}
OTHER = {"template": {"image": "a:2"}, "min_warm": 1, "max_warm": 3}


class DocumentsSuite:
    """The conformance suite."""

    async def test_what_was_declared_is_read_and_listed_by_name(self, documents: Documents) -> None:
        assert await documents.get("pools", "p") is None
        version = await documents.put("pools", "p", BODY)
        await documents.put("pools", "a", OTHER)
        found = await documents.get("pools", "p")
        assert found is not None
        assert (found.name, found.version, found.body, dict(found.status)) == ("p", version, BODY, {})
        assert [one.name for one in await documents.list("pools")] == ["a", "p"]
        assert await documents.list("quotas") == []

    async def test_a_second_declaration_replaces_the_first_as_a_whole(self, documents: Documents) -> None:
        first = await documents.put("pools", "p", OTHER)
        second = await documents.put("pools", "p", BODY)
        found = await documents.get("pools", "p")
        assert found is not None
        assert found.body == BODY
        assert first != second == found.version

    async def test_who_has_not_seen_the_newest_is_told(self, documents: Documents) -> None:
        first = await documents.put("pools", "p", BODY, NONE_YET)
        with pytest.raises(Problem, match="there is one already") as there:
            await documents.put("pools", "p", OTHER, NONE_YET)
        assert there.value.code == "conflict"
        second = await documents.put("pools", "p", OTHER, first)
        with pytest.raises(Problem, match=r"read it again and repeat"):
            await documents.put("pools", "p", BODY, first)
        with pytest.raises(Problem, match="there is none"):
            await documents.put("pools", "q", BODY, second)

    async def test_one_that_was_removed_and_declared_again_is_another_one(self, documents: Documents) -> None:
        first = await documents.put("pools", "p", BODY)
        assert await documents.remove("pools", "p")
        assert not await documents.remove("pools", "p")
        assert await documents.get("pools", "p") is None
        assert await documents.put("pools", "p", BODY) != first

    async def test_a_status_is_told_and_changes_nothing_about_the_version(self, documents: Documents) -> None:
        version = await documents.put("pools", "p", BODY)
        await documents.status("pools", "p", {"ready": 2, "why": "so"})
        await documents.status("pools", "nobody", {"ready": 2})
        found = await documents.get("pools", "p")
        assert found is not None
        assert (found.version, dict(found.status)) == (version, {"ready": 2, "why": "so"})
        assert await documents.put("pools", "p", OTHER, version)

    async def test_who_watches_hears_all_at_once_and_after_every_change(self, documents: Documents) -> None:
        await documents.put("pools", "p", BODY)
        watch = documents.watch("pools")
        seen = asyncio.Queue[tuple[str, ...]]()

        async def follow() -> None:
            async for everything in watch:
                seen.put_nowait(tuple(one.name for one in everything))

        following = asyncio.create_task(follow())
        try:
            # What was declared a moment before may be heard of a moment after the rest.
            while await seen.get() != ("p",):
                pass
            await documents.put("pools", "q", BODY)
            assert await seen.get() == ("p", "q")
            await documents.status("pools", "q", {"ready": 1})
            await documents.put("quotas", "alice", {"owner": "alice"})
            await documents.remove("pools", "p")
            assert await seen.get() == ("q",)
            assert seen.empty()
        finally:
            following.cancel()
            await asyncio.wait([following])
