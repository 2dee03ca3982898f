"""The tools: names, schemas, hints for the person who is asked whether a call may be made."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from rollbox_integrations.mcp import cells, commands, files, inputs, lifecycle, outputs, ports
from rollbox_integrations.mcp.settings import Settings


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        call: what it does; its name and its docstring are the tool's.
        title: for people.
        takes: the model of its arguments.
        returns: the model of its structured content.
        reads: it changes nothing.
        destroys: it may remove or overwrite what is there.
        repeats: a second call with the same arguments changes nothing more.
    """

    call: Callable[..., Awaitable[Any]]
    title: str
    takes: type[inputs.Input]
    returns: type[outputs.Output]
    reads: bool = False
    destroys: bool = False
    repeats: bool = False

    @property
    def name(self) -> str:
        """By which it is called."""
        return self.call.__name__

    def described(self, settings: Settings) -> types.Tool:
        """Return what a client lists of it, with the limits of this server."""
        takes = _plain(self.takes.model_json_schema())
        if self.takes is inputs.CreateSandbox:
            named = takes["properties"]
            named["egress"] |= {"enum": ["", *settings.egress]}
            named["image"]["description"] += f" It is {settings.image}."
            named["ttl"] |= {"maximum": settings.max_ttl, "default": min(settings.max_ttl, named["ttl"]["default"])}
        return types.Tool(
            name=self.name,
            title=self.title,
            description=inspect.getdoc(self.call),
            input_schema=takes,
            output_schema=_or_fault(_plain(self.returns.model_json_schema())),
            annotations=types.ToolAnnotations(
                title=self.title,
                read_only_hint=self.reads,
                destructive_hint=self.destroys,
                idempotent_hint=self.reads or self.repeats,
                # What a sandbox reaches is its network policy's matter: offline unless the server was told otherwise.
                open_world_hint=self.name == "publish_port" or (not self.reads and settings.egress != ("offline",)),
            ),
        )


_ALWAYS = (
    Tool(lifecycle.create_sandbox, "Create a sandbox", inputs.CreateSandbox, outputs.SandboxOutput),
    Tool(lifecycle.list_sandboxes, "List sandboxes", inputs.NoArguments, outputs.SandboxesOutput, reads=True),
    Tool(lifecycle.delete_sandbox, "Delete a sandbox", inputs.OneSandbox, outputs.DeletedOutput, destroys=True),
    Tool(commands.run_command, "Run a command", inputs.RunCommand, outputs.CommandOutput, destroys=True),
    Tool(commands.start_process, "Start a process", inputs.StartProcess, outputs.ProcessOutput, destroys=True),
    Tool(commands.list_processes, "List processes", inputs.OneSandbox, outputs.ProcessesOutput, reads=True),
    Tool(
        commands.stop_process, "Stop a process", inputs.StopProcess, outputs.StoppedOutput, destroys=True, repeats=True
    ),
    Tool(commands.read_output, "Read the rest of an output", inputs.ReadOutput, outputs.PieceOutput, reads=True),
    Tool(cells.run_code, "Run code", inputs.RunCode, outputs.CellOutput, destroys=True),
    Tool(files.read_file, "Read a file", inputs.ReadFile, outputs.FileOutput, reads=True),
    Tool(files.write_file, "Write a file", inputs.WriteFile, outputs.WrittenOutput, destroys=True, repeats=True),
    Tool(files.list_files, "List files", inputs.ListFiles, outputs.ListingOutput, reads=True),
    Tool(ports.request_port, "Request a port", inputs.RequestPort, outputs.AnswerOutput, destroys=True),
)
_PUBLISH = Tool(ports.publish_port, "Publish a port", inputs.PublishPort, outputs.PortOutput, repeats=True)


def _or_fault(schema: dict[str, Any]) -> dict[str, Any]:
    """Let a failure have its fault as structured content: some clients check that of an error too."""
    definitions = schema.pop("$defs", {})
    found = {"type": "object", "anyOf": [schema, _plain(outputs.FaultOutput.model_json_schema())]}
    return found | ({"$defs": definitions} if definitions else {})


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Leave out the titles that repeat names: a model reads all of this before its first call."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _plain(one) for name, one in schema.items() if name != "title" or not isinstance(one, str)}


def tools(settings: Settings) -> dict[str, Tool]:
    """Return the tools of a server with these settings, by name."""
    found = (*_ALWAYS, _PUBLISH) if settings.public_ports else _ALWAYS
    return {one.name: one for one in found}
