"""Secure sum `ring`: ring-LWE masks that add up, with boxed shares of each mask's secret."""
