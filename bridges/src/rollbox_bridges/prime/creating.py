"""A create, from Prime's body to the options of rollbox; what cannot be honoured is refused. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rollbox import CreateOptions, EgressPolicy
from rollbox_bridges.prime import labels
from rollbox_bridges.prime.network import policy_of
from rollbox_bridges.prime.settings import ARCH_LABEL, Settings
from rollbox_bridges.prime.words import Refusal, unsupported

_GIB: Final = 2**30
_MINUTE_S: Final = 60
_DEFAULT_MINUTES: Final = 60
_MOST_MINUTES: Final = 7 * 24 * 60
_NO_LIMIT: Final = -1
# Every client sends it unless it is told another one: it asks for what the installation gives by itself.
_DISK_BY_ITSELF: Final = 5.0
_MOST_START_S: Final = 600.0
_MOST_TEXT: Final = 512
_MOST_GPUS: Final = 256
# What the older clients send where nothing is to run.
_NOTHING_RUNS: Final = (None, "", "tail -f /dev/null")
# What clients may send, with the values that ask for nothing.
_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = {
    "advanced_configs": (None, {}),
    "volumes": (None, []),
    "registry_credentials_id": (None,),
}
_TAKEN: Final = frozenset(
    [
        "name",
        "docker_image",
        "checkpoint_id",
        "arch",
        "start_command",
        "cpu_cores",
        "memory_gb",
        "disk_size_gb",
        "gpu_count",
        "gpu_type",
        "network_allowlist",
        "network_denylist",
        "network_access",
        "timeout_minutes",
        "idle_timeout_minutes",
        "environment_vars",
        "secrets",
        "labels",
        "team_id",
        "region",
        "vm",
        "guaranteed",
        "idempotency_key",
    ]
)
_INSTEAD: Final = {
    "volumes": "Mount data sets in a pool's template, or upload files.",
    "registry_credentials_id": "The installation has credentials of registries of its own.",
    "advanced_configs": "Leave it out.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client wants to have created.

    Attributes:
        image: its name; None: it is made of a checkpoint.
        checkpoint: the id of that.
        key: the idempotency key.
        digest: of the whole body: the same key with another one is refused.
        start: what is to run in it from its start: the words of a command, or a text for the shell; None: nothing.
        options: of the create.
    """

    image: str | None
    checkpoint: str | None
    key: str
    digest: str
    start: str | Sequence[str] | None = None
    options: CreateOptions = field(default_factory=CreateOptions, repr=False)

    def of_image(self, image: str) -> Wish:
        """The same of an image, which the checkpoint is."""
        return replace(self, image=image, checkpoint=None)


