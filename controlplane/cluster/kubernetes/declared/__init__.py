"""Declared objects: custom resources of rollbox's own, and those of kubernetes-sigs/agent-sandbox."""
