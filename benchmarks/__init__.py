"""Measurements against peers and limits."""
