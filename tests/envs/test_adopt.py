import jax.numpy as jnp
import pytest

import envs
from envs.adopt import adopt_pattern, adopt_task
from envs.patterns import PATTERNS, Pattern


def test_a_function_is_a_pattern_that_does_not_jump():
    def still(channel, leg):
        """Stays."""
        return jnp.full((channel.size,), channel.high, jnp.float32)

    pattern = adopt_pattern("mine", still)
    assert (pattern.jumps, pattern.holds, pattern.summary) == (False, False, "Stays.")
    assert adopt_pattern("mine", PATTERNS["abrupt"]) is PATTERNS["abrupt"]


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (3, "must be a Pattern or a function; got int"),
        (lambda channel, leg: jnp.float32(0), r"must return \(1,\) float32 for a scalar channel; got \(\)"),
        (lambda channel, leg: jnp.zeros(1), r"must return \(2,\) float32 for a planar channel; got \(1,\)"),
        (lambda channel, leg: jnp.zeros(channel.size, int), "int32"),
        (lambda channel, leg: leg.nothing, "does not work on a scalar channel: .*nothing"),
        (Pattern(None, jumps=True), "must be a Pattern or a function"),
    ],
)
def test_what_cannot_be_a_pattern_is_refused(plugin, text):
    with pytest.raises(ValueError, match=text):
        adopt_pattern("mine", plugin)


def test_every_pattern_here_would_be_adopted_and_has_a_summary():
    for name, pattern in PATTERNS.items():
        assert adopt_pattern(name, pattern) is pattern
        assert pattern.summary


def test_a_task_is_one_or_builds_one(monkeypatch):
    toy = envs.make("toy")
    assert adopt_task("mine", toy) is toy
    with pytest.raises(ValueError, match="must be a Task or a function that builds one; got str"):
        adopt_task("mine", "toy")
    monkeypatch.setitem(envs.TASKS, "mine", adopt_task("mine", lambda: toy))
    assert envs.make("mine") is toy
    monkeypatch.setitem(envs.TASKS, "wrong", adopt_task("wrong", lambda: 3))
    with pytest.raises(ValueError, match="task 'wrong': its builder returned int, not a Task"):
        envs.make("wrong")
