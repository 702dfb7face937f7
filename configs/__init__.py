"""Configuration files, a folder a group."""
