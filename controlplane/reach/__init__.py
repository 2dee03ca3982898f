"""Checks whether NetworkPolicies are enforced: what can be reached from a sandbox, and from an unrestricted pod.

A cluster accepts a NetworkPolicy even if its network plugin does not enforce it, so it has to be tried. ``ways`` lists
the destinations, ``attempts`` connects to them (with the standard library alone, since it runs in the sandbox), and
``verdict`` compares the results of both pods. The chart's hooks and ``rollbox doctor --cluster`` start the pods;
nothing here uses Kubernetes.
"""
