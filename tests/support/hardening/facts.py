"""The rows of each table, as the manifests give them, without the cell that says why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from tests.support.hardening import containers, rendered, rights, security_levels, ways
from tests.support.helm import render

Json = dict[str, Any]
Cells = tuple[str, ...]
LEVELS_HEAD: Final = ("namespace", "with", "Pod Security level", "why")
LEVELS: Final = ("restricted", "baseline", "privileged")
OWN: Final = ("registry.enabled=true", "registry.addresses[0]=192.0.2.1")
BRIDGES: Final = tuple(f"bridges.{one}.enabled=true" for one in ("e2b", "prime", "fusion"))
CACHE: Final = ("egress.enabled=true", "egress.packages.enabled=true")
# What asks more of the release's namespace than the rest, each alone.
INSTALLED: Final[Mapping[str, tuple[str, ...]]] = {
    "the defaults": (),
    "egress, package cache, bridges, packing": (*CACHE, *BRIDGES, "packing.enabled=true"),
    "a registry of yours, with its mirror": ("registry.enabled=true", *rendered.EXTERNAL),
    "the chart's own registry": OWN,
    "node agents": ("nodeAgent.enabled=true",),
    "node agents and the installer": ("nodeAgent.enabled=true", "nodeAgent.installer.enabled=true"),
    "peers": (*OWN, "registry.peers.enabled=true", "nodeAgent.enabled=true"),
}


@cache
def of_containers() -> list[Cells]:
    """Each container. Cost: ten seconds, once, as of the others."""
    forms: dict[str, list[tuple[Json, Json]]] = {}
    for part, _, pod in rendered.everything():
        for one in containers.containers(pod):
            forms.setdefault(f"{part.removesuffix('-direct')}: {one['name']}", []).append((pod, one))
    return [containers.row(name, seen) for name, seen in sorted(forms.items(), key=lambda one: _order(one[0]))]


@cache
def of_ways() -> list[Cells]:
    """Each pod."""
    forms: dict[str, list[tuple[str, Json, list[Json]]]] = {}
    for name in rendered.VARIANTS:
        for part, pod in rendered.of_chart(rendered.variant(name)):
            forms.setdefault(part, []).append((rendered.RELEASE, pod, rendered.variant(name)))
    for part, namespace, pod in rendered.made_by_programs():
        forms.setdefault(part, []).append((namespace, pod, rendered.variant("everything")))
    return [ways.row(name, seen) for name, seen in sorted(forms.items(), key=lambda one: _order(one[0]))]


@cache
def of_rights() -> list[Cells]:
    """Each right of each account."""
    return rights.rows(rendered.variant(name) for name in rendered.VARIANTS)


@cache
def of_levels() -> list[Cells]:
    """The strictest level that each namespace can have. Cost: five seconds, once."""
    found: list[Cells] = [("release", name, _strictest(_pods(values))) for name, values in INSTALLED.items()]
    made: dict[str, list[Json]] = {}
    for _, namespace, pod in rendered.made_by_programs():
        made.setdefault(namespace, []).append(pod)
    found.append(("sandboxes", "sandboxes and builds", _strictest(made[rendered.SANDBOXES])))
    found.append(("`rollbox-doctor-*`", "a check before an install", _strictest(made["rollbox-doctor-1"])))
    return found


def _pods(values: Sequence[str]) -> Iterator[Json]:
    yield from (pod for _, pod in rendered.of_chart(render(*values)))


def _strictest(pods: Iterator[Json] | list[Json]) -> str:
    return max((security_levels.level(pod) for pod in pods), key=LEVELS.index)


def _order(name: str) -> tuple[int, str]:
    """Sandboxes first, then what always runs, what may run on nodes and beside, and what checks."""
    groups = ("sandbox", "builder"), ("gateway", "controlplane", "operator", "redis", "dns"), ("egress", "packages")
    last = ("preflight", "test", "teardown", "doctor")
    part = name.partition(":")[0]
    places = [at for at, group in enumerate(groups) for one in group if part.startswith(one)]
    place = places[0] if places else len(groups) + (1 if part.startswith(last) else 0)
    within = next((f"{at}" for group in groups for at, one in enumerate(group) if part.startswith(one)), "")
    return place, within + name
