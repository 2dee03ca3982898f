"""Lifecycle at scale without an engine: real control planes, Redis, gateways, SDK; cluster and sidecars are played.

A played cluster starts nothing and answers at once. What is measured is what the platform adds, never what a container
costs.
"""
