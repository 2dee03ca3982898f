"""A pool's template as the options of a create that its sandboxes serve. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rollbox import CreateOptions, Pool
from rollbox_bridges.e2b.words import unsupported

_SAME: Final = {"gpu": "gpu", "node_selector": "node_selector", "pull": "pull", "network": "network"}
_RENAMED: Final = {"pids_limit": "pids", "disk_bytes": "disk"}
_READ: Final = frozenset({"image", "cpu_millicores", "memory_bytes", *_SAME, *_RENAMED})


def options_of(pool: Pool) -> CreateOptions:
    """The options by which a create is served by a pool.

    Raises:
        Refusal: its template has what cannot be said by them here.
    """
    template = pool.template
    if more := [name for name, value in template.items() if name not in _READ and value]:
        raise unsupported(f"the pool {pool.name!r}, whose template has {', '.join(sorted(more))},")
    made: Any = {
        "cpu": _range(template["cpu_millicores"], 1000),
        "memory": _range(template["memory_bytes"]),
    }
    for name, option in (_SAME | _RENAMED).items():
        if template.get(name):
            made[option] = template[name]
    options: CreateOptions = made
    return options


def _range(given: Mapping[str, Any], unit: int = 1) -> float | tuple[float, float]:
    limit, request = given["limit"], given.get("request")
    scaled = limit / unit if unit > 1 else limit
    return scaled if request is None else (request / unit if unit > 1 else request, scaled)
