"""What a Prometheus of the tests is to scrape: the pods of a namespace whose annotations say so.

python -m tests.observability.live.discovery NAMESPACE FILE    # writes the file every two seconds, until it is ended
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.layout import MOUNTS_METRICS, SNAPSHOTTER_METRICS
from tests.support.installed import objects

# A control plane waits five seconds for a store that does not answer: a shorter scrape would miss what it says of that.
PATIENT = {"__scrape_interval__": "6s", "__scrape_timeout__": "6s"}
SNAPSHOTTER = (SNAPSHOTTER_METRICS, MOUNTS_METRICS)


def _target(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a pod's annotations say, with the labels that discovery in Kubernetes gives; None: it is not scraped."""
    said, address = pod["metadata"].get("annotations", {}), pod["status"].get("podIP")
    if said.get("prometheus.io/scrape") != "true" or address is None:
        return None
    labels = {
        "__metrics_path__": said["prometheus.io/path"],
        "namespace": pod["metadata"]["namespace"],
        "pod": pod["metadata"]["name"],
    }
    if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "controlplane":
        labels |= PATIENT
    return {"targets": [f"{address}:{said['prometheus.io/port']}"], "labels": labels}


async def discover(namespace: str, targets: Path) -> None:
    """Writes what is to be scraped, without end."""
    while True:
        pods = await objects("pods", "-n", namespace)
        found = [one for pod in pods if (one := _target(pod)) is not None]
        # What mounts images lazily is no pod: a Prometheus finds it as other services of nodes.
        found.append({"targets": [*SNAPSHOTTER], "labels": {"namespace": namespace}})
        new = targets.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(targets)
        await asyncio.sleep(2)


if __name__ == "__main__":
    asyncio.run(discover(sys.argv[1], Path(sys.argv[2])))
