"""What a scheduler says of a pod that no node takes, in plain words. Pure."""

import re
from typing import Final

# For example: 0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: ...
_SAID: Final = re.compile(r"\d+/(\d+) nodes are available: (.*)", re.DOTALL)
# What follows is about preemption, which sandboxes never do, or about devices of others.
_OVER: Final = re.compile(r"\.(\s|$)")
_REASON: Final = re.compile(r"(\d+) ((?:(?!, \d+ ).)+)")
_PLAIN: Final = (
    ("Insufficient cpu", "too little cpu left"),
    ("Insufficient memory", "too little memory left"),
    ("Insufficient ephemeral-storage", "too little disk left"),
    ("Insufficient nvidia.com/gpu", "too few GPUs left"),
    ("cannot allocate all claims", "no device left that it may have"),
    ("Too many pods", "no place for another pod left"),
    ("node(s) were unschedulable", "been cordoned"),
    ("node(s) didn't match Pod's node affinity/selector", "not the labels that it asks for"),
    ("node(s) didn't have free ports", "no free port for it"),
)
_TAINT: Final = re.compile(r"node\(s\) had untolerated taint(?:\(s\))? ?(\{.*\})?")
MOST_CHARS: Final = 200


def plain(words: str) -> str:
    """The reasons by number of nodes: ``of 3 nodes 2 have too little cpu left and 1 has been cordoned``.

    A reason that is not known here stays as it is, and so does a message of another form.
    """
    said = _SAID.match(words)
    if said is None:
        return words[:MOST_CHARS].rstrip(". ")
    nodes, rest = int(said[1]), _OVER.split(said[2], maxsplit=1)[0]
    reasons = [_reason(int(count), text.strip()) for count, text in _REASON.findall(rest)]
    if not reasons:
        return words[:MOST_CHARS].rstrip(". ")
    return f"of {nodes} node{'s' if nodes != 1 else ''} {' and '.join(reasons)}"


def _reason(count: int, text: str) -> str:
    has = "has" if count == 1 else "have"
    if (taint := _TAINT.match(text)) is not None:
        return f"{count} {has} a taint that sandboxes do not tolerate{f' ({taint[1]})' if taint[1] else ''}"
    known = next((plainly for beginning, plainly in _PLAIN if text.startswith(beginning)), None)
    return f"{count} {has} {known}" if known else f"{count}: {text[:MOST_CHARS]}"
