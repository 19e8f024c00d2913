"""Benchmarks as programs: every row in a process of its own, ratios within one run, limits judged at the end.

What they share is here (`timing`, `processes`, `worker`, `verdicts`, `results`); each one has its own package.
"""
