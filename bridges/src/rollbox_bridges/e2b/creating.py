"""A create, from E2B's body to the options of rollbox; what cannot be honoured is refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rollbox import EgressPolicy
from rollbox_bridges.e2b.network import egress_of
from rollbox_bridges.e2b.settings import Settings
from rollbox_bridges.e2b.words import Refusal, unsupported

TEMPLATE_LABEL: Final = "e2b/template"
"""The label with the template that a client has asked for."""
PORTS_LABEL: Final = "e2b/ports"
"""The label of sandboxes whose client wants their ports for itself."""
OWN: Final = "e2b/"
"""How the bridge's own labels begin."""
_DEFAULTS: Final = frozenset({"base", "code-interpreter-v1"})
_DEFAULT_TIMEOUT_S: Final = 15
_MOST_METADATA: Final = 62
_KEY: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{0,256}")
# What clients send in every create, with the values that ask for nothing.
_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = {
    "autoPause": (None, False),
    "autoPauseMemory": (None, False, True),
    "autoResume": (None, {"enabled": False}, {"policy": "off"}, False),
    "lifecycle": (None, {"onTimeout": "kill"}, {"onTimeout": "kill", "autoResume": False}),
    "secure": (None, True),
    "mcp": (None,),
    "iam": (None,),
    "volumeMounts": (None, []),
    "alias": (None,),
}
_TAKEN: Final = frozenset({"templateID", "timeout", "metadata", "envVars", "allow_internet_access", "network"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client wants to have created.

    Attributes:
        template: as it has named it.
        image: what that means, unless a pool or a snapshot has this name.
        named: whether the template may be the name of a pool or a snapshot: it is none of the settings.
        ttl_s: seconds.
        metadata, env: as given.
        egress: None: the installation's default.
        public_ports: whether the client wants its ports open to everybody.
    """

    template: str
    image: str
    named: bool
    ttl_s: float
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    egress: str | EgressPolicy | None = None
    public_ports: bool = True

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the sandbox."""
        ports = {} if self.public_ports else {PORTS_LABEL: "private"}
        return {**self.metadata, TEMPLATE_LABEL: self.template, **ports}


def wish_of(body: Any, settings: Settings) -> Wish:  # noqa: ANN401 - JSON
    """Read the body of a create.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    if not isinstance(body, dict):
        raise Refusal(400, "the body is not a JSON object")
    _refuse(body)
    template = body.get("templateID") or "base"
    if not isinstance(template, str) or not 1 <= len(template) <= 256:
        raise Refusal(400, f"templateID {template!r} is not text of 1 to 256 characters")
    metadata = _texts("metadata", body.get("metadata"))
    _check_metadata(metadata)
    image = metadata.get(settings.image_key) or settings.templates.get(template)
    default = settings.default_image if template in _DEFAULTS else template
    network = body.get("network")
    return Wish(
        template=template,
        image=image or default,
        named=image is None and template not in _DEFAULTS,
        ttl_s=seconds("timeout", body.get("timeout", _DEFAULT_TIMEOUT_S)),
        metadata=metadata,
        env=_texts("envVars", body.get("envVars")),
        egress=egress_of(body.get("allow_internet_access"), network, settings.egress),
        public_ports=not (isinstance(network, dict) and network.get("allowPublicTraffic") is False),
    )


def seconds(name: str, value: Any) -> float:  # noqa: ANN401 - JSON
    """Read a number of seconds.

    Raises:
        Refusal: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**31:
        raise Refusal(400, f"{name} {value!r} is not a number of seconds from 0 on")
    return float(value)


def _refuse(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if name in _TAKEN:
            continue
        if name not in _NOTHING:
            raise Refusal(400, f"the field {name!r} is not known here, and would be ignored", "invalid_argument")
        if value not in _NOTHING[name]:
            raise unsupported(f"{name} = {value!r}", "Leave it out.")


def _texts(name: str, value: Any) -> dict[str, str]:  # noqa: ANN401 - JSON
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise Refusal(400, f"{name} is not an object of texts")
    return dict(value)


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > _MOST_METADATA:
        raise Refusal(400, f"{len(metadata)} entries of metadata are more than {_MOST_METADATA}")
    for key, value in metadata.items():
        if not _KEY.fullmatch(key) or key.startswith(OWN):
            raise Refusal(400, f"the key {key[:128]!r} of metadata is not 1 to 128 of A-Za-z0-9._/-, or begins {OWN}")
        if not _VALUE.fullmatch(value):
            raise Refusal(400, f"the value of metadata {key!r} is over 256 characters, or has control characters")
