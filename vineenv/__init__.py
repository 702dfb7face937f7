"""The branching environment and all that samples from it; knows no algorithm.

Importing it adds the environments to Gymnasium: `gymnasium.make("vineenv/Math-v0")`.
"""

import gymnasium

# Names, not imports: what they stand for is loaded when an environment is made.
ENVIRONMENTS = {
    "vineenv/Math-v0": ("math", "exact"),
    "vineenv/Calculator-v0": ("calculator", "exact"),
    "vineenv/Tree-v0": ("tree", "leaf"),
    "vineenv/GSM8K-v0": ("gsm8k", "exact"),
    "vineenv/MathProblems-v0": ("math_problems", "boxed"),
    "vineenv/ReasoningGym-v0": ("reasoning_gym", "text"),
}

for _name, (_env, _reward) in ENVIRONMENTS.items():
    if _name not in gymnasium.registry:
        gymnasium.register(
            id=_name,
            entry_point="envs.registration:make",
            kwargs={"env_config": _env, "reward_config": _reward},
        )
