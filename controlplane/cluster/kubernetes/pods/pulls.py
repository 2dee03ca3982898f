"""Which image a node pulls for a pod, by what its kubelet has said. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.protocol import Pulling

_BEGUN: Final = re.compile(r'Pulling image "([^"]{1,500})"')
# What a kubelet says when a pull is over, however it went.
_OVER: Final = frozenset({"Pulled", "Failed", "BackOff", "Created", "Started", "Killing"})


def pulling(node: str, events: Sequence[Json]) -> Pulling | None:
    """The pull that was begun last and is not over; None: there is none, as far as the events tell.

    Times of events are whole seconds: what is over within the second in which it began is over.

    Args:
        node: the pod's.
        events: all events of the pod; some may be lost, and equal ones are one with a later time.
    """
    begun: dict[str, tuple[int, str]] = {}
    over: dict[str, int] = {}
    for one in events:
        container, at_ms = str((one.get("involvedObject") or {}).get("fieldPath") or ""), _at_ms(one)
        found = _BEGUN.match(str(one.get("message") or ""))
        if one.get("reason") == "Pulling" and found is not None:
            begun[container] = max(begun.get(container, (0, "")), (at_ms, found[1]))
        elif one.get("reason") in _OVER:
            over[container] = max(over.get(container, 0), at_ms)
    left = [told for container, told in begun.items() if told[0] > over.get(container, 0)]
    if not left:
        return None
    since_ms, image = max(left)
    return Pulling(node, image, since_ms)


def _at_ms(event: Json) -> int:
    text = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return 0
