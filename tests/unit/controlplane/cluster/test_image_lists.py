"""The engine's list of images, while others remove some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from controlplane.cluster.engine import listing
from controlplane.cluster.engine.client import EngineClient
from controlplane.errors import Problem

# As Podman 4.3.1 says it.
REFUSED = 'the engine refused images/json: checking if image "ef5c" is dangling: '
GONE = (f"{REFUSED}7bb4: image not known", f'{REFUSED}locating item named "manifest" for image with ID "7bb4"')
IMAGES = [{"Id": "1"}]


class Engine:
    """Answers with these, one after the other; a text is a refusal."""

    def __init__(self, *answers: Sequence[Any] | str) -> None:
        self.left = list(answers)

    async def call(self, method: str, path: str, query: Any) -> Any:
        assert (method, path, query) == ("GET", "images/json", None)
        answer = self.left.pop(0)
        if isinstance(answer, str):
            raise Problem("internal", answer)
        return answer


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LIST_AGAIN_S", 0)


@pytest.mark.parametrize("said", GONE)
async def test_a_list_in_which_an_image_goes_is_asked_for_again(said: str) -> None:
    assert await listing.listed(cast("EngineClient", Engine(said, said, IMAGES))) == IMAGES
    always = Engine(*[said] * listing.LISTS, IMAGES)
    with pytest.raises(Problem):
        await listing.listed(cast("EngineClient", always))
    assert always.left == [IMAGES]


async def test_another_refusal_is_told_at_once() -> None:
    engine = Engine("the engine refused images/json: database is locked", IMAGES)
    with pytest.raises(Problem, match="locked"):
        await listing.listed(cast("EngineClient", engine))
    assert engine.left == [IMAGES]
