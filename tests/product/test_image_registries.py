"""Names of images with a registry: a name that leads nowhere is the mistake of its caller."""

from __future__ import annotations

import pytest

from rollbox import Client
from rollbox.errors import ImageNotFound, ImagePullFailed, InvalidArgument, SandboxError


@pytest.mark.parametrize(
    "name",
    [
        "registry.invalid:5000/team/app:1",
        "registry.invalid:5000/team/app",
        "registry.invalid/team/app:1",
        "REGISTRY.invalid:5000/team/app:1",
        "[::1]:1/team/app:1",
        f"registry.invalid:5000/team/app:1@sha256:{'0' * 64}",
    ],
)
async def test_no_registry_in_a_name_is_the_platforms_fault(client: Client, name: str) -> None:
    with pytest.raises(SandboxError) as refused:
        await client.create(name)
    # That nothing answers there may change: it is not the platform's, and it has a name.
    assert isinstance(refused.value, ImageNotFound | ImagePullFailed | InvalidArgument), refused.value
    assert not refused.value.mask_sample or isinstance(refused.value, ImagePullFailed), refused.value


@pytest.mark.parametrize("name", ["registry.invalid:99999/x:1", "a:b/c:1", "http://registry.invalid/x:1", "x:", "@"])
async def test_what_is_no_name_is_the_callers_fault_at_once(client: Client, name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await client.create(name)
    assert not refused.value.mask_sample
