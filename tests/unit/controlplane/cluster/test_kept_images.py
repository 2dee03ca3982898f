"""What was committed, on an engine that is played: how it is told, and what becomes of its names when it goes."""

from typing import Any

import pytest

from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit import KeptImages, place_of
from controlplane.errors import Problem

ME = f"{place_of('installation')}/me"


def digest(letter: str) -> str:
    return f"sha256:{64 * letter}"


def kept(repository: str, letter: str, size_bytes: int) -> str:
    return f"{ME}/{repository}:id-{64 * letter}-{size_bytes}"


class Engine(EngineClient):
    """Has images.

    Attributes:
        names: of each image, by digest.
        layers: of each.
        containers: the images that they were made of.
        begins: an image of which a container is made while its names are removed.
        asked: the calls.
    """

    def __init__(self) -> None:
        self.names = {
            digest("a"): [f"{ME}/base:1", f"{ME}/base:2", kept("base", "a", 100)],
            digest("b"): [kept("above", "b", 30), f"{ME}/above:1"],
            digest("c"): [kept("base", "c", 50)],
            digest("d"): ["docker.io/library/python:3"],
            digest("e"): [
                f"{place_of('installation')}/me-too/base:1",
                f"{place_of('installation')}/me-too/base:id-{64 * 'e'}-5",
            ],
        }
        self.layers = {digest(one[0]): list(one[1:]) for one in ("axy", "bxyz", "cxw", "dx", "exv")}
        self.containers: list[str] = []
        self.begins = ""
        self.asked: list[str] = []

    async def call(self, method: str, path: str, query: Any = None, body: object = None) -> Any:
        del body
        self.asked.append(f"{method} {path}")
        if path == "images/json":
            told = {"Size": 1000, "Created": 5}
            return [{"Id": one, "RepoTags": names, **told} for one, names in self.names.items()]
        if path == "containers/json":
            return [{"ImageID": one, "Names": ["/rollbox-sb-1-target"]} for one in self.containers]
        name = path.removeprefix("images/").removesuffix("/json").removesuffix("/tag")
        found = next((one for one, names in self.names.items() if name in (one, *names)), None)
        if found is None:
            raise Missing("internal", "no such image")
        if method == "POST":
            self.names[found].append(f"{query['repo']}:{query['tag']}")
        elif method == "DELETE":
            self._remove(found, name)
        return {"RepoTags": self.names.get(found, []), "RootFS": {"Layers": self.layers[found]}}

    def _remove(self, image: str, name: str) -> None:
        if len(self.names[image]) == 1 and self.begins == image:
            raise Problem("internal", "image is in use by a container", engine_status=409)
        self.names[image].remove(name)
        if not self.names[image]:
            del self.names[image]


async def test_an_owners_images_are_told_with_the_bytes_of_their_own_layers() -> None:
    engine = Engine()
    images = KeptImages(engine)
    a, b, c = await images.below(ME)
    assert (a.name, a.tags, a.size_bytes, a.created_at_ms, a.built_on) == (f"{ME}/base", ["1", "2"], 100, 5000, ())
    assert (b.name, b.tags, b.size_bytes, b.built_on) == (f"{ME}/above", ["1"], 30, (a.digest,))
    # Another commit has taken its name.
    assert (c.tags, c.size_bytes) == ([], 50)
    # What layers an image has is asked once.
    engine.asked.clear()
    assert await images.below(ME) == [a, b, c]
    assert engine.asked == ["GET images/json"]


async def test_a_removal_takes_all_names_the_one_that_says_whose_it_is_last() -> None:
    engine = Engine()
    image = (await KeptImages(engine).below(ME))[0]
    engine.asked.clear()
    await KeptImages(engine).remove(image)
    assert engine.asked[2:] == [
        f"DELETE images/{one}" for one in (f"{ME}/base:1", f"{ME}/base:2", kept("base", "a", 100))
    ]
    assert digest("a") not in engine.names
    await KeptImages(engine).remove(image)


async def test_an_image_that_a_container_is_made_of_stays() -> None:
    engine = Engine()
    image = (await KeptImages(engine).below(ME))[0]
    before = list(engine.names[image.digest])
    # Podman tells no algorithm.
    engine.containers = [digest("d"), 64 * "a"]
    with pytest.raises(Problem, match="1 containers are made of it: rollbox-sb-1-target") as caught:
        await KeptImages(engine).remove(image)
    assert (caught.value.code, engine.names[image.digest]) == ("conflict", before)


async def test_an_image_that_a_container_is_made_of_meanwhile_keeps_its_names() -> None:
    engine = Engine()
    image = (await KeptImages(engine).below(ME))[0]
    before = set(engine.names[image.digest])
    engine.begins = image.digest
    with pytest.raises(Problem) as caught:
        await KeptImages(engine).remove(image)
    assert (caught.value.code, set(engine.names[image.digest])) == ("conflict", before)


async def test_checkpoints_whose_time_is_over_are_told() -> None:
    engine = Engine()
    for letter, expires_s in (("f", 5), ("9", 6)):
        name = f"{ME}/checkpoints:cp-0123456789abcdef-1-{expires_s}-abcdefgh"
        engine.names[digest(letter)] = [name, kept("checkpoints", letter, 7)]
        engine.layers[digest(letter)] = [letter]
    engine.names[digest("a")].append(f"{ME}/base:cp-0123456789abcdef-1-5-abcdefgh")
    images = KeptImages(engine)
    assert await images.expired(4_999) == []
    assert [one.digest for one in await images.expired(5_000)] == [digest("f")]
