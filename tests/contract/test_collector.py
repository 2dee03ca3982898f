"""The real collector beside a real registry: what it gives back, and that no push or pull loses anything to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.errors import Problem
from controlplane.registry import CollectorClient
from tests.support.authority import Authority
from tests.support.collector import SERVER, Collecting, build, collecting
from tests.support.mirror import CLIENT, why_no_mirror
from tests.support.registry import CONFIG, LAYER, MANIFEST, Pusher, digest, registry_server

pytestmark = pytest.mark.skipif(why_no_mirror() is not None, reason=str(why_no_mirror()))

# Longer than any call to the registry takes here.
SETTLE_MS = 5_000
DAY_S = 86_400


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("collector"))


@dataclass
class Place:
    """A registry, what pushes to it, and its collector."""

    folder: Path
    push: Pusher
    collector: Collecting

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    def age(self, seconds: float = DAY_S) -> None:
        """Everything was there for long."""
        at_s = time.time() - seconds
        for path in (self.storage / "docker").rglob("*"):
            if path.is_file():
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path, (at_s, at_s))

    async def head(self, path: str) -> int:
        url = f"http://{self.push.address}/v2/{path}"
        async with self.push.http.head(url, headers={"Accept": MANIFEST}) as answer:
            return answer.status


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    with registry_server(folder) as address:
        yield address


@asynccontextmanager
async def beside(binary: Path, folder: Path, **settings: Any) -> AsyncIterator[Place]:
    with registry(folder / "registry") as address:
        async with (
            aiohttp.ClientSession() as http,
            collecting(binary, folder, folder / "registry/storage", **settings) as collector,
        ):
            yield Place(folder / "registry", Pusher(http, address, {}), collector)


@pytest.fixture
async def place(binary: Path, tmp_path: Path) -> AsyncIterator[Place]:
    async with beside(binary, tmp_path, settle=10) as made:
        yield made


async def image(place: Place, name: str, tag: str, *layers: bytes) -> str:
    config = json.dumps({"architecture": "amd64", "os": "linux", "of": name}).encode()
    return await place.push.manifest(
        name, tag, MANIFEST, {"config": (CONFIG, config), "layers": [(LAYER, one) for one in layers]}
    )


async def test_what_was_removed_comes_back_and_all_else_stays(place: Place) -> None:
    shared, own, gone = (bytes([letter]) * 100_000 for letter in b"sog")
    kept = await image(place, "mirror/kept", "copy-1", shared, own)
    removed = await image(place, "mirror/removed", "copy-1", shared, gone)
    commit = await image(place, "commits/alice/x", f"id-{64 * 'a'}", shared, b"committed")
    place.age()
    await place.collector.client.stored()
    before = await place.collector.client.room()
    assert await place.collector.client.remove("mirror/removed", removed, int(time.time() * 1000))
    assert await place.head(f"mirror/removed/manifests/{removed}") == 404
    done = await place.collector.client.collect()
    # Its own layer, its configuration and its manifest.
    assert (done.freed_blobs, done.kept_blobs) == (3, 0)
    assert done.freed_bytes > len(gone)
    after = await place.collector.client.room()
    assert before.used_bytes - after.used_bytes >= len(gone)
    for name, at in {"mirror/kept": kept, "commits/alice/x": commit}.items():
        assert await place.head(f"{name}/manifests/{at}") == 200
        assert await place.head(f"{name}/blobs/{digest(shared)}") == 200
    assert await place.head(f"mirror/removed/blobs/{digest(gone)}") == 404
    # And it can be put there again.
    assert await image(place, "mirror/removed", "copy-1", shared, gone) == removed
    assert await place.collector.client.use("mirror/removed", removed)


async def test_a_commit_that_its_owner_removes_gives_its_bytes_back(place: Place) -> None:
    layer = b"x" * 300_000
    commit = await image(place, "commits/alice/x", "1", layer)
    async with place.push.http.delete(f"http://{place.push.address}/v2/commits/alice/x/manifests/{commit}") as answer:
        assert answer.status == 202
    place.age()
    assert (await place.collector.client.collect()).freed_bytes >= len(layer)


async def test_what_is_stored_is_told_by_parts_that_count_once(place: Place) -> None:
    await image(place, "mirror/a", "copy-1", b"shared", b"a")
    commit = await image(place, "commits/alice/x", "1", b"shared", b"x")
    stored = {one.repository: one for one in await place.collector.client.stored()}
    assert set(stored) == {"mirror/a", "commits/alice/x"}
    assert stored["commits/alice/x"].digest == commit
    assert stored["mirror/a"].parts[digest(b"shared")] == len(b"shared")
    place.age()
    aged = {one.repository: one for one in await place.collector.client.stored()}
    assert aged["mirror/a"].used_ms < stored["mirror/a"].used_ms
    parts = {part for one in stored.values() for part in one.parts}
    on_disk = [one.parent.name for one in (place.storage / "docker/registry/v2/blobs/sha256").rglob("data")]
    assert parts == {f"sha256:{one}" for one in on_disk}


async def test_a_copy_in_use_is_not_removed_and_nothing_but_copies_is(place: Place) -> None:
    copy = await image(place, "mirror/a", "copy-1", b"layer")
    commit = await image(place, "commits/alice/x", "1", b"layer")
    place.age()
    planned_ms = int((time.time() - 60) * 1000)
    assert await place.collector.client.use("mirror/a", copy)
    with pytest.raises(Problem, match="was used meanwhile") as caught:
        await place.collector.client.remove("mirror/a", copy, planned_ms)
    assert caught.value.code == "conflict"
    for name in ("commits/alice/x", "mirror/../commits/alice/x"):
        with pytest.raises(Problem) as caught:
            await place.collector.client.remove(name, commit, planned_ms + 120_000)
        assert caught.value.code == "invalid_argument"
    assert not await place.collector.client.use("mirror/b", copy)


async def test_an_upload_that_broke_off_is_ended(binary: Path, tmp_path: Path) -> None:
    async with beside(binary, tmp_path, settle=10) as place:
        await image(place, "mirror/a", "copy-1", b"layer")
        url = f"http://{place.push.address}/v2/mirror/a/blobs/uploads/"
        async with place.push.http.post(url) as answer:
            where = answer.headers["Location"]
        async with place.push.http.patch(where, data=b"x" * 500_000) as answer:
            assert answer.status == 202
        at_s = time.time() - DAY_S
        for path in [
            *(place.storage / "docker").rglob("_uploads/*/**/*"),
            *(place.storage / "docker").rglob("_uploads/*"),
        ]:
            os.utime(path, (at_s, at_s))
        assert (await place.collector.client.collect()).ended_uploads == 1
        async with place.push.http.put(f"{where}&digest={digest(b'x')}") as answer:
            assert answer.status == 404


async def test_only_the_control_plane_is_answered(binary: Path, tmp_path: Path, place: Place) -> None:
    del binary
    stranger = Authority().write(tmp_path / "stranger", CLIENT)
    (stranger / "ca.crt").write_bytes((tmp_path / "asks/ca.crt").read_bytes())
    address = _address(place)
    # Signed by another authority; of ours, with the name of another part.
    for folder in (stranger, tmp_path / "collector"):
        async with CollectorClient.open(address, folder, SERVER) as client:
            with pytest.raises(Problem):
                await client.room()


def _address(place: Place) -> str:
    environment = Path(f"/proc/{place.collector.process.pid}/environ").read_text().split("\0")
    return next(one.partition("=")[2] for one in environment if one.startswith("ROLLBOX_COLLECTOR_LISTEN="))


# -- beside pushes ----------------------------------------------------------------------------------------------------

CONTENTS = [bytes([65 + number]) * 2_000 for number in range(6)]


@dataclass
class Race:
    """Pushes that never stop: of few layers, found, mounted or sent, some of them removed again."""

    address: str
    http: aiohttp.ClientSession
    seed: int
    stored: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    pushed: int = 0
    refused: int = 0
    over: bool = False

    async def run(self, number: int) -> None:
        chosen = random.Random(self.seed * 100 + number)
        while not self.over:
            repository = f"mirror/{number}"
            layers = chosen.sample(CONTENTS, chosen.randint(1, 4))
            config = json.dumps({"n": chosen.random()}).encode()
            at = await self._push(repository, [config, *layers], chosen)
            self.pushed += 1
            self.stored[repository, at] = [config, *layers]
            if chosen.random() < 0.7:
                at = chosen.choice([at for where, at in self.stored if where == repository])
                await self._remove(repository, at)

    async def _remove(self, repository: str, at: str) -> None:
        content = self.stored.pop((repository, at))
        async with self.http.delete(f"http://{self.address}/v2/{repository}/manifests/{at}") as answer:
            # A push that takes longer than what counts as young here has its manifest in the trash before its link
            # is there: until the collection ends it is not known. It stays, and has to be there at the end.
            assert answer.status in (202, 404), await answer.text()
            if answer.status == 404:
                self.stored[repository, at] = content

    async def _push(self, repository: str, content: list[bytes], chosen: random.Random) -> str:
        while True:
            for one in content:
                await self._blob(repository, one, chosen)
            # So that a collection may begin after it is known that all is there.
            await asyncio.sleep(chosen.random() * 0.4)
            kinds = [CONFIG, *(LAYER for _ in content[1:])]
            listed = [
                {"mediaType": kind, "digest": digest(one), "size": len(one)}
                for kind, one in zip(kinds, content, strict=True)
            ]
            named = {"schemaVersion": 2, "mediaType": MANIFEST, "config": listed[0], "layers": listed[1:]}
            body = json.dumps(named).encode()
            url = f"http://{self.address}/v2/{repository}/manifests/copy-{digest(body)[7:19]}"
            async with self.http.put(url, data=body, headers={"Content-Type": MANIFEST}) as answer:
                if answer.status == 201:
                    return digest(body)
                told = await answer.json()
                assert {one["code"] for one in told["errors"]} == {"MANIFEST_BLOB_UNKNOWN"}, told
                self.refused += 1

    async def _blob(self, repository: str, content: bytes, chosen: random.Random) -> None:
        base = f"http://{self.address}/v2/{repository}/blobs"
        async with self.http.head(f"{base}/{digest(content)}") as answer:
            if answer.status == 200:
                return
        query = f"?mount={digest(content)}&from=mirror/{chosen.randint(0, 3)}" if chosen.random() < 0.5 else ""
        async with self.http.post(f"{base}/uploads/{query}") as answer:
            where, mounted = answer.headers["Location"], answer.status == 201
        if not mounted:
            async with self.http.put(f"{where}&digest={digest(content)}", data=content) as answer:
                assert answer.status == 201, await answer.text()

    async def pull(self, repository: str, at: str, content: list[bytes]) -> None:
        """All of an image, as a node gets it."""
        base = f"http://{self.address}/v2/{repository}"
        async with self.http.get(f"{base}/manifests/{at}", headers={"Accept": MANIFEST}) as answer:
            assert answer.status == 200, (repository, at, await answer.text())
        for one in content:
            async with self.http.get(f"{base}/blobs/{digest(one)}") as answer:
                assert answer.status == 200, (repository, digest(one), await answer.text())
                assert await answer.read() == one


async def test_no_push_and_no_pull_loses_anything_to_collections_some_of_which_are_killed(
    binary: Path, tmp_path: Path
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    with registry(tmp_path / "registry") as address:
        async with aiohttp.ClientSession() as http:
            race = Race(address, http, seed)
            still = [b"still", *CONTENTS[:2]]
            steady = await race._push("commits/alice/x", still, random.Random(1))
            freed = kept = 0
            async with asyncio.TaskGroup() as pushes:
                for number in range(4):
                    pushes.create_task(race.run(number))
                for turn in range(6):
                    # What no image has for 100 ms is garbage, in the middle of pushes as well.
                    pace = {"young": 100, "idle": 60_000, "settle": SETTLE_MS}
                    async with collecting(binary, tmp_path, tmp_path / "registry/storage", **pace) as one:
                        if turn % 3 == 1:
                            # Killed while blobs are in the trash.
                            call = asyncio.create_task(one.client.collect())
                            await asyncio.sleep(1.5)
                            one.process.kill()
                            with contextlib.suppress(Problem):
                                await call
                            continue
                        done = await one.client.collect()
                        freed, kept = freed + done.freed_blobs, kept + done.kept_blobs
                    await race.pull("commits/alice/x", steady, still)
                race.over = True
            # The last one, with nobody beside it, decides on what is in the trash still.
            await asyncio.sleep(SETTLE_MS / 1000)
            async with collecting(binary, tmp_path, tmp_path / "registry/storage", **pace) as one:
                await one.client.collect()
            print(f"{race.pushed} pushed, {race.refused} refused once, {freed} blobs freed, {kept} kept")
            assert freed > 0
            assert race.stored
            for (repository, at), content in race.stored.items():
                await race.pull(repository, at, content)
            await race.pull("commits/alice/x", steady, still)
