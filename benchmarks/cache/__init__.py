"""The benchmark of the cache: against dict, cachetools, theine, moka-py, diskcache and Redis, judged by ratios."""
