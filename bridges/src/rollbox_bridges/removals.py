"""Removes images that were made of sandboxes, as protocols have it in which a sandbox is gone once it is deleted."""

from __future__ import annotations

from typing import Final

from rollbox import Client, errors

# A sandbox in gVisor needs seconds to end; a client waits for a minute.
_WITHIN_S: Final = 30.0


async def removed(client: Client, name: str) -> bool:
    """Remove an image; the ends of deleted sandboxes that run from it are waited for, 30 s at most.

    Args:
        client: of the image's owner.
        name: as for `Client.remove_image`.

    Returns:
        whether there was one.

    Raises:
        Conflict: something that goes on needs it.
        SandboxError: as `Client.remove_image`.
    """
    try:
        return await client.remove_image(name)
    except errors.Conflict as error:
        if not (ending := await _ending(client, error.details.get("digest", ""))):
            raise
    await client.delete(*ending, wait=True, wait_timeout=_WITHIN_S)
    return await client.remove_image(name)


async def _ending(client: Client, digest: str) -> list[str]:
    """The sandboxes of an image that have an end, and of which something may run yet."""
    there = [one for one in await client.list() if one.end is not None]
    return [one.id for one in there if digest and digest in (one.image_digest, one.image_ran)]
