"""The registry client against a real registry: digests, indexes, credentials, and images that cannot run."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from controlplane.clock import SystemClock
from controlplane.errors import Problem
from controlplane.images import Credentials, Keyring, Reference, parse
from controlplane.registry import Registries, RegistryProblem
from tests.contract.registry_suite import Ground, RegistrySuite
from tests.support.registry import CONFIG, HTPASSWD, LAYER, MANIFEST, Pusher, registry_server

USER = "Basic dXNlcjpwYXNzd29yZA=="


@asynccontextmanager
async def client(address: str, *, password: str = "") -> AsyncIterator[Registries]:
    keyring = Keyring({address: Credentials("user", password)} if password else {})

    async def credentials(_: str) -> Keyring:
        return keyring

    async with Registries.open(credentials, SystemClock(), plain=[address]) as registries:
        yield registries


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry_server(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("private")
    (folder / "htpasswd").write_text(HTPASSWD)
    with registry_server(folder, auth={"htpasswd": {"realm": "r", "path": str(folder / "htpasswd")}}) as found:
        yield found


@pytest.fixture
async def pusher(address: str) -> AsyncIterator[Pusher]:
    async with aiohttp.ClientSession() as http:
        yield Pusher(http, address, {})


@pytest.fixture
async def registries(address: str) -> AsyncIterator[Registries]:
    async with client(address) as found:
        yield found


@dataclass
class RealGround:
    """A real registry, with images of a few bytes."""

    registry: Registries
    pusher: Pusher

    def name(self, repository: str) -> Reference:
        return image(self.pusher.address, f"{repository}:1")

    async def push(self, reference: Reference, mark: str) -> str:
        return await self.pusher.image(reference.repository, reference.tag, mark=mark)

    async def push_foreign(self, reference: Reference) -> str:
        return await self.pusher.image(reference.repository, reference.tag, architecture="s390x")


def image(address: str, name: str) -> Reference:
    return parse(f"{address}/{name}")


class TestRegistries(RegistrySuite):
    """See `RegistrySuite`."""

    @pytest.fixture
    def ground(self, pusher: Pusher, registries: Registries) -> Ground:
        return RealGround(registries, pusher)


async def test_an_index_is_checked_for_the_architectures_of_the_nodes(
    address: str, pusher: Pusher, registries: Registries
) -> None:
    entries = {one: await pusher.image("many", one, architecture=one) for one in ("amd64", "arm64")}
    pushed = await pusher.index("many", "1", entries)
    reference = image(address, "many:1")
    assert await registries.digest(reference) == pushed
    layers: list[set[str]] = []
    for architectures in ({"amd64"}, {"arm64", "s390x"}, {"amd64", "arm64"}, set[str]()):
        found = await registries.check(reference, pushed, architectures)
        assert all(size > 0 for size in found.values())
        layers.append({*found})
    # Those of the manifests that nodes would choose.
    assert layers[0]
    assert layers[2] == layers[0] | layers[1]
    assert not layers[3]
    with pytest.raises(Problem, match="it has amd64, arm64 for Linux, and the nodes are s390x") as caught:
        await registries.check(reference, pushed, {"s390x"})
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    ("name", "architecture", "layers", "words"),
    [
        ("foreign", "s390x", 1, "it is for 's390x', and the nodes are amd64"),
        ("tall", "amd64", 128, "128 layers"),
        ("empty", "amd64", 0, "0 layers"),
    ],
)
async def test_an_image_that_cannot_run_is_refused(
    pusher: Pusher, registries: Registries, *, name: str, architecture: str, layers: int, words: str
) -> None:
    config = f'{{"os":"linux","architecture":"{architecture}"}}'.encode()
    pushed = await pusher.manifest(
        name, "1", MANIFEST, {"config": (CONFIG, config), "layers": [(LAYER, b"x")] * layers}
    )
    with pytest.raises(Problem, match=words) as caught:
        await registries.check(image(pusher.address, f"{name}:1"), pushed, {"amd64"})
    assert caught.value.code == "unsupported"


async def test_what_is_not_there_is_absent(address: str, registries: Registries) -> None:
    for name in ("none:1", f"none@sha256:{'0' * 64}"):
        with pytest.raises(RegistryProblem) as caught:
            await registries.digest(image(address, name))
        assert (caught.value.outcome, caught.value.code) == ("absent", "image_not_found")


async def test_a_private_image_is_given_to_its_users_only(private: str) -> None:
    async with aiohttp.ClientSession() as http:
        pushed = await Pusher(http, private, {"Authorization": USER}).image("app", "1")
    reference = image(private, "app:1")
    async with client(private, password="password") as registries:
        for _ in range(2):
            assert await registries.digest(reference) == pushed
        await registries.check(reference, pushed, {"amd64"})
    for password in ("", "wrong"):
        async with client(private, password=password) as registries:
            with pytest.raises(RegistryProblem) as caught:
                await registries.digest(reference)
        assert (caught.value.outcome, caught.value.code) == ("denied", "image_not_found")
        assert not password or password not in str(caught.value)


async def test_a_registry_is_asked_without_tls_only_where_a_setting_names_it(address: str) -> None:
    async def nobody(_: str) -> Keyring:
        return Keyring()

    async with Registries.open(nobody, SystemClock()) as registries:
        with pytest.raises(RegistryProblem) as caught:
            await registries.digest(image(address, "many:1"))
    assert caught.value.outcome == "away"
