"""The query of a build: what is to be built, and what is refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rollbox_bridges.docker import fields
from rollbox_bridges.docker.asking import Query
from rollbox_bridges.docker.limits import offline
from rollbox_bridges.docker.references import check_platform, tag_of
from rollbox_bridges.docker.words import Refusal, not_honoured

_DOCKERFILE: Final = "Dockerfile"
KNOWN: Final = frozenset(
    {"dockerfile", "t", "buildargs", "labels", "target", "networkmode", "platform", "q", "version"}
)
# Containers of steps never stay.
HARMLESS: Final = frozenset({"rm", "forcerm", "buildid"})
_LIMITS: Final = "a build has the limits of the installation"
REASONS: Final = {
    **dict.fromkeys(("memory", "memswap", "cpushares", "cpusetcpus", "cpuperiod", "cpuquota", "shmsize"), _LIMITS),
    **dict.fromkeys(("ulimits", "cgroupparent", "isolation"), _LIMITS),
    "remote": "send the context: addresses are not read",
    "nocache": "of the same content an image is built once: change an ARG of it",
    "pull": "a name means what it means to a create: pull it first, where it has moved",
    "cachefrom": "steps that were built are found by themselves",
    "extrahosts": "what a step reaches is a network policy: `rollbox bridge docker --egress`, or network none",
    "squash": "layers stay as they are built",
    "outputs": "an image alone is made",
    "session": "BuildKit is not spoken: set DOCKER_BUILDKIT=0",
}
"""Why a parameter is not honoured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildWish:
    """What a client wants to have built.

    Attributes:
        dockerfile: its path in the context.
        tags: names of the image, as Docker shows them.
        args: values of its ARGs.
        labels: of the image, over those of its Dockerfile.
        target: the stage that is wanted; "": the last one.
        offline: whether its steps reach nothing.
        quiet: whether the id of the image alone is told.
    """

    dockerfile: str = _DOCKERFILE
    tags: tuple[str, ...] = ()
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    offline: bool = False
    quiet: bool = False


def build_of(query: Query) -> BuildWish:
    """Read the query of a build.

    Args:
        query: with `KNOWN`, `HARMLESS` and `REASONS`.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    if query.whole("version", 1) != 1:
        raise not_honoured("version=2", REASONS["session"])
    check_platform(query.text("platform"))
    return BuildWish(
        dockerfile=path_of(query.text("dockerfile") or _DOCKERFILE),
        tags=tuple(dict.fromkeys(tag_of(one) for one in query.texts("t"))),
        args=_args(query.json("buildargs")),
        labels=_labels(query.json("labels"), query.text("target")),
        target=query.text("target"),
        offline=offline(query.text("networkmode")),
        quiet=query.flag("q"),
    )


def path_of(text: str) -> str:
    """Read the path of a Dockerfile in a context, from whose top a slash begins too.

    Raises:
        Refusal: it leads out of the context.
    """
    parts = [one for one in text.split("/") if one not in {"", "."}]
    if not parts or ".." in parts or "\0" in text:
        raise Refusal(400, f"Forbidden path outside the build context: {text[:200]!r}")
    return "/".join(parts)


def _args(value: object) -> dict[str, str]:
    if not isinstance(value, dict | None):
        raise Refusal(400, "buildargs is not an object of texts")
    # One without a value is one that the client's environment has not: the Dockerfile's default holds.
    return fields.texts("buildargs", {name: one for name, one in (value or {}).items() if one is not None})


def _labels(value: object, target: str) -> Mapping[str, str]:
    labels = fields.texts("labels", value)
    if labels and target:
        raise not_honoured("labels of a target", "write LABEL in its stage")
    for name, text in labels.items():
        if not name or set(name + text) & {"\n", "\r", "\0"}:
            raise Refusal(400, f"label {name[:100]!r} has no name, or a line break")
    return labels
