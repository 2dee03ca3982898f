"""The program that runs cells in a sandbox: Python 3.8 and newer, the standard library alone.

Its files are sent to the image's `python3` (`rollbox.interpreter.program`), so they import nothing of rollbox but one
another, and as little as they can of the rest: what they import costs every sandbox memory and every start time.
"""
