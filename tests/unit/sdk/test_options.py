"""Every place that spells out the options of a create has all of them, with the same types and defaults."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import rollbox
from rollbox import options
from rollbox.cli import options as cli_options
from rollbox.cli import pool as cli_pool
from rollbox.cli import quota as cli_quota
from rollbox.cli import sandboxes as cli_sandboxes
from rollbox.options import CommandSettings, CreateSpec, Lifetime, Resources
from rollbox.pool import PoolOptions

PARTS = {"resources": Resources, "commands": CommandSettings, "lifetime": Lifetime}
# A command that creates a sandbox ends at once, so it has no lease; options that are repeated are named for one.
COMMAND_NAMES = {"labels": "label", "files": "file"}
NOT_OF_COMMANDS = {"lease", "idempotency_key"}
Options = dict[str, tuple[Any, Any]]


def declared(kind: Any) -> Options:
    """The options of a value and of its parts: type and default of each."""
    hints, found = get_type_hints(kind), Options()
    for item in fields(kind):
        found |= declared(PARTS[item.name]) if item.name in PARTS else {item.name: (hints[item.name], item.default)}
    return {name: told for name, told in found.items() if name != "image"}


def spelled(call: Callable[..., Any]) -> Options:
    """The parameters of a function: type and default of each."""
    hints = get_type_hints(call)
    return {name: (hints[name], one.default) for name, one in inspect.signature(call).parameters.items()}


def types(told: Options) -> dict[str, Any]:
    return {name: kind for name, (kind, _) in told.items()}


def defaults(call: Callable[..., Any]) -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(call).parameters.items()}


def described(kind: Any, section: str) -> dict[str, None]:
    """The names that a docstring describes in one of its sections."""
    text = inspect.cleandoc(kind.__doc__).partition(f"{section}:\n")[2].partition("\n\n")[0]
    return dict.fromkeys(", ".join(re.findall(r"^    ([a-z_, ]+):", text, re.MULTILINE)).split(", "))


def missing(place: Mapping[str, Any], wanted: Mapping[str, Any]) -> set[str]:
    """The options that a place lacks, or has otherwise."""
    return {name for name, told in wanted.items() if name not in place or place[name] != told}


def test_each_place_has_every_option() -> None:
    create, resources = declared(CreateSpec), declared(Resources)
    shared = {name: told for name, told in create.items() if name != "idempotency_key"}
    create_names, resource_names = dict.fromkeys(create), dict.fromkeys(resources)
    typed = cli_options.ResourceArguments
    typed_defaults = typed._field_defaults
    others = {
        COMMAND_NAMES.get(name, name): default
        for name, (_, default) in create.items()
        if name not in resources and name not in NOT_OF_COMMANDS
    }
    places = {
        "Sandbox.create": missing(spelled(rollbox.Sandbox.create), create),
        "documentation of Sandbox.create": missing(described(rollbox.Sandbox.create, "Args"), create_names),
        "CreateOptions": missing(get_type_hints(rollbox.CreateOptions), types(create)),
        "GroupOptions": missing(get_type_hints(options.GroupOptions), types(shared)),
        "ResourceOptions": missing(get_type_hints(options.ResourceOptions), types(resources)),
        "PoolOptions": missing(get_type_hints(PoolOptions), types(resources)),
        "ResourceArguments": missing(dict.fromkeys(typed._fields), resource_names),
        "ResourceArguments.options": missing(dict.fromkeys(typed().options()), resource_names),
        "rollbox create": missing(defaults(cli_sandboxes.create), {**others, **typed_defaults}),
        "rollbox preflight": missing(defaults(cli_quota.preflight), typed_defaults),
        "rollbox pool set": missing(defaults(cli_pool.set_), typed_defaults),
    }
    for part in (Resources, CommandSettings, Lifetime):
        places[f"documentation of {part.__name__}"] = missing(
            described(part, "Attributes"), dict.fromkeys(declared(part))
        )
    lacking = [f"{place}: {', '.join(sorted(names))}" for place, names in places.items() if names]
    assert not lacking, "missing, or of another type or default: " + "; ".join(lacking)


def test_what_is_typed_on_a_command_line_is_what_a_create_has_by_default() -> None:
    assert Resources(**cli_options.ResourceArguments().options()).to_json() == Resources().to_json()


def test_no_place_has_an_option_that_no_value_has() -> None:
    create = {*declared(CreateSpec)}
    assert {*spelled(rollbox.Sandbox.create)} - {"image", "checkpoint", "client"} == create
    assert {*get_type_hints(rollbox.CreateOptions)} - {"checkpoint"} == create
    assert {*get_type_hints(options.ResourceOptions)} == {*declared(Resources)}
