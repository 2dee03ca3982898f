"""Removes what a cluster makes on a machine besides processes and files."""

from __future__ import annotations

import contextlib
import shlex

from tests.cluster import baseline, leftovers
from tests.cluster.layout import device


def remove_cgroups() -> None:
    """They are empty now."""
    for path in leftovers.cgroups():
        with contextlib.suppress(OSError):
            path.rmdir()


def remove_network() -> None:
    """Links, filters, sets, rules and hooks."""
    for name in leftovers.links():
        leftovers.output("ip", "link", "delete", name)
    _remove_chains()
    for family, table in leftovers.nft_tables():
        leftovers.output("nft", "delete", "table", family, table)
    for name in leftovers.ipsets():
        leftovers.output("ipset", "destroy", name)
    _restore_rules()
    if len(baseline.qdiscs()) > len(baseline.noted().get("qdiscs", [])):
        leftovers.output("tc", "qdisc", "delete", "dev", device(), "clsact")


def _remove_chains() -> None:
    """First the rules that lead to them, then the chains."""
    ours = leftovers.chains()
    for program, table in {(program, table) for program, table, _ in ours}:
        for line in leftovers.output(f"{program}-save", "-t", table).splitlines():
            if _leads_to_ours(rule := shlex.split(line)):
                leftovers.output(program, "-w", "-t", table, "-D", *rule[1:])
    for step in ("-F", "-X"):
        for program, table, chain in ours:
            leftovers.output(program, "-w", "-t", table, step, chain)


def _leads_to_ours(rule: list[str]) -> bool:
    """Whether it is a rule in a chain of another that names one of ours."""
    added = rule[:1] == ["-A"] and not rule[1].startswith(leftovers.CHAINS)
    return added and any(word.startswith(leftovers.CHAINS) for word in rule[2:])


def _restore_rules() -> None:
    """Delete what is new, then add what is missing: in this order the local table's rule may move back."""
    before = baseline.noted().get("rules")
    if before is None:
        return
    for rule in set(before) - set(baseline.rules()):
        _rule("add", rule)
    for rule in set(baseline.rules()) - set(before):
        _rule("delete", rule)
    for table in ("2004", "2005"):
        leftovers.output("ip", "route", "flush", "table", table)


def _rule(verb: str, rule: str) -> None:
    """`0: from all lookup local` as arguments."""
    preference, _, selector = rule.partition(":")
    words = selector.replace("[detached]", "").split()
    leftovers.output("ip", "-4", "rule", verb, "preference", preference, *words)
