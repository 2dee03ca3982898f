"""What a compose file or a Dockerfile says of a sample's sandbox, in rollbox's own words.

Of a service that is one sandbox all that it says is kept, or refused by its name; several services are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspect_ai.util import ComposeConfig, ComposeService, is_compose_yaml, is_dockerfile, parse_compose_yaml
from pydantic import BaseModel, ValidationError

from rollbox_integrations.inspect.config import GENERIC_IMAGE, OFFLINE, Build, RollboxConfig

# Of the main process of a container that only waits, as a sandbox's does.
_WAITING = ("tail -f /dev/null", "sleep infinity", "sleep inf")
# They change nothing of a container that only waits.
_IDLE = {
    "init",
    "tty",
    "stdin_open",
    "stop_grace_period",
    "restart",
    "command",
    "entrypoint",
    "pull_policy",
    "x_default",
}
_TAKEN = {
    "image",
    "build",
    "working_dir",
    "environment",
    "user",
    "network_mode",
    "cpus",
    "mem_limit",
    "deploy",
    "pids_limit",
}


def resolved(config: BaseModel | str | None, metadata: Mapping[str, Any]) -> RollboxConfig:
    """Read what a task or a sample says of its sandbox.

    Args:
        config: a `RollboxConfig`, a `ComposeConfig`, the path of a compose file or of a Dockerfile, or nothing.
        metadata: of the sample; a compose file has its values as `${SAMPLE_METADATA_NAME}`.

    Raises:
        ValueError: it says what no sandbox here can be; the message names the field.
    """
    if isinstance(config, RollboxConfig):
        return config
    if config is None:
        return RollboxConfig(image=GENERIC_IMAGE, egress=OFFLINE)
    if isinstance(config, str) and is_dockerfile(config):
        path = Path(config)
        return RollboxConfig(build=Build(folder=str(path.parent), file=str(path)), egress=OFFLINE)
    if isinstance(config, str) and is_compose_yaml(config):
        return _of_compose(parse_compose_yaml(config), metadata, Path(config).parent)
    if isinstance(config, ComposeConfig):
        return _of_compose(config, metadata, Path.cwd())
    raise ValueError(f"the configuration {config!r} is no RollboxConfig, compose file or Dockerfile")


def _of_compose(config: ComposeConfig, metadata: Mapping[str, Any], folder: Path) -> RollboxConfig:
    if len(config.services) != 1:
        raise ValueError(f"the services {', '.join(config.services)} are more than one, and a sandbox here is one")
    for name in ("volumes", "networks"):
        if getattr(config, name):
            raise ValueError(f"{name} of a compose file are not supported by rollbox")
    known = {f"SAMPLE_METADATA_{key.replace(' ', '_').upper()}": str(value) for key, value in metadata.items()}
    (service,) = config.services.values()
    given = _expanded({name: getattr(service, name) for name in service.model_fields_set}, known)
    more = _expanded(service.extensions.get("x-rollbox", {}), known)
    _refuse(given, service)
    values = {**_of_service(given, folder), **more}
    try:
        return RollboxConfig(**values)
    except ValidationError as error:
        raise ValueError(f"the service {next(iter(config.services))}: {error}") from error


def _refuse(given: Mapping[str, Any], service: ComposeService) -> None:
    for name in sorted(given.keys() - _TAKEN - _IDLE - service.extensions.keys()):
        if given[name] not in (None, [], {}):
            raise ValueError(f"{name} of a compose service is not supported by rollbox")
    for name in ("command", "entrypoint"):
        words = given.get(name)
        told = words if isinstance(words, str) else " ".join(words or ())
        if told and told not in _WAITING:
            raise ValueError(f"{name} {told!r}: the main process of a sandbox only waits, like {_WAITING[0]!r}")
    if given.get("pull_policy") not in (None, "missing", "if_not_present"):
        raise ValueError(f"pull_policy {given['pull_policy']!r}: a node pulls what it does not have")


def _of_service(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    limits, requests = _deployed(given.get("deploy"))
    values: dict[str, Any] = {
        "image": given.get("image"),
        "cwd": given.get("working_dir"),
        "user": given.get("user"),
        "env": _variables(given.get("environment")),
        "cpu": _range(requests.get("cpus"), given.get("cpus") or limits.get("cpus")),
        "memory": _range(_size(requests.get("memory")), _size(given.get("mem_limit") or limits.get("memory"))),
        "pids": given.get("pids_limit"),
        "egress": _egress(given.get("network_mode")),
    }
    if (build := given.get("build")) is not None:
        context, file = (build, None) if isinstance(build, str) else (build.context or ".", build.dockerfile)
        place = folder / context
        path = place / (file or "Dockerfile")
        values |= {"image": None, "build": Build(folder=str(place), file=str(path))}
    return {name: value for name, value in values.items() if value is not None}


def _deployed(deploy: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - inspect has no name for it
    resources = None if deploy is None else deploy.resources
    if resources is None:
        return {}, {}
    if resources.reservations is not None and resources.reservations.devices:
        raise ValueError("devices of a compose service are not supported by rollbox; `x-rollbox: {gpu: 1}` is")
    return tuple({} if one is None else one.model_dump() for one in (resources.limits, resources.reservations))


def _range(request: Any, limit: Any) -> Any:  # noqa: ANN401 - cores or sizes
    return limit if request is None else (request, request if limit is None else limit)


def _size(text: str | None) -> str | None:
    """Compose's 512m, 2gb and 1024k are powers of 1024: 512Mi here."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt])?i?b?", text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no size of memory, like 512m")
    return match[1] + (f"{match[2].upper()}i" if match[2] else "")


def _variables(environment: Any) -> dict[str, str] | None:  # noqa: ANN401 - a list or a mapping
    if environment is None:
        return None
    pairs = environment.items() if isinstance(environment, dict) else (one.partition("=")[::2] for one in environment)
    variables = dict(pairs)
    if isinstance(environment, list) and (unset := [one for one in environment if "=" not in one]):
        raise ValueError(f"the variable {unset[0]} has no value: those of this machine do not come into a sandbox")
    if empty := [name for name, value in variables.items() if value is None]:
        raise ValueError(f"the variable {empty[0]} has no value: those of this machine do not come into a sandbox")
    return variables


def _egress(network_mode: str | None) -> str | None:
    if network_mode in (None, "bridge"):
        return None
    if network_mode == "none":
        return OFFLINE
    raise ValueError(
        f"network_mode {network_mode!r} is not supported by rollbox; none is, and `x-rollbox: {{egress: packages}}`"
    )


_VARIABLE = re.compile(r"\$\{(\w+)\}")


def _expanded(value: Any, known: Mapping[str, str]) -> Any:  # noqa: ANN401 - as YAML has them
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _known(found[1], known), value)
    if isinstance(value, list):
        return [_expanded(one, known) for one in value]
    if isinstance(value, dict):
        return {key: _expanded(one, known) for key, one in value.items()}
    return value


def _known(name: str, known: Mapping[str, str]) -> str:
    if name not in known:
        raise ValueError(f"the sample has no value for ${{{name}}}")
    return known[name]
