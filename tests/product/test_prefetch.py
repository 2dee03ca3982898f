"""Images that are pulled before a sandbox needs them, and the list of those that nodes have."""

from __future__ import annotations

import json

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import InvalidArgument, Unsupported
from tests.support.command_line import rollbox
from tests.support.commits import ON_CLUSTER, check_not_offered
from tests.support.images import IMAGE
from tests.support.stack import Product

NOWHERE = "rollbox.invalid/nothing:1"


@pytest.mark.core
async def test_what_is_there_is_here_at_once(client: Client) -> None:
    try:
        report = await client.prefetch(IMAGE)
    except Unsupported as refused:
        check_not_offered(refused)
    assert report.failed == {}
    assert list(report.here) == [IMAGE]
    assert report.here[IMAGE]
    assert report.require() is report


async def test_a_prefetch_to_one_node_is_on_one(client: Client) -> None:
    try:
        report = await client.prefetch(IMAGE, nodes=1)
    except Unsupported as refused:
        check_not_offered(refused)
    assert report.failed == {}
    assert [len(nodes) for nodes in report.here.values()] == [1]
    with pytest.raises(InvalidArgument, match="nodes"):
        client.prefetch(IMAGE, nodes=0)


async def test_the_list_has_it_with_size_and_last_use(client: Client, shared: Sandbox) -> None:
    try:
        images = await client.images()
    except Unsupported as refused:
        check_not_offered(refused)
    # A node may know what it has pulled by its digest by no tag.
    repository = IMAGE.rpartition(":")[0]
    found = [one for one in images if any(name.startswith(repository) for name in one.names)]
    assert found
    assert all(one.size_bytes > 1_000_000 and one.node and one.digest.startswith("sha256:") for one in found)
    if not ON_CLUSTER:
        used = [one for one in found if one.digest == shared.record.image_digest]
        assert [one.last_used_ms for one in used] != [None], used


async def test_one_that_is_nowhere_fails_and_the_others_do_not(client: Client) -> None:
    states: dict[str, str] = {}
    pulling = client.prefetch([NOWHERE, IMAGE])
    try:
        async for progress in pulling:
            states[progress.image] = progress.state
    except Unsupported as refused:
        check_not_offered(refused)
    assert states == {NOWHERE: "failed", IMAGE: "here"}
    ((image, _),) = pulling.report.failed
    assert image == NOWHERE
    with pytest.raises(Exception, match=r"rollbox\.invalid") as caught:
        pulling.report.require()
    assert caught.value.code in ("image_not_found", "image_pull_failed")  # type: ignore[attr-defined]


@pytest.mark.parametrize("images", [[], ["UPPER"], ["a b"], [""], "a:b:c"])
async def test_bad_names_are_refused_before_anything_is_pulled(client: Client, images: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        await client.prefetch(images)


async def test_the_command_line_prints_each_step_and_exits_as_the_failure_says(stack: Product, client: Client) -> None:
    try:
        await client.images()
    except Unsupported as refused:
        check_not_offered(refused)
    status, out, err = await rollbox(stack, "image", "prefetch", "--json", NOWHERE, IMAGE)
    steps = [json.loads(line) for line in out.splitlines()]
    assert {(one["image"], one["state"]) for one in steps if one["state"] != "pulling"} == {
        (NOWHERE, "failed"),
        (IMAGE, "here"),
    }
    assert json.loads(err)["code"] in ("image_not_found", "image_pull_failed")
    assert status in (2, 5)
