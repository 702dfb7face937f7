"""Engines: what turns requests into continuations."""
