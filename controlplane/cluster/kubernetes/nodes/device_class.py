"""Which devices a DeviceClass selects, as far as its expressions have the usual form. Pure.

Only the scheduler evaluates CEL. Drivers write their classes as comparisons of driver and attributes with constants,
joined by ``&&``, and that is read here. What has another form is taken to hold: then more devices are counted than
there are, and the scheduler, which has the last word, lets a sandbox wait that this arithmetic would have started.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_DRIVER: Final = re.compile(r"device\.driver\s*==\s*(['\"])([^'\"\\]+)\1")
_ATTRIBUTE: Final = re.compile(
    r"device\.attributes\[(['\"])([^'\"\\]+)\1\]\.(\w+)\s*==\s*(?:(['\"])([^'\"\\]*)\4|(true|false|-?\d+))"
)
# With one of these the parts between ``&&`` need not hold by themselves.
_NOT_PLAIN: Final = frozenset("(){}?|!")

Json = Mapping[str, Any]
# The name of an attribute with its domain, or ``DRIVER``, and its value.
Condition = tuple[str, object]
DRIVER: Final = ""


def conditions(device_class: Json) -> Sequence[Condition]:
    """What a class asks of its devices; of what cannot be read here nothing."""
    selectors = (device_class.get("spec") or {}).get("selectors") or ()
    expressions = [str((one.get("cel") or {}).get("expression") or "") for one in selectors]
    parts = [part.strip() for one in expressions if not _NOT_PLAIN & {*one} for part in one.split("&&")]
    return [found for part in parts if (found := _condition(part)) is not None]


def selected(asked: Sequence[Condition], driver: str, attributes: Json) -> bool:
    """Whether a device of a driver, with attributes as a ResourceSlice tells them, is one of the class."""
    has: dict[str, object] = {DRIVER: driver}
    for name, value in attributes.items():
        has[name if "/" in name else f"{driver}/{name}"] = next(iter(value.values()), None)
    return all(name in has and has[name] == value for name, value in asked)


def _condition(part: str) -> Condition | None:
    if (driver := _DRIVER.fullmatch(part)) is not None:
        return DRIVER, driver[2]
    if (told := _ATTRIBUTE.fullmatch(part)) is None:
        return None
    name, constant = f"{told[2]}/{told[3]}", told[6]
    if constant is None:
        return name, told[5]
    return name, constant == "true" if constant in ("true", "false") else int(constant)
