"""The control plane asks registries with the namespace's pull secrets, and goes on where one cannot be read."""

import asyncio
import base64
import json

from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.kubernetes.api_server.refusals import Refusal, Refused
from controlplane.cluster.kubernetes.node_agents.pull_secrets import KEPT_MS, WAIT_S, PullSecrets
from controlplane.errors import Problem
from controlplane.images import parse
from tests.support.virtual_time import VirtualClock


def secret(**auths: str) -> Json:
    entries = {place: {"username": user, "password": "p"} for place, user in auths.items()}
    text = json.dumps({"auths": entries}).encode()
    return {"data": {".dockerconfigjson": base64.b64encode(text).decode()}}


class Secrets:
    def __init__(self, **found: Json) -> None:
        self.found = found
        self.asked = 0
        self.away = False

    async def get(self, path: str, *, within_s: float) -> Json:
        self.asked += 1
        await asyncio.sleep(within_s if self.away else 0.1)
        if self.away:
            raise Problem("internal", "the API server does not answer")
        folder, _, name = path.rpartition("/")
        assert folder == "/api/v1/namespaces/sandboxes/secrets"
        if name not in self.found:
            raise Refused(Refusal(404, "NotFound", f'secrets "{name}" not found'), f"secret {name}")
        return self.found[name]


async def test_secrets_are_read_together_once_a_minute() -> None:
    secrets = Secrets(one=secret(**{"a.io": "first"}), two=secret(**{"a.io": "second", "b.io": "b"}))
    pull = PullSecrets(secrets, "sandboxes", ["one", "two"], {}, VirtualClock())
    rings = await asyncio.gather(*(pull.of("alice") for _ in range(5)))
    for ring in rings:
        assert [found.username for name in ("a.io/x", "b.io/x") if (found := ring.find(parse(name)))] == ["first", "b"]
    assert secrets.asked == 2
    secrets.found["one"] = secret(**{"a.io": "new"})
    await asyncio.sleep(KEPT_MS / 1000)
    found = (await pull.of("alice")).find(parse("a.io/x"))
    assert found is not None
    assert found.username == "new"


async def test_a_secret_that_cannot_be_read_is_left_out() -> None:
    odd: list[Json] = [{}, {"data": {}}, {"data": {".dockerconfigjson": "!"}}, {"data": {".dockerconfigjson": "e30="}}]
    secrets = Secrets(good=secret(**{"a.io": "a"}), **{f"odd{n}": one for n, one in enumerate(odd)})
    names = ["none", *(f"odd{n}" for n in range(len(odd))), "good"]
    keyring = await PullSecrets(secrets, "sandboxes", names, {}, VirtualClock()).of("")
    assert list(keyring.entries) == ["a.io"]


async def test_a_secret_that_is_missing_is_named_to_those_whose_it_is() -> None:
    secrets = Secrets(bobs=secret(**{"b.io": "bob"}), odd={"data": {}})
    pull = PullSecrets(secrets, "sandboxes", ["odd"], {"alice": ["alices"], "bob": ["bobs"]}, VirtualClock())
    odd = "image pull secret odd in namespace sandboxes: it has no .dockerconfigjson that can be read"
    alices = "image pull secret alices in namespace sandboxes: there is none of this name"
    told = {owner: await pull.of(owner) for owner in ("alice", "bob", "carol", "pool:p")}
    assert {owner: ring.missing for owner, ring in told.items()} == {
        "alice": f"{alices}; {odd}",
        "bob": odd,
        "carol": odd,
        "pool:p": f"{odd}; {alices}",
    }
    assert all(ring.others_missing for ring in told.values())
    assert told["bob"].find(parse("b.io/x")) is not None
    assert await pull.guards(parse("c.io/x"))
    assert not await pull.guards(parse("localhost:5000/x"))
    secrets.found["alices"] = secret(**{"a.io": "alice"})
    await asyncio.sleep(KEPT_MS / 1000)
    mended = await pull.of("alice")
    assert (mended.missing, mended.others_missing) == (odd, False)
    assert not await pull.guards(parse("c.io/x"))


async def test_an_api_server_that_is_away_delays_one_create_a_moment_and_changes_nothing() -> None:
    secrets = Secrets(**{f"s{n}": secret(**{f"r{n}.io": "alice"}) for n in range(8)})
    pull = PullSecrets(secrets, "sandboxes", [], {"alice": list(secrets.found)}, VirtualClock())
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await pull.guards(parse("r7.io/x"))
    assert loop.time() - began_s < 0.2  # side by side
    await asyncio.sleep(KEPT_MS / 1000)
    secrets.away = True
    for longest_s in (WAIT_S, 0.0, 0.0):
        began_s = loop.time()
        assert await pull.guards(parse("r7.io/x"))
        assert not await pull.guards(parse("python:3"))
        assert loop.time() - began_s <= longest_s + 0.01
    await pull.close()
    assert len(asyncio.all_tasks()) == 1
