"""The Lua scripts of the Redis store, which take their arguments by name.

A script declares its arguments in lines ``-- args: NAME NAME:number ...``; ``ROW`` stands for those that ``head.lua``
declares in its lines ``-- row:``. From that, each script gets a prologue that reads ``ARGV`` into the table ``a``.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_HEAD: Final = "head"
_NUMBER: Final = ":number"
# When Redis is out of memory only these scripts are refused; ends, slots and leases still work, and free memory.
_GROWING: Final = ("admit", "claim", "append")

# What a script may be given: a text or a whole number.
Value = str | int


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis loads it, and the names of its arguments in the order in which they are sent."""

    source: str
    names: tuple[str, ...]

    def values(self, given: Mapping[str, Value]) -> Sequence[Value]:
        """The arguments in order.

        Raises:
            TypeError: one is missing, or the script has no argument of a name.
        """
        if len(given) == len(self.names):
            with suppress(KeyError):
                return [given[name] for name in self.names]
        raise TypeError(f"the script takes {', '.join(self.names)}, and was given {', '.join(given)}")


def scripts() -> dict[str, Script]:
    """All scripts by name."""
    texts = {one.name.removesuffix(".lua"): one.read_text() for one in (files("controlplane.store") / "lua").iterdir()}
    head = texts.pop(_HEAD)
    row = _declared(head, "row")
    return {name: _script(name, head, text, row) for name, text in texts.items()}


def _script(name: str, head: str, text: str, row: Sequence[str]) -> Script:
    declared = [arg for word in _declared(text, "args") for arg in (row if word == "ROW" else (word,))]
    prologue = ", ".join(_field(arg, number) for number, arg in enumerate(declared, start=1))
    flags = "#!lua" if name in _GROWING else "#!lua flags=allow-oom"
    source = f"{flags}\nlocal a = {{{prologue}}}\n{head}{text}"
    return Script(source, tuple(arg.removesuffix(_NUMBER) for arg in declared))


def _field(arg: str, number: int) -> str:
    value = f"ARGV[{number}]"
    name = arg.removesuffix(_NUMBER)
    return f"{name} = {value if name == arg else f'tonumber({value})'}"


def _declared(text: str, what: str) -> list[str]:
    return [word for line in re.findall(rf"^-- {what}: (.*)$", text, re.MULTILINE) for word in line.split()]
