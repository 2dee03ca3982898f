"""What whoever asks registries answers: the real client, and the fake one of the lifecycle's tests, pass this suite."""

from typing import Protocol

import pytest

from controlplane.errors import Problem
from controlplane.images import DIGEST, Reference, Registry
from controlplane.registry import RegistryProblem


class Ground(Protocol):
    """A registry and how images come into it."""

    @property
    def registry(self) -> Registry:
        """Who is asked."""
        ...

    def name(self, repository: str) -> Reference:
        """The tag `1` of a repository there; nothing is pushed."""
        ...

    async def push(self, reference: Reference, mark: str) -> str:
        """Lets the tag be an image for amd64, another one for another `mark`; its digest."""
        ...

    async def push_foreign(self, reference: Reference) -> str:
        """Lets the tag be an image that amd64 cannot run; its digest."""
        ...


class RegistrySuite:
    """The conformance suite."""

    async def test_a_tag_has_the_digest_that_was_pushed_last(self, ground: Ground) -> None:
        reference = ground.name("team/moved")
        digests = []
        for mark in ("a", "b"):
            digests.append(await ground.push(reference, mark))
            assert await ground.registry.digest(reference) == digests[-1]
            await ground.registry.check(reference, digests[-1], {"amd64"})
        assert digests[0] != digests[1]
        assert all(DIGEST.fullmatch(one) for one in digests)

    async def test_an_image_says_what_its_processes_are(self, ground: Ground) -> None:
        reference = ground.name("team/says")
        digest = await ground.push(reference, "program")
        for asked in (digest, ""):
            said = await ground.registry.config(reference, asked, {"amd64"})
            assert (said.digest, said.cmd, said.architecture) == (digest, ("program",), "amd64")

    async def test_what_is_not_there_is_absent(self, ground: Ground) -> None:
        reference = ground.name("none")
        with pytest.raises(RegistryProblem) as caught:
            await ground.registry.digest(reference)
        assert (caught.value.outcome, caught.value.code) == ("absent", "image_not_found")
        assert (caught.value.registry, caught.value.pause_s) == (reference.registry, None)

    async def test_what_cannot_run_is_refused_by_the_option(self, ground: Ground) -> None:
        reference = ground.name("foreign")
        digest = await ground.push_foreign(reference)
        assert await ground.registry.digest(reference) == digest
        with pytest.raises(Problem, match="cannot run here") as caught:
            await ground.registry.check(reference, digest, {"amd64"})
        assert (caught.value.code, caught.value.details["option"]) == ("unsupported", "image")
