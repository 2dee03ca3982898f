"""Graders as the field writes them, each a program for a sandbox that prints its verdicts as JSON.

They make the same calls, set the same limits and wait in the same ways as the harnesses that they are named after; no
line of those is in them.
"""
