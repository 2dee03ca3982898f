"""``KeptImages``: the images that were made of sandboxes, as the engine has them."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog

from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit.names import COMMITS, is_kept, layer_bytes
from controlplane.cluster.engine.listing import listed
from controlplane.cluster.protocol import CommittedImage
from controlplane.errors import Problem
from controlplane.images import Checkpoint, built_on, parse

Told = Mapping[str, Any]


class KeptImages:
    """Lists and removes them."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._layers: dict[str, tuple[str, ...]] = {}  # by digest; they never change
        self._log = structlog.get_logger("commits")

    async def below(self, folder: str) -> Sequence[CommittedImage]:
        """See ``KeptImages.below``. Cost: a call, and one for each image that was not asked for before."""
        every = await listed(self._client)
        there = {str(one["Id"]) for one in every}
        self._layers = {digest: known for digest, known in self._layers.items() if digest in there}
        found = [one for one in every if _below(folder, one)]
        layers = {str(one["Id"]): await self._layers_of(str(one["Id"])) for one in found}
        below = built_on(layers, {str(one["Id"]) for one in found if layer_bytes(one.get("RepoTags") or ()) == 0})
        return [_image(folder, one, below[str(one["Id"])]) for one in found]

    async def expired(self, before_ms: int) -> Sequence[CommittedImage]:
        """See ``KeptImages.expired``. Cost: as ``below``."""
        # Also those of installations that are gone: their time is over whoever has made them.
        every = await self.below(COMMITS)
        known = ((one, Checkpoint.among(_place(one.name), one.name, one.tags)) for one in every)
        return [image for image, one in known if one is not None and one.expires_at_ms <= before_ms]

    async def digest(self, name: str) -> str:
        """See ``KeptImages.digest``."""
        try:
            seen: Told = await self._client.call("GET", f"images/{name}/json")
        except Missing:
            return ""
        return str(seen["Id"]) if name in (seen.get("RepoTags") or ()) else ""

    async def remove(self, image: CommittedImage) -> None:
        """See ``KeptImages.remove``."""
        try:
            seen: Told = await self._client.call("GET", f"images/{image.digest}/json")
        except Missing:
            return
        names = [one for one in seen.get("RepoTags") or () if parse(one).name == image.name]
        await self._check_unused(image)
        # The kept name says which owner the image belongs to and is removed last: no quota counts an image without it.
        names.sort(key=is_kept)
        for position, name in enumerate(names):
            try:
                await self._client.call("DELETE", f"images/{name}")
            except Missing:
                continue
            except Problem as problem:
                await self._name_again(name, names[:position])
                if problem.details.get("engine_status") == str(HTTPStatus.CONFLICT.value):
                    raise _used(image, "a container was made of it a moment ago") from problem
                raise

    async def _layers_of(self, digest: str) -> tuple[str, ...]:
        if digest not in self._layers:
            try:
                seen: Told = await self._client.call("GET", f"images/{digest}/json")
            except Missing:
                return ()  # it was removed meanwhile
            self._layers[digest] = tuple((seen.get("RootFS") or {}).get("Layers") or ())
        return self._layers[digest]

    async def _check_unused(self, image: CommittedImage) -> None:
        # Not by the filter `ancestor`, which Docker also fulfils with images that are built on it.
        digits = image.digest.rpartition(":")[2]
        containers = await self._client.call("GET", "containers/json", {"all": True}) or ()
        users = [one for one in containers if str(one.get("ImageID")).rpartition(":")[2] == digits]
        if users:
            names = sorted(str((one.get("Names") or ["?"])[0]).removeprefix("/") for one in users)
            raise _used(image, f"{len(users)} containers are made of it: {', '.join(names[:3])}")

    async def _name_again(self, left: str, gone: Iterable[str]) -> None:
        for name in gone:
            reference = parse(name)
            try:
                await self._client.call("POST", f"images/{left}/tag", {"repo": reference.name, "tag": reference.tag})
            except Problem as problem:
                self._log.warning("an image has lost a name", image=left, name=name, detail=problem.detail)


def _place(name: str) -> str:
    return f"{COMMITS}/{name.removeprefix(f'{COMMITS}/').partition('/')[0]}"


def _below(folder: str, told: Told) -> bool:
    return any(name.startswith(f"{folder}/") for name in told.get("RepoTags") or ())


def _image(folder: str, told: Told, below: Sequence[str]) -> CommittedImage:
    names = [name for name in told.get("RepoTags") or () if name.startswith(f"{folder}/")]
    references = [parse(name) for name in names]
    size = layer_bytes(names)
    return CommittedImage(
        name=min(one.name for one in references),
        tags=sorted(one.tag for one, name in zip(references, names, strict=True) if not is_kept(name)),
        digest=str(told["Id"]),
        # Of one that somebody has taken that name from: with what is below its own layer.
        size_bytes=int(told.get("Size") or 0) if size is None else size,
        created_at_ms=int(told.get("Created") or 0) * 1000,
        built_on=below,
    )


def _used(image: CommittedImage, why: str) -> Problem:
    return Problem("conflict", f"{image.name}@{image.digest} is in use: {why}", image=image.name)
