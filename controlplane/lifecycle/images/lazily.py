"""``LazyStarts``: chooses between the plain and the converted copy of an image, and has images converted."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from controlplane.cluster import LazyNodes
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry, Recorded, parse
from controlplane.lifecycle.images.conversion_queue import Conversion
from controlplane.lifecycle.images.conversions import Conversions
from controlplane.lifecycle.images.form_choice import Choice, Known, choose
from controlplane.lifecycle.images.pins import Pin
from controlplane.model import SandboxSpec
from controlplane.telemetry import FullReason, Metrics


class LazyStarts:
    """Chooses whether a start gets the plain or the converted copy of an image of the private registry.

    Args:
        nodes: mount images lazily; None: none does.
        private: the private registry; None: nodes pull images from where they are, as they are.
        conversions: has images converted; None where there is no private registry.
        recorder: says whose recorded copy the starts of an owner, or of a pool, get; empty: nobody's.
        metrics: counts starts by what they got.
    """

    def _takes(self, spec: SandboxSpec) -> bool:
        return self._nodes is not None and self._nodes.takes(spec)

    def _broken(self, digest: str) -> str:
        return "" if self._nodes is None else self._nodes.broken(digest)

    def __init__(
        self,
        nodes: LazyNodes | None,
        private: PrivateRegistry | None,
        conversions: Conversions | None,
        recorder: Callable[[str], str],
        metrics: Metrics,
    ) -> None:
        self._nodes = nodes
        self._private = private
        self._conversions = conversions
        self._recorder = recorder
        self._metrics = metrics

    async def chosen(self, owner: str, spec: SandboxSpec, pin: Pin) -> Pin | Conversion:
        """What a start is given, or what it has to wait for (``converted`` follows then).

        Args:
            owner: whose start it is.
            spec: what its create asks for.
            pin: the plain copy of its image, or the image itself where none is made.

        Raises:
            Problem: unsupported, image_pull_failed: lazy is asked for, and cannot be had.
        """
        if pin.pulled:
            return pin  # on record: another replica has chosen
        if self._conversions is None or self._private is None or not pin.source:
            return self._counted(self._unconverted(spec, pin), "asked" if spec.pull == "full" else "own")
        choice = await self._choice(self._conversions, self._private, owner, spec, pin)
        if choice.form == "estargz" and not choice.digest:
            return self._conversions.awaited(parse(pin.source), owner)
        if choice.convert:
            self._conversions.behind(parse(pin.source), owner)
        return self._counted(self._pinned(pin, choice), choice.reason)

    def converted(self, pin: Pin, digest: str) -> Pin:
        """What a start is given that has waited for the converted copy, which has this digest."""
        return self._counted(self._pinned(pin, Choice("estargz", digest)), "")

    def check_converts(self) -> None:
        """Checks that images are converted here, and that a node mounts what is. Cost: no call.

        Raises:
            Problem: unsupported; it names what would offer it.
        """
        if self._conversions is None or self._private is None:
            detail = "images are not converted here: that takes an installation with a private registry"
            raise Problem("unsupported", detail, value="registry.enabled")
        if not self._takes(SandboxSpec(image=f"{self._private.converted}any", pull="auto")):
            detail = "no conversion would be used: not all nodes mount converted images (lazyPulling.enabled)"
            raise Problem("unsupported", f"{detail} in the chart's values", value="lazyPulling.enabled")

    async def check_recorded(self, owner: str) -> None:
        """Checks that an owner may have one more recorded copy, before anything is done for it.

        Raises:
            Problem: quota_exceeded; why nobody knows.
        """
        if self._conversions is not None:
            await self._conversions.check_recorded(owner)

    async def conversion(self, owner: str, pin: Pin, first: Sequence[str] = ()) -> Conversion | Pin:
        """The conversion of an image whose plain copy is there; the converted copy where it is offered already.

        Args:
            owner: who waits for it.
            pin: the plain copy.
            first: makes it a recorded copy, of this owner alone: the paths of files that nodes fetch before all others.

        Raises:
            Problem: unsupported: the image is not converted; image_pull_failed: no registry says its digest.
        """
        self.check_converts()
        if self._conversions is None or not pin.source:
            raise _no_copy(pin)
        if first:
            return self._conversions.recorded(parse(pin.source), owner, Recorded.of(owner, first))
        known = await self._conversions.known(parse(pin.source))
        if known.state == "offered":
            return self._pinned(pin, Choice("estargz", known.digest))
        return self._conversions.awaited(parse(pin.source), owner, again=True)

    def made(self, owner: str, image: str) -> None:
        """Has a commit that was made just now converted for its first start, where nodes mount converted images.

        Args:
            owner: whose image it is.
            image: its name, with its digest.
        """
        if self._conversions is None or self._private is None or not self._private.converts(parse(image)):
            return
        if self._takes(SandboxSpec(image=f"{self._private.converted}any", pull="auto")):
            self._conversions.behind(parse(image), owner)

    def broke(self, owner: str, pin: Pin, why: str) -> None:
        """Takes in that a start of an owner has failed for its image; of a converted copy the next ones get another."""
        if self._conversions is not None and pin.source and pin.pulled == "lazy":
            self._conversions.broke(parse(pin.source), self._recorder(owner), pin.ran, f"a start from it failed: {why}")

    def fallen_back(self, plain: Pin, why: str) -> Pin:
        """The plain copy, for a start that did not get ready from the converted one."""
        return self._counted(replace(plain, pulled="full", pulled_why=why), "fallback")

    def pinned(self, pin: Pin, digest: str) -> Pin:
        """The converted copy of an image, which has this digest."""
        return self._pinned(pin, Choice("estargz", digest))

    async def ahead(self, owner: str, spec: SandboxSpec, pin: Pin) -> Pin:
        """What an owner's start would be given now, which waits for nothing; nothing is counted or converted."""
        if self._conversions is None or self._private is None or not pin.source:
            return pin
        return self._pinned(pin, await self._choice(self._conversions, self._private, owner, spec, pin))

    async def _choice(
        self, conversions: Conversions, private: PrivateRegistry, owner: str, spec: SandboxSpec, pin: Pin
    ) -> Choice:
        able = self._takes(spec.model_copy(update={"image": f"{private.converted}any"}))
        known = Known("unknown")
        if able and spec.pull != "full":
            known = await self._known(conversions, owner, pin)
        if known.state == "offered" and spec.pull == "auto" and (why := self._broken(known.digest)):
            known = Known("failed", why=f"files in it could not be read {why}")
        choice = choose(spec.pull, known, able=able)
        if choice.reason == "nodes" and (trouble := (self._nodes.trouble if self._nodes is not None else "")):
            return replace(choice, reason="snapshotter", why=trouble)
        return choice

    async def _known(self, conversions: Conversions, owner: str, pin: Pin) -> Known:
        """The recorded copy that is meant for an owner where there is one that works, else the copy of all owners."""
        source = parse(pin.source)
        if not (recorder := self._recorder(owner)):
            return await conversions.known(source)
        own, common = await asyncio.gather(conversions.known(source, recorder), conversions.known(source))
        if own.state != "offered" or self._broken(own.digest):
            return common
        return replace(own, recorded_by=recorder)

    def _unconverted(self, spec: SandboxSpec, pin: Pin) -> Pin:
        """An image that is not copied: nodes mount it as it is, or fetch it."""
        lazily = self._takes(spec.model_copy(update={"image": pin.name}))
        if spec.pull == "lazy" and not lazily and self._private is not None:
            raise _no_copy(pin)
        return replace(pin, pulled="lazy" if lazily else "full")

    def _counted(self, pin: Pin, reason: FullReason) -> Pin:
        self._metrics.image_pulled("lazy" if pin.pulled == "lazy" else "full", reason if pin.pulled == "full" else "")
        return pin

    def _pinned(self, pin: Pin, choice: Choice) -> Pin:
        if choice.form == "plain" or self._private is None:
            return replace(pin, pulled="full", pulled_why=choice.why)
        name = self._private.copy(parse(pin.source), choice.digest, "estargz")
        return replace(pin, name=name, ran=choice.digest, pulled="lazy", pulled_why=choice.why)


def _no_copy(pin: Pin) -> Problem:
    if parse(pin.name).digest:
        detail = f"pull lazy: {pin.name} is a checkpoint, which is not converted: pull it auto or full"
        return Problem("unsupported", detail, option="pull")
    return Problem("image_pull_failed", f"pull lazy: {pin.name} is not converted, since no registry says its digest")
