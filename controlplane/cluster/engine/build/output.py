"""What the engine's builder says: words for the caller, the images that it has made on the way, how it has ended."""

import re
from collections.abc import Mapping
from typing import Any, Final

from controlplane.cluster.dockerfiles.bounds import Log
from controlplane.errors import Problem

MOST_WORDS: Final = 600
# After a step that was not in the cache. A RUN can say the same: what has a name is never removed by it.
_STEP: Final = re.compile(r"^--> ([0-9a-f]{11,64})$", re.M)
_OF_A_STEP: Final = "building at STEP"
_NO_ROOM: Final = "no space left"


class Output:
    """Reads the lines of one build.

    Attributes:
        steps: ids of images that may be its own, oldest first.
        image: the id of the result; empty: there is none.
    """

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.image = ""
        self._error = ""
        self._log = Log()

    @property
    def failed_by_itself(self) -> bool:
        """The builder has failed, and no step of the Dockerfile: steps that it had found may have been removed."""
        return bool(self._error) and _OF_A_STEP not in self._error and _NO_ROOM not in self._error.lower()

    def again(self) -> None:
        """Forgets how the builder has ended: it begins once more."""
        self.image = self._error = ""

    def take(self, line: Mapping[str, Any]) -> str:
        """The words of a line for the caller; empty: none."""
        if aux := line.get("aux"):
            self.image = str(aux.get("ID", "")).removeprefix("sha256:")
            return ""
        if error := line.get("error"):
            self._error = str(error).strip()
            return ""
        text = str(line.get("stream", ""))
        self.steps += _STEP.findall(text)
        return self._log.bounded(text)

    def check(self) -> None:
        """Raises why there is no image.

        Raises:
            Problem: build_failed, capacity_unavailable; internal: by no fault of the Dockerfile's.
        """
        if self.image and not self._error:
            return
        why = self._error[:MOST_WORDS] or "the builder has ended without a word"
        if _NO_ROOM in why.lower():
            raise Problem("capacity_unavailable", f"no image was built, the machine has no room: {why}")
        if _OF_A_STEP not in why:
            # Of the engine's store, for example, where many images come and go.
            raise Problem("internal", f"no image was built, the engine's builder has failed: {why}")
        raise Problem("build_failed", f"no image was built: {why}")
