"""Data files shipped with the package."""
