"""Images of the Docker bridge that are not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from rollbox import Client
from rollbox_bridges.docker.images import Images
from rollbox_bridges.docker.words import Refusal


@pytest.mark.parametrize("code", ["image_not_found", "image_pull_failed"])
async def test_an_image_that_the_platform_cannot_have_is_told_in_the_words_that_clients_look_for(code: str) -> None:
    async def preflight(_: str) -> object:
        return SimpleNamespace(blockers=[SimpleNamespace(code=code, detail="its registry has none")], image="unknown")

    images = Images(cast("Client", SimpleNamespace(preflight=preflight)))
    with pytest.raises(Refusal) as refused:
        await images.get("registry.test/nosuch:1")
    assert refused.value.status == 404
    assert str(refused.value) == "No such image: registry.test/nosuch:1: its registry has none"
