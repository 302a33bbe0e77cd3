"""Both engines over 200 steps of random actions, most of them in contact (N7 of the family's specification).

Contact is chaotic, so single copies part; what they earn must not.
"""

import numpy as np
import pytest

from envs.isaac.ant import Ant
from envs.isaac.anymal import Anymal
from tests.envs.isaac.common import mjx_run, random_actions, run


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ant, Anymal])
def test_both_engines_pay_the_same_in_contact(kind):
    """A tenth of the mean size of a reward may lie between: the mean itself is near zero for Ant, as falling costs."""
    task = kind("gym")
    actions = random_actions(task, 200, 32)
    theirs, (_, reward, _) = run(task, actions), mjx_run(task, actions)
    assert np.isfinite(reward).all()
    assert abs(reward.mean() - theirs.reward.mean()) < 0.1 * np.abs(theirs.reward).mean()
