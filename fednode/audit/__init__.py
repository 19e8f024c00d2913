"""An audit: canaries through the whole pipeline, and what the opened sums tell of noise and clip."""
