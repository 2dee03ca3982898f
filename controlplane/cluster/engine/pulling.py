"""How far a pull is, from the lines in which engines tell it. Pure."""

from collections.abc import Mapping
from typing import Any

# Of one image: they come from a registry's manifest.
MOST_LAYERS = 1024


class PullMeter:
    """Adds up what is known of an image's layers."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}

    @property
    def done_bytes(self) -> int:
        """What has come of layers of which the size is known."""
        return sum(done for done, _ in self._layers.values())

    @property
    def total_bytes(self) -> int | None:
        """The sizes of the layers that have begun; None: none is known."""
        return sum(total for _, total in self._layers.values()) or None

    def take(self, line: Mapping[str, Any]) -> None:
        """Takes in a line of the engine's."""
        layer, detail = str(line.get("id") or ""), line.get("progressDetail") or {}
        status = str(line.get("status") or "")
        if not layer or (layer not in self._layers and len(self._layers) >= MOST_LAYERS):
            return
        before, total = self._layers.get(layer, (0, 0))
        if status.startswith("Downloading") and detail.get("total"):
            # Engines tell some lines late, and none of them takes bytes back.
            total = int(detail["total"])
            self._layers[layer] = (min(max(before, int(detail.get("current") or 0)), total), total)
        elif total and status.startswith(("Download complete", "Verifying", "Extracting", "Pull complete")):
            self._layers[layer] = (total, total)
