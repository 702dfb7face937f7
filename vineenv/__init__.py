"""The branching environment and all that samples from it; knows no algorithm."""
