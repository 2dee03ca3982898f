"""Benchmarks of an installation: the scenarios of `rollbox bench`, which rollbox's own benchmarks run too.

Layers, lowest first: arrivals < sample < shapes, machine, kubectl < ground < calls < scenarios < plan < measured <
text, page < session. Pure are sample, shapes, plan, measured, text and page.
"""
