"""The branching environment and all that samples from it; knows no algorithm.

Importing it adds the environments to Gymnasium: `gymnasium.make("vineenv/Math-v0")`.
"""

import gymnasium

# Names, not imports: what they stand for is loaded when an environment is made.
ENVIRONMENTS = {"vineenv/Math-v0": "envs.registration:make_math"}

for _name, _maker in ENVIRONMENTS.items():
    if _name not in gymnasium.registry:
        gymnasium.register(id=_name, entry_point=_maker)
