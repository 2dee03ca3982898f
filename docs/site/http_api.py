"""The HTTP API as a page, from the OpenAPI files of the contract."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from docs.site.sources import ROOT

_METHODS: Final = ("get", "put", "post", "patch", "delete")
_PARTS: Final = (
    ("controlplane", "Sandboxes, groups, pools, quotas, nodes", "These calls take an API key."),
    ("gateway", "Inside a sandbox", "These calls take the token of the sandbox that a create or `.../token` answers."),
)
Json = Mapping[str, Any]


def page() -> str:
    """Every call with its parameters, body and answer, then every object that they speak of."""
    documents = {name: yaml.safe_load((ROOT / f"contract/openapi/{name}.yaml").read_text()) for name, _, _ in _PARTS}
    lines: list[str] = []
    for name, title, words in _PARTS:
        lines += [f"## {title}", "", words, ""]
        for path, method, call in _calls(documents[name]):
            lines += _call(documents[name], path, method, call)
    for name, title, _ in _PARTS:
        lines += [f"## Objects: {title[0].lower()}{title[1:]}", ""]
        for schema, body in sorted(documents[name]["components"].get("schemas", {}).items()):
            lines += _object(schema, body)
    return "\n".join(_once(lines))


def _once(lines: list[str]) -> Iterator[str]:
    """The lines without objects that both files describe."""
    seen: set[str] = set()
    skip = False
    for line in lines:
        if line.startswith(("## ", "### ")):
            skip = line in seen
            seen.add(line)
        if not skip:
            yield line


def _calls(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        yield from ((path, method, methods[method]) for method in _METHODS if method in methods)


def _call(document: Json, path: str, method: str, call: Json) -> list[str]:
    lines = [f"### {method.upper()} `{path}` {{ #{_slug(method + path)} }}", "", call["summary"].rstrip(".") + ".", ""]
    if call.get("description"):
        lines += [_prose(call["description"]), ""]
    parameters = [_resolved(document, one) for one in call.get("parameters", [])]
    if shown := [one for one in parameters if one["in"] != "path"]:
        lines += ["| parameter | in | type | |", "|---|---|---|---|"]
        for one in shown:
            must = "required. " if one.get("required") else ""
            words = _cell(one.get("description", ""))
            lines.append(f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {must}{words} |")
        lines.append("")
    for media, content in call.get("requestBody", {}).get("content", {}).items():
        lines += [f"Body (`{media}`): {_type(content.get('schema', {}))}", ""]
    for status, answer in call["responses"].items():
        if str(status) != "default" and (told := _answer(document, status, answer)):
            lines += [told, ""]
    return lines


def _answer(document: Json, status: str, answer: Json) -> str:
    answer = _resolved(document, answer)
    content = answer.get("content", {})
    kinds = ", ".join(f"{_type(one['schema'])}" for one in content.values() if one.get("schema"))
    words = _cell(answer.get("description", "")).replace("Successful Response", "").strip()
    return f"Answer {status}: {' '.join(filter(None, (kinds, words)))}" if kinds or words else ""


def _object(name: str, body: Json) -> list[str]:
    lines = [f"### {name} {{ #object-{name.lower()} }}", ""]
    if body.get("description"):
        lines += [_prose(body["description"]), ""]
    if "enum" in body:
        return [*lines, "One of " + ", ".join(f"`{one}`" for one in body["enum"]) + ".", ""]
    fields = body.get("properties", {})
    if not fields:
        return [*lines, _type(body), ""]
    lines += ["| field | type | |", "|---|---|---|"]
    for field, schema in fields.items():
        must = "required. " if field in body.get("required", ()) else ""
        lines.append(
            f"| `{field}` | {_type(schema)} | {must}{_cell(schema.get('description', ''))}{_default(schema)} |"
        )
    return [*lines, ""]


def _default(schema: Json) -> str:
    value = schema.get("default")
    return f" Default: `{value}`." if value not in (None, "", [], {}) else ""


def _type(schema: Json) -> str:
    if "$ref" in schema:
        *_, kind, name = schema["$ref"].split("/")
        return f"[{name}](#object-{name.lower()})" if kind == "schemas" else f"as `{name}`"
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    for join in ("anyOf", "oneOf", "allOf"):
        if join in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[join]))
    kind = schema.get("type", "object" if "properties" in schema else "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join(str(one) for one in kinds)


def _resolved(document: Json, one: Json) -> Json:
    if "$ref" not in one:
        return one
    found: Json = document
    for part in one["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


def _prose(text: str) -> str:
    return text.replace("``", "`").strip().replace("{", "&#123;").replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(_prose(text).split()).replace("|", "\\|")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
