"""Generates the OpenAPI document from the routes; ``contract/generate.py`` writes it to ``contract/openapi/``."""

from typing import Any, Final

import yaml

from controlplane.api.app import bare_app
from controlplane.errors import TABLE
from controlplane.errors.problem import MEDIA_TYPE

_TEXT: Final = {"type": "string"}
_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "RFC 9457, with a code of contract/errors.toml: switch on `code`, never on text.",
    "required": [
        "type",
        "title",
        "status",
        "detail",
        "code",
        "fault",
        "retry",
        "mask_sample",
        "hint",
        "request_id",
        "details",
    ],
    "properties": {
        **dict.fromkeys(("type", "title", "detail", "hint", "request_id"), _TEXT),
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": list(TABLE)},
        "fault": {"type": "string", "enum": ["caller", "workload", "capacity", "platform"]},
        "retry": {"type": "string", "enum": ["never", "later", "resume", "new_sandbox"]},
        "mask_sample": {"type": "boolean"},
        "retry_after_ms": {"type": "integer"},
        "details": {"type": "object", "additionalProperties": _TEXT},
    },
}
_FAILURE: Final = {
    "description": "A problem",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def document() -> str:
    """The OpenAPI document as YAML; the same text for the same routes."""
    described = bare_app().openapi()
    schemas = described["components"]["schemas"]
    for framework_own in ("HTTPValidationError", "ValidationError"):
        schemas.pop(framework_own, None)
    schemas["Problem"] = _PROBLEM
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = _FAILURE
    # Without YAML aliases, so that a repeated part is written out in full.
    return yaml.dump(described, Dumper=_Plain, sort_keys=True, allow_unicode=True, width=120)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        """Write repeated parts out."""
        return True
