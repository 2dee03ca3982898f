"""What a session is asked for: llm-sandbox's own settings, Docker's names of limits, options of a create. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast, get_type_hints

from llm_sandbox.const import SupportedLanguage
from llm_sandbox.core.config import SessionConfig
from llm_sandbox.exceptions import ValidationError

from rollbox.options import CreateOptions
from rollbox_integrations.docker_sizes import size_bytes


def config(given: dict[str, Any]) -> SessionConfig:
    """Take llm-sandbox's settings out of the arguments of a session; what is None has its default.

    Raises:
        ValidationError: one of them is wrong, or is of Docker alone.
    """
    given["lang"] = SupportedLanguage(str(given.get("lang") or "python"))
    if given.pop("commit_container", False):
        raise ValidationError("commit_container is of Docker: call session.container.commit(name) before close")
    # Whether Docker removes an image that it has pulled: nodes keep images as long as they have room.
    given.pop("keep_template", None)
    names = SessionConfig.model_fields.keys() & given.keys()
    settings = {name: value for name in names if (value := given.pop(name)) is not None}
    return SessionConfig(**{"default_timeout": None, **settings})


def options(runtime: Mapping[str, Any], given: Mapping[str, Any]) -> CreateOptions:
    """Return the options of a create.

    Args:
        runtime: llm-sandbox's `runtime_configs`, by Docker's names.
        given: options by their own names, which are over those.

    Raises:
        ValidationError: a name or a value is none that is known here.
    """
    if unknown := sorted(given.keys() - get_type_hints(CreateOptions).keys()):
        raise ValidationError(f"{', '.join(unknown)}: no argument of a session, and no option of Sandbox.create")
    if unknown := sorted(runtime.keys() - _OF_DOCKER.keys()):
        raise ValidationError(f"runtime_configs has {', '.join(unknown)}; known are {', '.join(sorted(_OF_DOCKER))}")
    made = dict(_OF_DOCKER[name](value) for name, value in runtime.items() if value is not None)
    made |= given
    # As llm-sandbox's Docker, what a program prints comes at once; and the sandbox's own Python takes libraries.
    made["env"] = {"PYTHONUNBUFFERED": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1", **(made.get("env") or {})}
    made["labels"] = {**(made.get("labels") or {}), "rollbox.host": "llm-sandbox"}
    return cast("CreateOptions", made)


def _memory(value: str | int) -> tuple[str, int]:
    try:
        return "memory", size_bytes(value)
    except ValueError as error:
        raise ValidationError(f"mem_limit: {error}") from error


def _network(value: str) -> tuple[str, str]:
    if value != "none":
        raise ValidationError(f"network_mode {value!r}: only 'none' is known here; egress= says what may be reached")
    return "egress", "offline"


def _environment(value: Mapping[str, str] | list[str]) -> tuple[str, dict[str, str]]:
    pairs = value.items() if isinstance(value, Mapping) else (one.partition("=")[::2] for one in value)
    return "env", {name: str(text) for name, text in pairs}


_OF_DOCKER: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "mem_limit": _memory,
    "cpu_count": lambda value: ("cpu", value),
    "pids_limit": lambda value: ("pids", value),
    "user": lambda value: ("user", str(value)),
    "environment": _environment,
    "network_mode": _network,
}
