"""A token for a commit, as a real registry, and the real mirror before one, understand it."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from controlplane.cluster.kubernetes.node_agents.tokens import ISSUER, LIVES_S, SERVICE, minted
from tests.support.authority import Authority
from tests.support.mirror import Program, build, why_no_mirror
from tests.support.registry import HTPASSWD, digest, registry_server
from tests.support.stack import free_port

# Of a token: not enough, or nothing that it is for.
REFUSED = (400, 401, 403)
OWN = "commits/alice/repo"
RIGHTS: Mapping[str, Sequence[str]] = {"mirror/base": ("pull",), OWN: ("pull", "push", "delete")}


@dataclass(frozen=True)
class Place:
    address: str
    http: aiohttp.ClientSession
    keys: Path

    def at(self, location: str) -> str:
        """Where an answer leads to, which may be said without the host."""
        return location if location.startswith("https://") else f"https://{self.address}{location}"

    async def begun(self, repository: str, token: str) -> int:
        """What a registry says to the beginning of an upload."""
        url = f"https://{self.address}/v2/{repository}/blobs/uploads/"
        async with self.http.post(url, headers={"Authorization": f"Bearer {token}"}) as answer:
            return answer.status

    async def read(self, path: str, token: str) -> int:
        async with self.http.get(
            f"https://{self.address}/v2/{path}", headers={"Authorization": f"Bearer {token}"}
        ) as answer:
            return answer.status


@asynccontextmanager
async def own(tmp_path: Path) -> AsyncIterator[Place]:
    """A registry that knows tokens, as the chart's own one does."""
    tls, keys = Authority().write(tmp_path / "tls", "localhost"), Authority().write(tmp_path / "keys", "commits")
    at = f"127.0.0.1:{free_port('127.0.0.1')}"
    served = {"addr": at, "tls": {"certificate": str(tls / "tls.crt"), "key": str(tls / "tls.key")}}
    judged = {"realm": "https://localhost/", "service": SERVICE, "issuer": ISSUER}
    trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=tls / "ca.crt"))
    auth = {"token": {**judged, "rootcertbundle": str(keys / "tls.crt")}}
    with registry_server(tmp_path, at, http=served, auth=auth):
        async with aiohttp.ClientSession(connector=trusted) as http:
            yield Place(f"localhost:{at.rpartition(':')[2]}", http, keys)


@asynccontextmanager
async def gate(tmp_path: Path, binary: Path) -> AsyncIterator[Place]:
    """The mirror before a registry that knows an account alone, as somebody else's does."""
    keys = Authority().write(tmp_path / "keys", "commits")
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    auth = {"htpasswd": {"realm": "r", "path": str(tmp_path / "htpasswd")}}
    with registry_server(tmp_path, auth=auth) as registry:
        async with Program(binary, tmp_path, commits_certificate=keys / "tls.crt").running(registry) as mirror:
            trusted = ssl.create_default_context(cafile=tmp_path / "server" / "ca.crt")
            trusted.check_hostname = False  # it is asked by an address
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as http:
                yield Place(mirror.commits, http, keys)


@pytest.fixture(params=["own", "gate"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "own":
        async with own(tmp_path) as made:
            yield made
    elif (why := why_no_mirror()) is not None:
        pytest.skip(why)
    else:
        async with gate(tmp_path, build(tmp_path / "built")) as made:
            yield made


def now_s() -> int:
    return int(time.time())


async def test_it_writes_to_one_repository_and_nowhere_else(place: Place) -> None:
    token = minted(place.keys, RIGHTS, now_s())
    assert await place.begun(OWN, token) == 202
    for other in ("commits/alice/other", "commits/bob/repo", "mirror/base", "estargz/base", "commits/alice/repo/below"):
        assert await place.begun(other, token) in REFUSED, other
    assert await place.read("mirror/base/manifests/x", token) == 404
    assert await place.read("mirror/other/manifests/x", token) in REFUSED
    assert await place.read("_catalog", token) in REFUSED


async def test_a_layer_that_is_sent_with_it_is_there(place: Place) -> None:
    shown = {"Authorization": f"Bearer {minted(place.keys, RIGHTS, now_s())}"}
    layer = bytes(range(256)) * 4096
    begun = await place.http.post(f"https://{place.address}/v2/{OWN}/blobs/uploads/", headers=shown)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(layer), 65_536):
            yield layer[at : at + 65_536]

    sent = await place.http.patch(place.at(begun.headers["Location"]), data=pieces(), headers=shown)
    assert sent.status == 202
    ends = place.at(sent.headers["Location"])
    ends += f"{'&' if '?' in ends else '?'}digest={digest(layer)}"
    assert (await place.http.put(ends, headers=shown)).status == 201
    read = await place.http.get(f"https://{place.address}/v2/{OWN}/blobs/{digest(layer)}", headers=shown)
    assert await read.read() == layer


async def test_another_key_and_one_that_is_over_are_refused(place: Place, tmp_path: Path) -> None:
    assert await place.begun(OWN, minted(Authority().write(tmp_path / "other", "commits"), RIGHTS, now_s())) == 401
    assert await place.begun(OWN, minted(place.keys, RIGHTS, now_s() - LIVES_S - 3600)) == 401
