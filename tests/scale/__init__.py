"""Simulations: whole clusters of played nodes under the real control plane, and weeks of traffic in virtual time."""
