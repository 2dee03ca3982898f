"""Images that are pulled, built or converted, told step by step, without `await`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Unpack

from rollbox.build import BuildOptions
from rollbox.conversion import ConvertOptions
from rollbox.image import BuildProgress, ConversionProgress, PrefetchProgress, PrefetchReport
from rollbox.sync.inner import ClientOwner
from rollbox.sync.loop_thread import Iteration


class Prefetch:
    """As `rollbox.Prefetch`, for its progress.

        for progress in Prefetch(client, images):
            print(progress.image, progress.node, progress.state)

    Nothing is sent before it is iterated. `Client.prefetch` waits for the end.
    """

    def __init__(self, client: ClientOwner, images: str | Iterable[str], nodes: int | None = None) -> None:
        """Check the arguments, which are those of `rollbox.Client.prefetch`."""
        self.inner = client.inner.prefetch(images, nodes=nodes)

    @property
    def report(self) -> PrefetchReport:
        """What is final so far."""
        return self.inner.report

    def __iter__(self) -> Iteration[PrefetchProgress]:
        return Iteration(aiter(self.inner))


class Conversion:
    """As `rollbox.Conversion`, for its progress.

        for progress in Conversion(client, image):
            print(progress.state, progress.text)

    Nothing is sent before it is iterated. `Client.convert` waits for the end.
    """

    def __init__(self, client: ClientOwner, image: str, **options: Unpack[ConvertOptions]) -> None:
        """Check the arguments, which are those of `rollbox.Client.convert`."""
        self.inner = client.inner.convert(image, **options)

    def __iter__(self) -> Iteration[ConversionProgress]:
        return Iteration(aiter(self.inner))


class Build:
    """As `rollbox.Build`, for its progress.

        for progress in Build(client, "task/environment"):
            print(progress.text, end="")

    Nothing is read or sent before it is iterated. `Client.build` waits for the image.
    """

    def __init__(self, client: ClientOwner, folder: str | os.PathLike[str], **options: Unpack[BuildOptions]) -> None:
        """Check the arguments, which are those of `rollbox.Client.build`."""
        self.inner = client.inner.build(folder, **options)

    def __iter__(self) -> Iteration[BuildProgress]:
        return Iteration(aiter(self.inner))
