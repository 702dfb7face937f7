"""The learner: algorithms, the loop and the commands."""
