"""Benchmarks, in a checkout only: each row in a process of its own, ratios within one run, limits judged at the end.

`harness` is what the suites share; `sums`, `cache` and `trace` are the suites; `commands` is `fednode bench`.
"""
