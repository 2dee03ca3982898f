"""One name, one image: a group keeps the image that its name had at first, and the record says which one runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from rollbox import Client
from rollbox.errors import SandboxError
from tests.support.containers import engine, remove_image
from tests.support.images import IMAGE

GROUP = "rollbox.group"


@pytest.fixture
async def name() -> AsyncIterator[str]:
    """A name for an image; what is built under it is removed at the end, also what has lost the name."""
    found, built = f"localhost/rollbox/test-{uuid4().hex[:8]}:1", set[str]()
    BUILT[found] = built
    try:
        yield found
    finally:
        for image in BUILT.pop(found):
            await remove_image(image)


BUILT: dict[str, set[str]] = {}


async def build(name: str, mark: str) -> None:
    """The runtime image with this mark in its environment, under this name from now on."""
    container = f"test-{uuid4().hex[:8]}"
    await engine("create", "--name", container, IMAGE, "true")
    try:
        made = await engine("commit", "--change", f"ENV MARK={mark}", container, name)
        BUILT[name].add(made.strip().removeprefix("sha256:"))
    finally:
        await engine("rm", "--force", container)


async def test_a_group_keeps_its_image_when_its_name_is_built_anew(client: Client, name: str) -> None:
    labels = {GROUP: f"g-{uuid4().hex[:8]}"}
    seen: list[tuple[str, str]] = []

    async def look(labels: dict[str, str]) -> None:
        async with await client.create(name, labels=labels) as sandbox:
            record = await client.get(sandbox.id)
            assert record.image == name
            assert record.image_digest.startswith("sha256:")
            seen.append(((await sandbox.exec("echo $MARK")).stdout.strip(), record.image_digest))

    await build(name, "one")
    await look(labels)
    await build(name, "two")
    await look(labels)
    await look({})
    assert [mark for mark, _ in seen] == ["one", "one", "two"]
    assert seen[0] == seen[1]
    assert seen[1][1] != seen[2][1]


async def test_a_malformed_name_is_refused_with_the_reason(client: Client) -> None:
    for image, reason in (
        ("Python:3", "'Python' must be a-z"),
        ("python:3:4", "is not a tag"),
        ("a@sha256:1", "digest"),
    ):
        with pytest.raises(SandboxError) as caught:
            await client.create(image)
        assert caught.value.code == "invalid_argument"
        assert reason in str(caught.value.detail)
