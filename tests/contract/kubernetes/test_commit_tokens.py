"""A token for a commit, as a real registry understands it: good for one repository, and for a while."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from controlplane.cluster.kubernetes.node_agents import tokens
from controlplane.cluster.kubernetes.node_agents.tokens import ISSUER, SERVICE, minted
from tests.support.authority import Authority
from tests.support.registry import registry_server
from tests.support.stack import free_port

OWN = "commits/alice/repo"
RIGHTS: Mapping[str, Sequence[str]] = {"mirror/base": ("pull",), OWN: ("pull", "push", "delete")}


@dataclass(frozen=True)
class Place:
    address: str
    http: aiohttp.ClientSession
    keys: Path

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


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    tls, keys = Authority().write(tmp_path / "tls", "localhost"), Authority().write(tmp_path / "keys", "commits")
    at = f"127.0.0.1:{free_port('127.0.0.1')}"
    served = {"addr": at, "tls": {"certificate": str(tls / "tls.crt"), "key": str(tls / "tls.key")}}
    judged = {"realm": "https://localhost/", "service": SERVICE, "issuer": ISSUER}
    trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=tls / "ca.crt"))
    auth = {"token": {**judged, "rootcertbundle": str(keys / "tls.crt")}}
    with registry_server(tmp_path, at, http=served, auth=auth):
        async with aiohttp.ClientSession(connector=trusted) as http:
            yield Place(f"localhost:{at.rpartition(':')[2]}", http, keys)


async def test_it_writes_to_one_repository_and_nowhere_else(place: Place) -> None:
    token = minted(place.keys, RIGHTS)
    assert await place.begun(OWN, token) == 202
    for other in ("commits/alice/other", "commits/bob/repo", "mirror/base", "estargz/base", "commits/alice/repo/below"):
        assert await place.begun(other, token) == 401, other
    assert await place.read("mirror/base/manifests/x", token) == 404
    assert await place.read("mirror/other/manifests/x", token) == 401
    assert await place.read("_catalog", token) == 401


async def test_another_key_and_one_that_is_over_are_refused(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await place.begun(OWN, minted(Authority().write(tmp_path / "other", "commits"), RIGHTS)) == 401
    monkeypatch.setattr(tokens, "LIVES_S", -3600)
    assert await place.begun(OWN, minted(place.keys, RIGHTS)) == 401
