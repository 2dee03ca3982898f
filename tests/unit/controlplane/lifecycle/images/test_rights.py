"""Whose image it is: an owner without credentials gets nobody else's, whatever node, pool or registry has it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controlplane.errors import Problem
from controlplane.images import Credentials, Found, ImageOptions, Keyring, PrivateRegistry, Reference
from controlplane.lifecycle import Options
from controlplane.lifecycle.images.rights import AWAY_MS, GRANTED_MS
from controlplane.model import SandboxSpec, State
from controlplane.registry import RegistryProblem
from controlplane.store import Store
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_commits import FakeCommits
from tests.support.fake_mirror import FakeKeyrings, FakeMirror
from tests.support.fake_node_images import FakeLazyNodes
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, World, world

PRIVATE = SandboxSpec(image="registry.example.com/alice/app:1")
PUBLIC = SandboxSpec(image="python:3")
ALICES = Credentials("alice", "secret")


@asynccontextmanager
async def plane(
    registry: FakeRegistry, mirror: FakeMirror, cluster: FakeCluster | None = None, store: Store | None = None
) -> AsyncIterator[World]:
    options = Options(
        starts_in_flight=64, images=ImageOptions("auto", private=PrivateRegistry("registry.internal:5000"))
    )
    keyrings = FakeKeyrings({OWNER: {"registry.example.com": ALICES}})
    async with world(
        cluster, options=options, store=store, registry=registry, mirror=mirror, keyrings=keyrings
    ) as running:
        yield running


async def refused(running: World, owner: str, spec: SandboxSpec = PRIVATE) -> Problem:
    with pytest.raises(Problem) as caught:
        await running.create(owner, spec)
    return caught.value


async def test_an_image_that_is_here_is_not_everybodys() -> None:
    registry, mirror = FakeRegistry(allowed={OWNER}), FakeMirror()
    async with plane(registry, mirror) as running:
        await running.create(OWNER, PRIVATE)
        assert mirror.asked == [(f"{PRIVATE.image}@{digest('a')}", ALICES)]
        capitals = PRIVATE.image.replace("registry", "Registry")
        for name in (PRIVATE.image, f"{PRIVATE.image}@{digest('a')}", capitals, f"{capitals}@{digest('a')}"):
            problem = await refused(running, "bob", SandboxSpec(image=name))
            assert problem.code == "image_not_found"
        assert len(running.cluster.held) == 1
        # Where nobody has credentials of its own, nobody is asked.
        registry.allowed = None
        asked = len(registry.asked)
        await running.create("bob", PUBLIC)
        assert registry.asked[asked:] == ["docker.io/library/python:3"]


async def test_one_owners_expired_credentials_fail_no_other_owners_start() -> None:
    bobs = Credentials("bob", "secret")
    mirror = FakeMirror(takes_s=20, expired=ALICES)
    private = PrivateRegistry("registry.internal:5000")
    options = Options(starts_in_flight=64, images=ImageOptions("auto", private=private))
    keyrings = FakeKeyrings({OWNER: {"registry.example.com": ALICES}, "bob": {"registry.example.com": bobs}})
    registry = FakeRegistry(allowed={OWNER, "bob"})
    async with world(options=options, registry=registry, mirror=mirror, keyrings=keyrings) as running:
        alice = asyncio.create_task(refused(running, OWNER))
        await asyncio.sleep(1)
        await running.create("bob", PRIVATE)
        assert (await alice).code == "image_not_found"
        assert [credentials for _, credentials in mirror.asked] == [ALICES, bobs]


async def test_an_image_that_is_not_there_is_told_in_the_same_words() -> None:
    registry = FakeRegistry(allowed={OWNER})
    async with plane(registry, FakeMirror()) as running:
        denied = await refused(running, "bob")
        registry.outcome, registry.allowed = "absent", None
        absent = await refused(running, "carol")
        assert (denied.code, denied.detail) == (absent.code, absent.detail)


async def test_a_right_can_be_taken_back() -> None:
    registry = FakeRegistry(allowed={OWNER})
    async with plane(registry, FakeMirror()) as running:
        await running.create(OWNER, PRIVATE)
        registry.allowed = set()
        await asyncio.sleep(GRANTED_MS / 1000)
        assert (await refused(running, OWNER)).code == "image_not_found"


async def test_a_proven_right_outlives_its_registry_for_a_while() -> None:
    registry = FakeRegistry(allowed={OWNER})
    async with plane(registry, FakeMirror()) as running:
        await running.create(OWNER, PRIVATE)
        registry.outcome = "away"
        await asyncio.sleep(GRANTED_MS / 1000)
        again = (await running.create(OWNER, PRIVATE)).sandbox
        assert again.image_stale
        assert (await refused(running, "bob")).code == "image_pull_failed"
        await asyncio.sleep(AWAY_MS / 1000)
        assert (await refused(running, OWNER)).code == "image_pull_failed"


async def test_a_warm_sandbox_is_its_owners_only() -> None:
    registry = FakeRegistry(allowed={OWNER, "pool:p"})
    async with plane(registry, FakeMirror()) as running:
        pool = {"template": {"image": PRIVATE.image}, "min_warm": 2, "max_warm": 2}
        assert (await running.api("PUT", "/v1/pools/p", body=pool)).status == 201
        await asyncio.sleep(10)
        assert await running.deps.store.warm(PRIVATE.template_hash()) == 2
        assert (await refused(running, "bob")).code == "image_not_found"
        assert (await running.create(OWNER, PRIVATE)).sandbox.warm


SECRET = "image pull secret team-registry in namespace sandboxes: there is none of this name"


class Unread(FakeKeyrings):
    """Keyrings of an installation in which the secret of one owner was never read."""

    async def of(self, owner: str) -> Keyring:
        return replace(await super().of(owner), missing=SECRET if owner == OWNER else "", others_missing=True)

    async def guards(self, reference: Reference) -> bool:
        return True


@asynccontextmanager
async def unread(
    registry: FakeRegistry, mirror: FakeMirror, cluster: FakeCluster | None = None
) -> AsyncIterator[World]:
    private = PrivateRegistry("registry.internal:5000")
    options = Options(starts_in_flight=64, images=ImageOptions("auto", private=private))
    async with world(cluster, options=options, registry=registry, mirror=mirror, keyrings=Unread()) as running:
        yield running


async def test_an_owners_missing_secret_stops_no_conversion_and_no_others_create() -> None:
    registry, mirror = FakeRegistry(), FakeMirror()
    mirror.there["commits/bob/tools", "1"] = Found(digest("tools"), "")
    cluster = FakeCluster(
        commits=FakeCommits("registry.internal:5000/commits"), lazy=FakeLazyNodes("registry.internal:5000/estargz/")
    )
    async with unread(registry, mirror, cluster) as running:
        await running.create("bob", PUBLIC)
        await running.create("bob", SandboxSpec(image="registry.internal:5000/commits/bob/tools:1"))
        lazy = (await running.create("bob", SandboxSpec(image="python:3", pull="lazy"))).sandbox
        assert lazy.image_pulled == "lazy"
    # The installation's own registry is asked by nobody but the mirror and the nodes.
    assert not [name for name in registry.asked if name.startswith("registry.internal")]


@pytest.mark.parametrize("named", ["localhost:5000/rollbox/python:1", "127.0.0.1:5000/a@" + digest("a"), "[::1]/a:1"])
async def test_what_only_nodes_reach_is_pulled_from_where_it_is(named: str) -> None:
    registry, mirror = FakeRegistry(outcome="away"), FakeMirror()
    async with plane(registry, mirror) as running:
        sandbox = (await running.create(OWNER, SandboxSpec(image=named))).sandbox
        assert running.cluster.held[sandbox.id].spec.image == named
    assert mirror.asked == []


async def test_the_owner_of_a_missing_secret_is_told_its_name_and_others_are_not() -> None:
    registry = FakeRegistry(allowed=set())
    async with unread(registry, FakeMirror()) as running:
        own, others = await refused(running, OWNER), await refused(running, "bob")
        assert (own.code, others.code) == ("image_not_found", "image_not_found")
        assert own.detail == f"{others.detail}. Your credentials are not complete: {SECRET}"


async def test_a_registry_that_is_away_is_told_with_why_it_had_to_be_asked() -> None:
    registry = FakeRegistry()
    async with unread(registry, FakeMirror()) as running:
        registry.outcome = "away"
        own, others = await refused(running, OWNER), await refused(running, "bob")
        assert SECRET in own.detail
        assert SECRET not in others.detail
        assert "since an owner's image pull secret is not read (see `rollbox doctor --cluster`" in others.detail


async def test_an_account_that_its_registry_limits_puts_no_other_owner_off() -> None:
    class Limiting(FakeRegistry):
        async def check(
            self, reference: Reference, digest: str, architectures: Collection[str], owner: str = ""
        ) -> Mapping[str, int]:
            if owner == OWNER:
                raise RegistryProblem("limited", reference.registry, "it limits how often it is asked", 3600.0)
            return await super().check(reference, digest, architectures, owner)

    registry, cluster = Limiting(), FakeCluster()
    async with plane(registry, FakeMirror(), cluster) as running:
        assert (await refused(running, OWNER)).code == "image_pull_failed"
        other = (await running.create("bob", SandboxSpec(image="registry.example.com/alice/tools:1"))).sandbox
        assert other.image_digest == digest("a")


async def test_a_preflight_tells_nobody_of_others_images() -> None:
    registry = FakeRegistry(allowed={OWNER})
    async with plane(registry, FakeMirror()) as running:
        await running.create(OWNER, PRIVATE)
        told = {}
        for owner in (OWNER, "bob"):
            found, state = await running.service.forecast(owner, PRIVATE, 1)
            told[owner] = ([one.code for one in found.blockers], state)
        assert told == {OWNER: ([], "here"), "bob": (["image_not_found"], "unknown")}


async def test_a_repeated_create_gets_its_sandbox_while_the_registry_is_away() -> None:
    registry, core, cluster = FakeRegistry(allowed={OWNER}), SharedMemory(VirtualClock()), FakeCluster()
    async with plane(registry, FakeMirror(), cluster, core.view("a")) as first:
        made = (await first.create(OWNER, PRIVATE, "key")).sandbox
    registry.outcome = "away"
    async with plane(registry, FakeMirror(), cluster, core.view("b")) as other:
        again = await other.create(OWNER, PRIVATE, "key")
        assert (again.sandbox.id, again.replayed) == (made.id, True)
        for key in (None, "new"):
            with pytest.raises(Problem) as caught:
                await other.create(OWNER, PRIVATE, key)
            assert caught.value.code == "image_pull_failed"
        with pytest.raises(Problem) as caught:
            await other.create(OWNER, PUBLIC, "key")
        assert caught.value.code == "conflict"


async def test_a_start_that_is_taken_over_asks_nobody_what_is_on_record() -> None:
    registry, mirror, cluster = FakeRegistry(allowed={OWNER}), FakeMirror(), FakeCluster(start_s=20)
    store = SharedMemory(VirtualClock())
    async with plane(registry, mirror, cluster, store.view("a")) as running:
        sandbox = await running.request(OWNER, PRIVATE, "key")
        await asyncio.sleep(5)
        registry.outcome, mirror.away = "away", True
    async with plane(registry, mirror, cluster, store.view("b")) as running:
        taken = (await running.create(OWNER, PRIVATE, "key")).sandbox
        assert (taken.id, taken.state) == (sandbox.id, State.RUNNING)
        copy = f"registry.internal:5000/mirror/registry.example.com/alice/app@{taken.image_ran}"
        assert cluster.held[sandbox.id].spec.image == copy


async def test_equal_questions_of_one_owner_are_one() -> None:
    registry = FakeRegistry(allowed={OWNER}, takes_s=0.5)
    async with plane(registry, FakeMirror()) as running:
        async with asyncio.TaskGroup() as creates:
            for _ in range(20):
                creates.create_task(running.create(OWNER, PRIVATE))
        # By its name, for the digest, and by that.
        assert len(registry.asked) == 3


async def test_a_failure_that_nobody_foresaw_ends_one_create_alone() -> None:
    class Broken(FakeRegistry):
        async def digest(self, reference: Reference, owner: str = "") -> str:
            self.asked.append(str(reference))
            if len(self.asked) == 1:
                raise RuntimeError("a bug")
            return digest("a")

    async with plane(Broken(), FakeMirror()) as running:
        assert (await refused(running, OWNER)).code == "internal"
        assert (await running.create(OWNER, PRIVATE)).sandbox.state is State.RUNNING
