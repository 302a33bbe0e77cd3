"""Physics of the small mechanical tasks."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.toy.mechanics import CartPoleState, PendulumState, ReacherState, inertia


def cart(angle, speed=0.0, spin=0.0):
    """A cart in the middle of its track."""
    return CartPoleState(*(jnp.float32(x) for x in (0.0, angle, speed, spin)), time=jnp.int32(0))


def energy(state, params):
    """Kinetic and potential energy (); without friction and force it is constant away from the track's ends."""
    both, arm = params.cart_mass + params.pole_mass, params.pole_mass * params.length
    coupling = arm * jnp.cos(state.angle + params.slope)
    kinetic = both * state.speed**2 / 2 + coupling * state.speed * state.spin + arm * params.length * state.spin**2 / 2
    height = both * state.place * jnp.sin(params.slope) + arm * jnp.cos(state.angle)
    return kinetic + params.gravity * height


def passive(name, state, energy_of, **changed):
    """Energies along an episode without action, and the last state."""
    task = envs.make(name)
    params = task.params._replace(**changed)

    def step(state, _):
        state = task.env.step(jax.random.key(0), state, jnp.zeros(task.env.spec.action_size), params)[1]
        return state, energy_of(state, params)

    last, energies = jax.lax.scan(step, state, length=100)
    return np.asarray(energies), last


def test_energy_is_conserved_without_friction_and_lost_with_it():
    pole = cart(2.0, 0.5, 1.0)
    free = {"slope": 0.2, "half_track": 100.0}
    kept, _ = passive("cartpole_swingup", pole, energy, track_friction=0.0, **free)
    np.testing.assert_allclose(kept, kept[0], atol=1e-3)
    lost, _ = passive("cartpole_swingup", pole, energy, track_friction=1.0, **free)
    assert np.all(np.diff(lost) < 1e-5)
    assert lost[-1] < lost[0] - 0.5

    def kinetic(state, params):
        return state.speeds @ inertia(state.angles, params) @ state.speeds / 2

    arm = ReacherState(jnp.array([0.3, 1.0]), jnp.array([1.0, -2.0]), jnp.int32(0))
    kept, _ = passive("reacher", arm, kinetic, friction=0.0)
    np.testing.assert_allclose(kept, kept[0], atol=1e-3)
    lost, _ = passive("reacher", arm, kinetic)
    assert np.all(np.diff(lost) < 1e-5)
    assert lost[-1] < 0.1 * lost[0]


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_pole_falls_to_its_side_and_a_cart_rolls_down_the_slope(side):
    task = envs.make("cartpole_swingup")
    after = task.env.step(jax.random.key(0), cart(0.1 * side), jnp.zeros(1), task.params)[1]
    assert side * float(after.angle) > 0.1
    after = task.env.step(jax.random.key(0), cart(np.pi), jnp.zeros(1), task.params._replace(slope=0.2 * side))[1]
    assert side * float(after.place) < 0.0


@pytest.mark.parametrize("seed", [0, 1])
def test_an_episode_of_the_pendulum_equals_gymnasiums(seed):
    theirs = gymnasium.make("Pendulum-v1")
    obs, _ = theirs.reset(seed=seed)
    angle, speed = theirs.unwrapped.state
    task, state = envs.make("pendulum"), PendulumState(jnp.float32(angle), jnp.float32(speed), jnp.int32(0))
    step = jax.jit(lambda state, action: task.env.step(jax.random.key(0), state, action, task.params))
    for action in np.random.default_rng(seed).uniform(-1.2, 1.2, (200, 1)).astype(np.float32):
        # From their state: a pendulum near the top doubles a rounding error every few steps.
        angle, speed = theirs.unwrapped.state
        state = PendulumState(jnp.float32(angle), jnp.float32(speed), state.time)
        ours, state, reward, terminated, truncated, _ = step(state, jnp.asarray(action))
        obs, expected, ended, limit, _ = theirs.step(2.0 * action)
        np.testing.assert_allclose(ours, obs, atol=2e-5)
        assert float(reward) == pytest.approx(float(expected), abs=1e-4)
        assert (bool(terminated), bool(truncated)) == (ended, limit)