def wish_of(body: Mapping[str, Any], settings: Settings) -> Wish:
    """Read the body of a create.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    _refuse(body)
    image, checkpoint = _text(body, "docker_image"), _text(body, "checkpoint_id")
    if (image is None) == (checkpoint is None):
        raise Refusal(400, "there is to be a docker_image or a checkpoint_id, and not both")
    key = _text(body, "idempotency_key")
    if key is None:
        raise Refusal(400, "there is no idempotency_key, without which a repeated create would make two sandboxes")
    return Wish(
        image=settings.images.get(image or "", image),
        checkpoint=checkpoint,
        key=key,
        digest=hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(),
        start=_start(body.get("start_command")),
        options=_options(body, key, settings),
    )


def _options(body: Mapping[str, Any], key: str, settings: Settings) -> CreateOptions:
    options: CreateOptions = {
        "labels": _labels(body, key, settings),
        "env": {**_variables(body, "environment_vars"), **_variables(body, "secrets")},
        "ttl": float(_minutes(body) * _MINUTE_S),
        "idle_timeout": _idle(body),
        "lease": None,
        "egress": _egress(body, settings),
        "start_timeout": _MOST_START_S,
        "idempotency_key": f"prime-{hashlib.sha256(key.encode()).hexdigest()[:40]}",
        "node_selector": _nodes(body, settings) or None,
        "gpu": _count(body, "gpu_count"),
    }
    whole = _flag(body, "guaranteed")
    if (cpu := _number(body, "cpu_cores")) is not None:
        options["cpu"] = (cpu, cpu) if whole else cpu
    if (memory := _number(body, "memory_gb")) is not None:
        size = int(memory * _GIB)
        options["memory"] = (size, size) if whole else size
    if (disk := _number(body, "disk_size_gb")) not in {None, _DISK_BY_ITSELF}:
        options["disk"] = int((disk or 0) * _GIB)
    return options


def _labels(body: Mapping[str, Any], key: str, settings: Settings) -> dict[str, str]:
    given = body.get("labels")
    if given is not None and not isinstance(given, list):
        raise Refusal(400, "labels is not a list of texts")
    found = {labels.NAME: labels.text("name", body.get("name")), **labels.of_key(key), **labels.of_labels(given or ())}
    for name, label in (("team_id", labels.TEAM), ("region", labels.REGION), ("gpu_type", labels.GPU_TYPE)):
        if body.get(name) is not None:
            found[label] = labels.text(name, body[name])
    if _flag(body, "vm"):
        found[labels.VM] = "true"
    if (image := _text(body, "docker_image")) in settings.images:
        found[labels.IMAGE] = labels.text("docker_image", image)
    return found


def _nodes(body: Mapping[str, Any], settings: Settings) -> dict[str, str]:
    """What nodes a sandbox is for."""
    found = {}
    arch, region, gpu = (_text(body, name) for name in ("arch", "region", "gpu_type"))
    if arch is not None and arch != settings.arch:
        found[ARCH_LABEL] = arch
    if region is not None:
        found[settings.region_label] = region
    if gpu is not None:
        if settings.gpu_label is None:
            raise unsupported(f"gpu_type = {gpu!r}", "The operator says by --gpu-label which label of nodes it is.")
        found[settings.gpu_label] = gpu
    return found


def _egress(body: Mapping[str, Any], settings: Settings) -> str | EgressPolicy | None:
    policy = policy_of(body.get("network_allowlist"), body.get("network_denylist"))
    if _flag(body, "network_access") is False:
        return "offline"
    return settings.egress if policy is None else "offline" if policy.mode == "none" else policy


def _minutes(body: Mapping[str, Any]) -> int:
    minutes = body.get("timeout_minutes", _DEFAULT_MINUTES)
    if minutes == _NO_LIMIT:
        return _MOST_MINUTES
    if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes < 2**31:
        raise Refusal(400, f"timeout_minutes {minutes!r} is neither -1 nor a number from 1 on")
    # Some clients mean no limit by months; the answer says what it is.
    return min(minutes, _MOST_MINUTES)


def _idle(body: Mapping[str, Any]) -> float | None:
    minutes = body.get("idle_timeout_minutes")
    if minutes is None:
        return None
    if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes <= _MOST_MINUTES:
        raise Refusal(400, f"idle_timeout_minutes {minutes!r} is not 1 to {_MOST_MINUTES}")
    return float(minutes * _MINUTE_S)


def _start(given: Any) -> str | Sequence[str] | None:  # noqa: ANN401 - JSON
    if given in _NOTHING_RUNS:
        return None
    if isinstance(given, str):
        return given
    if not isinstance(given, dict) or given.keys() - {"executable", "args"}:
        raise Refusal(400, "start_command is neither text nor an object of executable and args")
    executable, args = given.get("executable"), given.get("args") or []
    if not isinstance(args, list) or not all(isinstance(word, str) for word in [executable, *args]) or not executable:
        raise Refusal(400, "start_command has no executable, or args that are no texts")
    return [executable, *args]


def _refuse(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if name in _TAKEN:
            continue
        if name not in _NOTHING:
            raise Refusal(400, f"the field {name!r} is not known here, and would be ignored", "invalid_argument")
        if value not in _NOTHING[name]:
            raise unsupported(f"{name} = {value!r}", _INSTEAD[name])


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or not 1 <= len(value) <= _MOST_TEXT):
        raise Refusal(400, f"{name} {value!r} is not text of 1 to {_MOST_TEXT} characters")
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refusal(400, f"{name} {value!r} is neither true nor false")
    return value


def _number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**20:
        raise Refusal(400, f"{name} {value!r} is not a number above 0")
    return float(value)


def _count(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_GPUS:
        raise Refusal(400, f"{name} {value!r} is not a number from 0 on")
    return value


def _variables(body: Mapping[str, Any], name: str) -> dict[str, str]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise Refusal(400, f"{name} is not an object of texts")
    return dict(value)
