"""Rewards, one file each: (response text, problem) -> Reward."""
