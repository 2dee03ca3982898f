"""Commits, prefetches and lists of images against a gateway that loses answers and breaks streams."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from rollbox import Batch, Client, CommittedImage
from rollbox.errors import InvalidArgument, Unsupported
from tests.support.gateway_fake import FakeGateway, Fault
from tests.support.waiting import until


@pytest.mark.parametrize(
    "wrong",
    [{}, {"name": "a", "checkpoint": True}, {"name": "a", "ttl": 5}, {"checkpoint": True, "ttl": 0}, {"name": None}],
)
async def test_a_commit_has_a_name_or_is_a_checkpoint(client: Client, wrong: dict[str, Any]) -> None:
    async with await client.create("i") as sandbox:
        with pytest.raises(InvalidArgument):
            await sandbox.commit(**wrong)
    for image, checkpoint in ((None, None), ("i", "cp-1")):
        with pytest.raises(InvalidArgument, match="one of both"):
            await client.create(image, checkpoint=checkpoint)
    for checkpoint in ("python", "python:1", "team/cp-1", ""):
        with pytest.raises(InvalidArgument, match="not the id of a checkpoint"):
            await client.create(checkpoint=checkpoint)


def test_a_committed_image_survives_copies() -> None:
    image = CommittedImage("a@b", digest="b", size_bytes=1, skipped=["x"])
    for other in (copy.deepcopy(image), pickle.loads(pickle.dumps(image))):
        assert (other, other.digest, other.skipped) == ("a@b", "b", ("x",))


@pytest.mark.parametrize("fault", [Fault("upstream_timeout", after=True), Fault("draining"), Fault(after=True)])
async def test_a_commit_whose_answer_is_lost_is_joined(client: Client, fake: FakeGateway, fault: Fault) -> None:
    async with await client.create("a") as sandbox:
        fake.fail("commit", fault)
        await sandbox.commit("repo")
        assert len(fake.images.keys) == 1
        await sandbox.commit("repo")
        assert len(fake.images.keys) == 2


async def test_a_bad_commit_is_not_repeated(client: Client, fake: FakeGateway) -> None:
    async with await client.create("a") as sandbox:
        with pytest.raises(InvalidArgument, match="small"):
            await sandbox.commit("BIG")
        for bad in ({"max_bytes": "much"}, {"timeout": 0}, {"timeout": float("nan")}):
            with pytest.raises(InvalidArgument):
                await sandbox.commit("repo", **bad)
        assert len(fake.images.bodies) == 1


async def test_a_stream_that_breaks_is_asked_for_again_and_tells_nothing_twice(
    client: Client, fake: FakeGateway
) -> None:
    fake.images.breaks += [2, 0, 5]
    told = [(one.image, one.node) async for one in client.prefetch(["a:1", "b:1"]) if one.state == "here"]
    assert told == [("a:1", "n1"), ("a:1", "n2"), ("b:1", "n1"), ("b:1", "n2")]
    assert len(fake.images.prefetched) == 4


async def test_many_images_are_asked_for_in_parts(client: Client, fake: FakeGateway) -> None:
    report = await client.prefetch(f"a:{number}" for number in range(2500))
    assert len(report.here) == 2500
    assert [len(one) for one in fake.images.prefetched] == [1024, 1024, 452]


async def test_what_is_not_offered_is_raised(client: Client, fake: FakeGateway) -> None:
    fake.fail("prefetch", Fault("unsupported"))
    with pytest.raises(Unsupported):
        await client.prefetch("a:1")
    with pytest.raises(InvalidArgument):
        client.prefetch([])


async def test_a_conversion_is_awaited_or_iterated_and_its_failure_raised(client: Client, fake: FakeGateway) -> None:
    done = await client.convert("a:1")
    assert (done.state, done.digest, done.ran) == ("offered", "sha256:a", "sha256:b")
    assert [(one.state, one.text) async for one in client.convert("a:1")][1] == ("converting", "1 of 2 layers")
    fake.images.missing.add("large:1")
    with pytest.raises(Unsupported, match="128 layers"):
        await client.convert("large:1")
    fake.fail("convert", Fault("unsupported"))
    with pytest.raises(Unsupported):
        await client.convert("a:1")


async def test_a_conversion_whose_stream_breaks_is_asked_for_again_and_tells_nothing_twice(
    client: Client, fake: FakeGateway
) -> None:
    fake.images.breaks += [1, 2]
    told = [one.state async for one in client.convert("a:1")]
    assert told[-1] == "offered"
    assert len(fake.images.converted) == 3


async def test_a_batch_pulls_what_its_next_samples_need(client: Client, fake: FakeGateway) -> None:
    async def rollout(sample: int) -> int:
        # The images of this sample and of the two behind it are asked for by now, or will be.
        wanted = {f"image:{number // 2}" for number in range(sample, min(sample + 3, 10)) if number != 3}

        async def asked_for() -> bool:
            await client.info()
            return wanted <= {one for call in fake.images.prefetched for one in call}

        await until(asked_for)
        return sample

    def image(sample: int) -> str | None:
        return None if sample == 3 else f"image:{sample // 2}"

    async with Batch(range(10), rollout, in_flight=2, image=image, client=client) as batch:
        values = [outcome.value async for outcome in batch]
    assert sorted(value for value in values if value is not None) == list(range(10))
    asked = [one for call in fake.images.prefetched for one in call]
    assert sorted(asked) == [f"image:{number}" for number in range(5)]


async def test_a_pull_ahead_that_does_not_end_holds_up_no_others(client: Client, fake: FakeGateway) -> None:
    fake.images.stuck |= {"image:1", "image:2"}

    async def rollout(sample: int) -> int:
        async def asked_for_the_next() -> bool:
            await client.info()
            return f"image:{min(sample + 1, 9)}" in {one for call in fake.images.prefetched for one in call}

        await until(asked_for_the_next)
        return sample

    samples = Batch(range(10), rollout, in_flight=1, image="image:{}".format, image_nodes=3, client=client)
    async with samples as batch:
        assert [outcome.value async for outcome in batch] == list(range(10))
    assert {*fake.images.nodes} == {3}


async def test_no_more_than_four_calls_pull_ahead(client: Client, fake: FakeGateway) -> None:
    fake.images.stuck |= {f"image:{number}" for number in range(20)}

    async def rollout(_: int) -> None:
        await client.info()

    async with Batch(range(20), rollout, in_flight=1, image="image:{}".format, client=client) as batch:
        assert len([one async for one in batch]) == 20
    assert len(fake.images.prefetched) <= 4


async def test_pulls_ahead_go_to_one_node_unless_more_are_asked_for(client: Client, fake: FakeGateway) -> None:
    async def rollout(_: int) -> None:
        async def asked_for() -> bool:
            await client.info()
            return bool(fake.images.nodes)

        await until(asked_for)

    for nodes, sent in ((1, 1), (None, None)):
        fake.images.nodes.clear()
        async with Batch([1], rollout, in_flight=1, image=lambda _: "a:1", image_nodes=nodes, client=client) as batch:
            assert [one.error async for one in batch] == [None]
        assert fake.images.nodes == [sent]
    with pytest.raises(InvalidArgument, match="image_nodes"):
        Batch([1], rollout, in_flight=1, image_nodes=0)


async def test_a_prefetch_says_on_how_many_nodes(client: Client, fake: FakeGateway) -> None:
    await client.prefetch("a:1", nodes=2)
    await client.prefetch("a:1")
    assert fake.images.nodes == [2, None]
    with pytest.raises(InvalidArgument, match="nodes"):
        client.prefetch("a:1", nodes=0)


@pytest.mark.parametrize("fault", ["unsupported", "permission_denied"])
async def test_a_batch_goes_on_where_nothing_is_pulled_ahead(client: Client, fake: FakeGateway, fault: str) -> None:
    fake.fail("prefetch", Fault(fault))

    async def rollout(sample: int) -> int:
        return sample

    async with Batch(range(10), rollout, in_flight=2, image=lambda _: "a:1", client=client) as batch:
        assert len([outcome async for outcome in batch]) == 10


async def test_what_was_committed_is_listed_and_removed(client: Client, fake: FakeGateway) -> None:
    fake.images.kept.append("owner/deep/repo:v2")
    told = await client.commits()
    first = told.images[0]
    assert (first.tags, first.size_bytes, first.built_on) == (("v1",), 7, ())
    assert (len(told.images), told.used_bytes, told.limit_bytes) == (2, 14, 100)
    assert await client.remove_image("owner/deep/repo:v2")
    # The answer is lost, and the repetition finds nothing left.
    fake.fail("images", Fault(after=True))
    assert not await client.remove_image("repo:v1")
    assert (await client.commits()).images == ()
    for bad in ("", " ", 1):
        with pytest.raises(InvalidArgument):
            await client.remove_image(bad)  # type: ignore[arg-type]


async def test_an_image_says_what_its_processes_are(client: Client, fake: FakeGateway) -> None:
    fake.fail("images", Fault("upstream_timeout"))
    said = await client.image_config("registry:5000/team/app:1")
    assert (said.image, said.entrypoint, said.cmd) == ("registry:5000/team/app:1", ("sh", "-c"), ("serve",))
    assert (said.env, said.cwd, said.user, said.labels) == ({"A": "1=2", "B": ""}, "/srv", "u", {"l": "1"})
    assert said.to_json()["ports"] == ("80/tcp",)
    with pytest.raises(InvalidArgument, match="is not a name"):
        await client.image_config(" ")
