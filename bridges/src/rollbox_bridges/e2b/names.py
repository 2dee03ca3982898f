"""Names of templates: an image of an owner that has the name, for each tag one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from rollbox import Client, Commit, errors
from rollbox_bridges.e2b.words import Refusal

DEFAULT_TAG: Final = "default"
"""What a name without a tag means."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,126}")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,126}")
# For the sandbox that only gives its image another name.
_NAMING_S: Final = 600
# The name that images have which are built of Dockerfiles.
_BUILT: Final = "builds"


def parts(text: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    """Read NAME or NAME:TAG.

    Raises:
        Refusal: it is neither.
    """
    name, colon, tag = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not _NAME.fullmatch(name) or name == _BUILT or (colon and not _TAG.fullmatch(tag)):
        raise Refusal(400, f"{text!r} is not NAME or NAME:TAG of a template: a-z, 0-9, _ and - are in its name")
    return name, tag or DEFAULT_TAG


def tags_of(given: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Read a list of tags.

    Raises:
        Refusal: it is none.
    """
    if not isinstance(given, list) or not all(isinstance(one, str) and _TAG.fullmatch(one) for one in given):
        raise Refusal(400, f"tags {given!r} is not a list of tags")
    return given


def is_name(text: str) -> bool:
    """Whether a text can be the name of a template that was built here."""
    name, colon, tag = text.partition(":")
    return bool(_NAME.fullmatch(name) and (not colon or _TAG.fullmatch(tag)))


def name_of(commit: Commit) -> str:
    """The name of an image without where it is, its tag and its digest."""
    return commit.image.partition("@")[0].rpartition("/")[2].partition(":")[0]


async def named(client: Client) -> list[Commit]:
    """All images of an owner that have names; none where the installation makes none."""
    try:
        made = (await client.commits()).images
    except errors.Unsupported:
        return []
    return [one for one in made if one.tags and one.expires_at_ms is None and name_of(one) != _BUILT]


async def find(client: Client, text: str) -> Commit | None:
    """The image that a name of a template means; None: there is none."""
    if not is_name(text):
        return None
    name, tag = parts(text)
    return next((one for one in await named(client) if name_of(one) == name and tag in one.tags), None)


async def give(client: Client, image: str, name: str, tags: Sequence[str]) -> None:
    """Give an image a name for each tag: by a sandbox of it that nothing is done with.

    Raises:
        SandboxError: as `Client.create` and `Sandbox.commit`.
    """
    sandbox = await client.create(image, ttl=_NAMING_S, lease=None, egress="offline", labels={"e2b/naming": name})
    try:
        for tag in tags:
            await sandbox.commit(f"{name}:{tag}")
    finally:
        await client.delete(sandbox.id)
