"""The recorded copies of an external registry, as a real one lists and removes them, by account and by tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kubernetes import recorded_copies
from controlplane.errors import Problem
from tests.contract.kubernetes.test_kept_images import Registry, by_account, by_token
from tests.support.registry import INDEX, MANIFEST, digest

SOURCE, MINE, THEIRS, LIST, OTHER_LIST = "5" * 64, "a" * 16, "b" * 16, "c" * 12, "e" * 12
COMMON = f"copy-{SOURCE}-estargz-amd64"
APP = "estargz/docker.io/library/app"


@pytest.fixture(params=[by_account, by_token], ids=["account", "tokens"])
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Registry]:
    async with request.param(tmp_path) as made:
        yield made


def recorded(owner: str, files: str = LIST) -> str:
    return f"{COMMON}-{owner}-{files}"


def verdict(owner: str) -> str:
    return f"boot-{SOURCE}-estargz-amd64-{owner}{'d' * 8}"


async def put(registry: Registry, tag: str, *entries: str, **said: str) -> str:
    """Puts an index of manifests that are there; its digest."""
    listed = [{"mediaType": MANIFEST, "digest": one, "size": 100} for one in entries]
    about: Mapping[str, Any] = {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed, "annotations": said}
    body = json.dumps(about).encode()
    url = f"https://{registry.address}/v2/{APP}/manifests/{tag}"
    headers = {"Content-Type": INDEX, "Authorization": registry.shown(APP)}
    assert (await registry.http.put(url, data=body, headers=headers)).status == 201
    return digest(body)


async def tags(registry: Registry) -> set[str]:
    url = f"https://{registry.address}/v2/{APP}/tags/list"
    told = await (await registry.http.get(url, headers={"Authorization": registry.shown(APP)})).json()
    return {tag for tag in told.get("tags") or () if not tag.startswith("id-")}


async def there(registry: Registry, digests: Sequence[str]) -> list[bool]:
    headers = {"Authorization": registry.shown(APP), "Accept": f"{MANIFEST}, {INDEX}"}
    urls = [f"https://{registry.address}/v2/{APP}/manifests/{one}" for one in digests]
    return [(await registry.http.head(url, headers=headers)).status == 200 for url in urls]


async def test_they_are_listed_with_their_owners_and_what_is_offered(registry: Registry) -> None:
    copies = recorded_copies(registry.push)
    assert await copies.all() == []
    await registry.image(APP, [b"base", b"common"], COMMON, recorded(THEIRS, OTHER_LIST))
    first = await registry.image(APP, [b"base", b"first"], recorded(MINE))
    second = await registry.image(APP, [b"base", b"second"], recorded(MINE, OTHER_LIST), recorded(THEIRS))
    await put(registry, verdict(MINE), second, boot="booted")
    await registry.image("estargz/docker.io/library/plain", [b"base"], COMMON)
    await registry.image("mirror/docker.io/library/app", [b"base"], recorded(MINE))
    found = {one.digest: one for one in await copies.all()}
    # A list that changed nothing has given the copy of all owners.
    assert set(found) == {first, second}
    assert [(one.repository, one.recorded, one.used_ms) for one in found.values()] == [(APP, True, 0)] * 2
    assert (found[first].owners, found[first].offered) == ([MINE], False)
    assert (found[second].owners, found[second].offered) == ([MINE, THEIRS], True)
    sizes = found[second].parts
    assert (sizes[digest(b"base")], sizes[digest(b"second")], len(sizes)) == (4, 6, 3)
    assert {one.digest for one in await copies.of(MINE)} == {first, second}
    # Nor does it count, as nothing would remove it.
    assert {one.digest for one in await copies.of(THEIRS)} == {second}
    assert await copies.of("9" * 16) == []


async def test_one_goes_with_its_verdict_and_leaves_all_others_whole(registry: Registry) -> None:
    copies = recorded_copies(registry.push)
    common = await registry.image(APP, [b"base", b"common"], COMMON)
    first = await registry.image(APP, [b"base", b"first"], recorded(MINE), recorded(THEIRS))
    second = await registry.image(APP, [b"base", b"second"], recorded(MINE, OTHER_LIST))
    await put(registry, verdict(MINE), first, boot="booted")
    await put(registry, verdict(THEIRS), second, boot="booted")
    assert await copies.there(APP, first)
    assert await copies.remove(APP, first)
    assert not await copies.there(APP, first)
    assert not await copies.remove(APP, first)
    assert await tags(registry) == {COMMON, recorded(MINE, OTHER_LIST), verdict(THEIRS)}
    assert await there(registry, [common, second]) == [True, True]
    (left,) = await copies.all()
    assert (left.digest, left.offered) == (second, True)
    # The same list once more gives the same copy.
    assert await registry.image(APP, [b"base", b"first"], recorded(MINE)) == first
    assert {one.digest for one in await copies.all()} == {first, second}


async def test_of_one_for_several_architectures_those_parts_go_that_no_other_copy_has(registry: Registry) -> None:
    copies = recorded_copies(registry.push)
    shared, own = [await registry.image(APP, [b"base", one]) for one in (b"shared", b"own!")]
    common = await put(registry, COMMON, shared, of="all")
    index = await put(registry, recorded(MINE), shared, own)
    await put(registry, verdict(MINE), index, boot="booted")
    (found,) = await copies.all()
    assert (found.digest, found.offered) == (index, True)
    assert {shared, own, digest(b"base"), digest(b"shared"), digest(b"own!")} <= set(found.parts)
    assert await copies.remove(APP, index)
    assert await there(registry, [index, own, shared, common]) == [False, False, True, True]
    assert await tags(registry) == {COMMON}


async def test_a_registry_that_refuses_is_named(registry: Registry, tmp_path: Path) -> None:
    first = await registry.image(APP, [b"base", b"first"], recorded(MINE))
    (tmp_path / "account").write_text("user:wrong")
    for asking in (recorded_copies(registry.push).all(), recorded_copies(registry.push).remove(APP, first)):
        with pytest.raises(Problem, match=r"localhost.* recorded copies.* 401") as refused:
            await asking
        assert refused.value.code == "upstream_timeout"


async def test_one_that_deletes_nothing_is_named(tmp_path: Path) -> None:
    kept = {"filesystem": {"rootdirectory": str(tmp_path / "storage")}}
    async with by_account(tmp_path, storage=kept) as registry:
        first = await registry.image(APP, [b"base", b"first"], recorded(MINE))
        with pytest.raises(Problem, match=r"answers 405 to DELETE") as refused:
            await recorded_copies(registry.push).remove(APP, first)
        assert refused.value.code == "unsupported"
        assert await there(registry, [first]) == [True]
