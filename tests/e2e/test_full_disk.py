"""A node whose image disk is full, as a client sees it: what it has goes on, what it would pull is refused in words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rollbox import Client
from rollbox.errors import ImagePullFailed
from tests.e2e.test_lazy import pushed, started
from tests.support.full_disk import full_disk
from tests.support.images import IMAGE
from tests.support.installed import own_cluster


# Whoever pulls an image meanwhile gets none.
@pytest.mark.alone
async def test_a_full_image_disk_is_told_within_seconds_and_what_the_node_has_goes_on(
    client: Client, tmp_path: Path
) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's nodes are not the tests' to change")
    image = pushed(tmp_path, "plain/full")
    async with full_disk(tmp_path / "disk") as disk, await started(client, IMAGE, "full") as sandbox:
        async with disk.full():
            began_s = time.monotonic()
            with pytest.raises(ImagePullFailed, match="the node has no room for it") as refused:
                await started(client, image, "full", 60)
            print(f"full: {refused.value.code} after {time.monotonic() - began_s:.1f} s: {refused.value.detail}")
            assert (await sandbox.exec("true")).ok
            async with await started(client, IMAGE, "full") as another:
                assert (await another.exec("true")).ok
        began_s = time.monotonic()
        async with await started(client, image, "full") as late:
            assert (await late.exec("cat /srv/* | md5sum")).ok
        print(f"with room again: started after {time.monotonic() - began_s:.1f} s")
