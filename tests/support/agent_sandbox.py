"""The API of kubernetes-sigs/agent-sandbox, as far as we read it: definitions of its releases, for a real API server.

They are ours, after the released ones: the versions that are served, what is required, what has a default and which
values there are; of a pod there is what the tests' objects have, and the API server refuses the rest. To run the tests
with the released ones, give ROLLBOX_TEST_AGENT_SANDBOX a folder that has a folder for each release (its `k8s/crds`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.cluster.kubernetes.declared.agent_sandbox import GROUP, TEMPLATES, VERSIONS, WARM_POOLS
from tests.support.installed import kubectl, run

Json = dict[str, Any]
KINDS = {TEMPLATES: "SandboxTemplate", WARM_POOLS: "SandboxWarmPool"}
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "object", "additionalProperties": TEXT}
COUNT: Json = {"type": "integer", "format": "int32", "minimum": 0}
AMOUNTS: Json = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, TEXT], "x-kubernetes-int-or-string": True},
}


def _choice(*values: str) -> Json:
    """One of these; the first by itself."""
    return {**TEXT, "enum": list(values), "default": values[0]}


def _object(*required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _list(item: Json) -> Json:
    return {"type": "array", "items": item}


def _warm_pool(version: str) -> Json:
    beta = version == "v1beta1"
    reference = _object("name", name=TEXT)
    return _object(
        *(() if beta else ("replicas",)),
        "sandboxTemplateRef",
        replicas={**COUNT, "default": 1} if beta else COUNT,
        sandboxTemplateRef=reference,
        updateStrategy=_object(type=_choice("OnReplenish", "Recreate")),
    )


def _template(version: str) -> Json:
    port = _object("containerPort", containerPort=COUNT, protocol={**TEXT, "default": "TCP"})
    resources = _object(limits=AMOUNTS, requests=AMOUNTS)
    container = _object("name", name=TEXT, image=TEXT, ports=_list(port), resources=resources)
    pod = _object("containers", containers=_list(container), nodeSelector=TEXTS, restartPolicy=TEXT)
    metadata = _object(labels=TEXTS, annotations=TEXTS)
    newer = {"volumeClaimTemplatesPolicy": _choice("Disallowed", "Allowed", "Overrides")}
    return _object(
        "podTemplate",
        podTemplate=_object("spec", metadata=metadata, spec=pod),
        networkPolicyManagement=_choice("Managed", "Unmanaged"),
        envVarsInjectionPolicy=_choice("Disallowed", "Allowed", "Overrides"),
        **(newer if version == "v1beta1" else {}),
    )


SPECS = {TEMPLATES: _template, WARM_POOLS: _warm_pool}
# Turns one version into the other, where their controller runs; beside ours it does not.
WEBHOOK = {"name": "agent-sandbox-webhook-service", "namespace": "agent-sandbox-system", "path": "/convert"}


@dataclass(frozen=True)
class Release:
    """One of theirs.

    Attributes:
        serves: the versions of its API, the one first that it stores; none where `folder` says it.
        folder: the released definitions.
    """

    name: str
    serves: tuple[str, ...] = ()
    folder: Path | None = None

    def definition(self, plural: str) -> Json:
        """Ours of one kind."""
        kind = KINDS[plural]
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        versions = [
            {
                "name": version,
                "served": True,
                "storage": version == self.serves[0],
                "schema": {"openAPIV3Schema": _object("spec", spec=SPECS[plural](version))},
            }
            for version in self.serves
        ]
        spec: Json = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions}
        if len(versions) > 1:
            webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": WEBHOOK}}
            spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        kinds = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        return {**kinds, "metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec}

    def texts(self) -> list[bytes]:
        """What is given to `kubectl apply`."""
        if self.folder is None:
            return [json.dumps(self.definition(plural)).encode() for plural in KINDS]
        return [(self.folder / f"{GROUP}_{plural}.yaml").read_bytes() for plural in KINDS]

    @contextlib.asynccontextmanager
    async def defined(self) -> AsyncIterator[str]:
        """Its definitions in the cluster for the block; gives the version that a user of this release writes."""
        definitions = [f"crd/{plural}.{GROUP}" for plural in KINDS]
        try:
            for text in self.texts():
                # By the server: the released ones are larger than the note that `kubectl` itself would leave.
                await run("kubectl", "apply", "--server-side", "-f", "-", stdin=text)
            await kubectl("wait", *definitions, "--for=condition=Established", "--timeout=30s")
            found = json.loads(await kubectl("get", definitions[0], "-o", "json"))
            served = {one["name"] for one in found["spec"]["versions"] if one["served"]}
            yield next(version for version in VERSIONS if version in served)
        finally:
            await kubectl("delete", *definitions, "--ignore-not-found", "--timeout=60s")


def releases() -> list[Release]:
    """Those to test with: the given ones, else ours, one for each set of versions that clusters serve."""
    given = os.environ.get("ROLLBOX_TEST_AGENT_SANDBOX")
    if given is not None:
        return [Release(folder.name, folder=folder) for folder in sorted(Path(given).iterdir())]
    return [Release("0.4", ("v1alpha1",)), Release("0.5", ("v1beta1", "v1alpha1"))]
