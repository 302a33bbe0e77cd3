"""A native task through a torch environment and the adapter: the same numbers, whatever the environment does."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tests.envs.bridge.common import LIMIT, short
from tests.envs.bridge.common import torch as installed

torch = installed()

from envs.bridge.host import InProcess, SimEnv  # noqa: E402
from envs.bridge.torch_tasks import TorchVecTask  # noqa: E402
from tests.envs.bridge.lab import TorchLabTask  # noqa: E402

N = 8
ANT, COPTER = short(), short("isaac_ingenuity")


def drifted(t):
    return 1.0 + 0.2 * np.sin(t / 20), 1.0 - 0.25 * np.cos(t / 30)


def actions(t, size):
    return jax.random.uniform(jax.random.fold_in(jax.random.key(7), t), (N, size), minval=-1.3, maxval=1.3)


def bridged(task=ANT, sim=None, **options):
    return SimEnv(sim or InProcess(TorchVecTask(task, N, **options), quantum=0.0))


def chosen(late, fresh, old):
    return np.where(late.reshape((N,) + (1,) * (old.ndim - 1)), fresh, old)


def native(task, steps, before=False):
    """The rows that count, by hand: (copy, obs, action, reward, terminated, truncated, next_obs) in order."""
    env, rows = task.env, []
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    start = jax.jit(jax.vmap(env.reset, (0, None)))
    seed, pending = jnp.uint32(3), np.ones(N, bool)
    obs = state = None
    for t in range(steps + 1):
        values = drifted(max(t - 1, 0))
        params = task.params._replace(gravity=np.float32(values[0]), joint_damping=np.float32(values[1]))
        words = jax.random.bits(jax.random.fold_in(jax.random.key(seed), t), (N, 2, 2), jnp.uint32)
        keys = jax.vmap(jax.random.wrap_key_data)(words)
        fresh = start(keys[:, 1], params)
        obs, state = fresh if obs is None else (obs, state)
        action = jnp.clip(actions(max(t - 1, 0), task.env.spec.action_size), -1.0, 1.0)
        late = pending
        if before:  # resets, then moves without action
            state, action = jax.tree.map(partial(chosen, late), fresh[1], state), chosen(late, 0.0 * action, action)
        out = step(keys[:, 0], state, action, params)
        new_obs, new_state, reward, terminated, truncated = map(jax.device_get, out[:5])
        for i in np.flatnonzero(~late):
            rows.append((i, obs[i], action[i], reward[i], terminated[i], truncated[i], new_obs[i]))
        done = (terminated | truncated) & ~late
        if not before:
            fresh = jax.device_get(fresh)
            new_obs, new_state = jax.tree.map(partial(chosen, late), fresh, (new_obs, new_state))
        obs, state = new_obs, new_state
        pending = done & ~late
    return rows


def through(env, task, steps):
    """The same through the bridge."""
    env.drift(*drifted(0))
    rows, obs = [], np.array(env.reset(seed=3))
    for t in range(steps):
        env.drift(*drifted(t))
        action = actions(t, task.env.spec.action_size)
        out = jax.tree.map(np.array, env.step(action))
        clipped = np.clip(np.asarray(action), -1.0, 1.0)
        for i in np.flatnonzero(out.valid):
            rows.append(
                (i, obs[i], clipped[i], *(x[i] for x in (out.reward, out.terminated, out.truncated)), out[1][i])
            )
        obs = out.obs
    return rows


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs)
    for mine, yours in zip(ours, theirs, strict=True):
        for a, b in zip(mine, yours, strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_that_count_are_those_of_the_task_to_the_last_bit_under_drift():
    """Several episodes of each copy; phantom rewards of a billion are not among them."""

    class Rich(TorchVecTask):
        def step(self, actions):
            phantom = self.reset_buf != 0
            obs, reward, *rest = super().step(actions)
            reward[phantom] = 1e9
            return obs, reward, *rest

    rows = through(bridged(sim=InProcess(Rich(ANT, N), quantum=0.0)), ANT, 45)
    assert_equal(rows, native(ANT, 45))
    ended = [row for row in rows if row[4] or row[5]]
    assert len(ended) == N * (45 // (LIMIT + 1))
    assert len(rows) == 45 * N - len(ended)


def test_a_reset_before_the_move_is_masked_as_well():
    assert_equal(through(bridged(COPTER), COPTER, 30), native(COPTER, 30, before=True))


def test_a_failure_on_the_last_step_is_a_failure_where_the_observation_tells():
    """The reference reports the time limit."""
    task = TorchVecTask(ANT, N)
    task.extras["time_outs"] = None

    class Fallen(TorchVecTask):
        def step(self, actions):
            obs, *rest = super().step(actions)
            if self.progress_buf[0] == LIMIT:
                obs["obs"][0, 0] = 0.2
            return obs, *rest

    for label, expected in (("Ant", True), ("", False)):
        env = bridged(sim=InProcess(Fallen(ANT, N), label))
        env.reset(seed=0)
        rows = [env.step(jnp.zeros((N, 8))) for _ in range(LIMIT)][-1]
        assert bool(rows.terminated[0]) is expected
        assert bool(rows.truncated[0]) is not expected
        assert bool(rows.truncated[1])


def test_isaac_labs_last_observation_is_read_before_the_reset_where_that_is_asked_for():
    """Else it is lost: the row starts where the step began, and is not stored."""
    env, plain = SimEnv(InProcess(TorchLabTask(ANT, N), final=True)), SimEnv(InProcess(TorchLabTask(ANT, N)))
    obs = plain.reset(seed=0)
    np.testing.assert_array_equal(env.reset(seed=0), obs)
    for t in range(2 * LIMIT + 3):
        rows, without = (each.step(actions(t, 8)) for each in (env, plain))
        for name in set(rows._fields) - {"next_obs", "stored"}:
            np.testing.assert_array_equal(getattr(rows, name), getattr(without, name), err_msg=name)
        ended = (t + 1) % LIMIT == 0
        assert bool(rows.truncated.all()) is ended
        assert bool(rows.stored.all())
        assert bool(without.stored.any()) is not ended
        if ended:
            np.testing.assert_array_equal(rows.next_obs[:, -8:], jnp.clip(actions(t, 8), -1.0, 1.0))  # of this step
            assert not bool(rows.obs[:, -8:].any())  # of no step
            np.testing.assert_array_equal(without.next_obs, obs)
        else:
            np.testing.assert_array_equal(rows.next_obs, rows.obs)
        obs = without.obs
