"""What accounts may do at the API server, as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

Json = dict[str, Any]
Cells = tuple[str, ...]
HEAD: Final = ("account", "where", "may", "what", "why")
VERBS: Final = ("all of it", "get", "list", "watch", "create", "update", "patch", "delete")
WHERE: Final = {"": "release", "rollbox": "release", "rollbox-sandboxes": "sandboxes"}


def rows(renderings: Iterable[list[Json]]) -> list[Cells]:
    """Each account's rights at each place, without the last cell: the most that any rendering gives."""
    # By account, place, resource, and whether the right is for some names alone.
    verbs: dict[tuple[str, str, str, bool], set[str]] = {}
    names: dict[tuple[str, str, str, bool], dict[str, None]] = {}
    for manifests in renderings:
        for account, where, rule in _granted(manifests):
            for resource in _resources(rule):
                key = (account, where, resource, bool(rule.get("resourceNames")))
                verbs.setdefault(key, set()).update(rule["verbs"])
                names.setdefault(key, {}).update(dict.fromkeys(rule.get("resourceNames", ())))
    same: dict[tuple[str, str, str], list[str]] = {}
    for key, found in verbs.items():
        may = ", ".join(sorted(found, key=VERBS.index))
        only = ", ".join(one.removeprefix("rollbox-") for one in names[key])
        same.setdefault((*key[:2], may), []).append(f"`{key[2]}`" + (f" ({only})" if only else ""))
    return sorted((account, where, may, ", ".join(sorted(what))) for (account, where, may), what in same.items())


def _granted(manifests: list[Json]) -> Iterator[tuple[str, str, Json]]:
    roles = {(one["kind"], *_place(one)): one["rules"] for one in manifests if one["kind"] in ("Role", "ClusterRole")}
    for one in manifests:
        if one["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        reference, (namespace, _) = one["roleRef"], _place(one)
        own = (reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"])
        # Of a role that the chart does not make its name is all that is known here.
        rules = roles.get(own, [{"resources": [reference["name"]], "verbs": ["all of it"]}])
        where = "cluster" if one["kind"] == "ClusterRoleBinding" else WHERE.get(namespace, namespace)
        for subject in one["subjects"]:
            yield from ((subject["name"].removeprefix("rollbox-"), where, rule) for rule in rules)


def _place(one: Json) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _resources(rule: Json) -> Iterator[str]:
    for group in rule.get("apiGroups", [""]):
        for resource in rule["resources"]:
            # Of Kubernetes' own groups and ours the resource alone is a name.
            yield resource if "." not in group or group.endswith(("k8s.io", "rollbox.dev")) else f"{resource}.{group}"
