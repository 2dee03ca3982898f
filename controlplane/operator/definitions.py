"""Checks that rollbox's CustomResourceDefinitions have all fields of this version: an old one drops unknown fields."""

import asyncio
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from pydantic import BaseModel

from controlplane.cluster.documents import Kind
from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.declared.documents import NAMES, VERSION, remedy, resource
from controlplane.errors import Problem
from controlplane.lifecycle.admission.quotas import DeclaredQuota
from controlplane.lifecycle.egress.presets import DeclaredPreset
from controlplane.lifecycle.keys import DeclaredKey
from controlplane.model.dataset import DatasetSpec
from controlplane.model.pool import PoolSpec

# Definitions change only with upgrades; at this interval, a problem is logged some hundred times a day at most.
EVERY_S: Final = 600.0
_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_BODIES: Final[Mapping[Kind, type[BaseModel]]] = {
    "pools": PoolSpec,
    "quotas": DeclaredQuota,
    "egress": DeclaredPreset,
    "datasets": DatasetSpec,
    "keys": DeclaredKey,
}


def trouble(kind: Kind, definition: Json | None) -> str:
    """What is wrong with the definition of a kind, and the command that fixes it; empty: nothing. Pure."""
    if definition is None:
        return f"the cluster has no definition {resource(kind)}, so no {NAMES[kind]} can be declared: {remedy(kind)}"
    versions = (definition.get("spec") or {}).get("versions") or ()
    known = [one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == VERSION]
    if not known:
        return f"the cluster's definition {resource(kind)} has no version {VERSION}: {remedy(kind)}"
    fields = {f"spec.{field}": required for field, required in _fields(_BODIES[kind])}
    described = dict(_described(known[0]))
    old = f"the cluster's definition {resource(kind)} is old and"
    if unknown := sorted(fields.keys() - described.keys()):
        return f"{old} drops {', '.join(unknown)}: {remedy(kind)}"
    if insists := sorted(one for one, required in described.items() if required and not fields.get(one, True)):
        return f"{old} insists on {', '.join(insists)}: {remedy(kind)}"
    return ""


class Definitions:
    """Checks the definitions periodically, and logs what is wrong until it is fixed."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._log = structlog.get_logger("definitions")

    async def run(self) -> None:
        """Checks until it is cancelled."""
        while True:
            for kind in _BODIES:
                await self.check(kind)
            await asyncio.sleep(EVERY_S)

    async def check(self, kind: Kind) -> None:
        """Checks one definition once."""
        try:
            wrong = trouble(kind, await self._read(kind))
        except Problem as problem:
            self._log.warning("cannot read definition, retrying", definition=resource(kind), detail=problem.detail)
        else:
            if wrong:
                self._log.error("definition missing or outdated", detail=wrong)

    async def _read(self, kind: Kind) -> Json | None:
        try:
            return await self._client.get(f"{_PATH}/{resource(kind)}")
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
        return None


def _fields(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, bool]]:
    """The fields of a body, and whether one has to be there."""
    for name, field in model.model_fields.items():
        yield f"{before}{name}", field.is_required()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{before}{name}.")


def _described(schema: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, bool]]:
    """The same of a definition's schema."""
    for name, below in (schema.get("properties") or {}).items():
        yield f"{before}{name}", name in schema.get("required", ())
        yield from _described(below, f"{before}{name}.")
