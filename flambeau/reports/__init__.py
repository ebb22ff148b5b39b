"""Reports about compiled programs: logs of regions, memory traffic, a page about a function.

Nothing here decides anything: the compiler runs without it, and loads it when it is used.
"""
