"""One round as a pure state machine: `events` in, `effects` out, the rules in `machine`."""
