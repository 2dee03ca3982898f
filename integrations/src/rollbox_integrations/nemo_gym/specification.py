"""A `SandboxSpec` of NeMo Gym as the options of `Sandbox.create`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from nemo_gym.sandbox import SandboxSpec

from rollbox.errors import InvalidArgument
from rollbox.options import CreateOptions

# What the configuration of the provider and `provider_options` may say. The rest is the spec's, or no value of YAML.
OPTIONS = sorted(CreateOptions.__optional_keys__ - {"cwd", "env", "files", "idempotency_key", "mounts"})
_SCHEME = "docker://"


def checked(options: Mapping[str, Any], said_by: str) -> dict[str, Any]:
    """Copy options of `Sandbox.create`.

    Raises:
        ValueError: a name is none of them.
    """
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise ValueError(f"{said_by}: {', '.join(unknown)} is none of {', '.join(OPTIONS)}")
    return dict(options)


def image(spec: SandboxSpec, options: Mapping[str, Any]) -> str | None:
    """Return the image of a sandbox; None for one that is made of a checkpoint.

    Raises:
        InvalidArgument: there is neither.
    """
    if options.get("checkpoint"):
        return None
    if not spec.image:
        raise InvalidArgument("SandboxSpec.image is not set, and no checkpoint either")
    return spec.image.removeprefix(_SCHEME)


def options(spec: SandboxSpec, defaults: Mapping[str, Any], attribution: Mapping[str, str]) -> CreateOptions:
    """Return what a sandbox is made of.

    Args:
        spec: what the environment asks for; over `provider_options`, over `defaults`.
        defaults: of the provider.
        attribution: labels by which the sandboxes of a run are found.

    Raises:
        ValueError: `provider_options` has a name that is no option.
        InvalidArgument: the spec names a kind of device.
    """
    said = {**defaults, **checked(spec.provider_options, "provider_options")}
    labels = {**attribution, **said.pop("labels", {}), **spec.metadata, "rollbox.host": "nemo-gym"}
    # Its directory may not be there yet; NeMo Gym gives it with each command.
    given = {**_resources(spec), "ttl": spec.ttl_s, "start_timeout": spec.ready_timeout_s}
    asked = {name: value for name, value in given.items() if value is not None}
    return cast("CreateOptions", {**said, **asked, "env": dict(spec.env), "labels": labels})


def _resources(spec: SandboxSpec) -> dict[str, Any]:
    # The spec has made a SandboxResources of what it was given.
    wanted: Any = spec.resources
    if wanted.gpu_type is not None:
        raise InvalidArgument(f"resources.gpu_type {wanted.gpu_type!r}: rollbox takes a number of devices")
    return {
        "cpu": wanted.cpu,
        "memory": None if wanted.memory_mib is None else f"{wanted.memory_mib}Mi",
        "disk": None if wanted.disk_gib is None else f"{wanted.disk_gib}Gi",
        "gpu": wanted.gpu,
    }
