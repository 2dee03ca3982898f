"""Labels as many and as long as they may be: on the sandbox's record, and on what runs."""

from __future__ import annotations

from typing import Any

import pytest

from rollbox import Client
from rollbox.errors import InvalidArgument
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.labels import KEY_CHARS, VALUE_CHARS, longest

SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


# A cluster has them in annotations, which are bytes: the largest ones say it of the others.
@pytest.mark.parametrize("letter", ["😀"] if ON_CLUSTER else ["x", "😀"])
async def test_the_longest_labels_are_kept_and_found(client: Client, letter: str) -> None:
    async with await client.create(IMAGE, labels=longest(letter), **SMALL) as sandbox:
        assert sandbox.labels == longest(letter)
        assert (await client.get(sandbox.id)).labels == longest(letter)
        key = next(iter(longest(letter)))
        assert [record.id for record in await client.list({key: letter * VALUE_CHARS})] == [sandbox.id]
        assert (await sandbox.exec("echo ok")).stdout == "ok\n"


async def test_one_more_or_one_longer_is_refused_by_name(client: Client) -> None:
    for wrong, said in (
        ({**longest(), "one": "more"}, "65 labels are more than 64"),
        ({"k" * (KEY_CHARS + 1): "v"}, "must be 1 to 128 of A-Za-z0-9._/-, alphanumeric at both ends"),
        ({"key": "v" * (VALUE_CHARS + 1)}, "the value of 'key' must have at most 256 characters"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            await client.create(IMAGE, labels=wrong, **SMALL)
        assert said in refused.value.detail, refused.value.detail
