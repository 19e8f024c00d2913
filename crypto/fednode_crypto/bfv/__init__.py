"""Secure sum `bfv`: TenSEAL's BFV under a joint key that no dealer knows."""
