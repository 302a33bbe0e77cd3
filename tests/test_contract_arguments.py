"""The checkers and wrappers of custom parts refuse something else in one sentence."""

import re

import pytest

import envs
from aesjax import check_adaptation
from agents import check_carrier
from agents.sac import Sac
from envs import Drifting, check_task


@pytest.mark.parametrize(
    ("check", "given", "text"),
    [
        (check_carrier, Sac, "unknown carrier"),
        (check_adaptation, "window", "adaptation must be an object such as window(power=1.0); got 'window'"),
        (check_adaptation, print, "adaptation must be an object such as"),
        (check_task, "toy", "check_task needs a task such as envs.make('toy'); got 'toy'"),
        (lambda task: Drifting(task, "abrupt", 1000), "toy", "task must be a task such as envs.make('toy')"),
        (
            lambda limit: Drifting(envs.make("hopper", time_limit=limit), "abrupt", 1000),
            0,
            "time_limit of task 'hopper' must be a whole number, at least 1; got 0",
        ),
    ],
    ids=["carrier", "name", "function", "task", "wrapper", "time_limit"],
)
def test_another_object_is_refused(check, given, text):
    with pytest.raises((ValueError, KeyError), match=re.escape(text)):
        check(given)
