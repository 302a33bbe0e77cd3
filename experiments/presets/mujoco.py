"""Sizes and settings of the MuJoCo family: the carriers' published ones, and a horizon that two cores finish."""

from dataclasses import replace
from typing import Any, NamedTuple

from aesjax.registry import Registry
from experiments.presets.ppo_profiles import PARALLEL, ZOO
from experiments.presets.preset import CarrierSettings, Preset, frozen
from experiments.presets.release import mujoco_release


class _Task(NamedTuple):
    """Differences between the five tasks."""

    steps: int  # the published horizon, rounded up to whole PPO rollouts between 100 evaluations
    reward_scale: float  # SQL's; its reciprocal is SQL's temperature in raw reward units
    meow_weight: float
    meow_tau: float
    meow_log_sigma: tuple[float, float] = (-5.0, -0.3)
    meow_warmup: int | None = None  # None: the other carriers' 5000


_TASKS = {
    "hopper": _Task(2_048_000, 30.0, 0.25, 0.005),
    "halfcheetah": _Task(4_096_000, 30.0, 0.25, 0.003, (-5.0, 2.0), meow_warmup=10_000),
    "walker2d": _Task(4_096_000, 10.0, 0.1, 0.005, meow_warmup=10_000),
    "ant": _Task(4_096_000, 300.0, 0.05, 0.0001),
    "humanoid": _Task(5_120_000, 100.0, 0.125, 0.0005),
}

# SAC's weight is tuned by itself; 0.2 is where `fixed` stays and what `aes_r` raises: the usual constant here.
_SAC_BASE = 0.2


def _sql(task: _Task, **config: Any) -> CarrierSettings:
    weight = 1.0 / task.reward_scale
    hyper = frozen(reward_scale=task.reward_scale, reference_weight=weight)
    return CarrierSettings(base=weight, config=frozen(**config), hyper=hyper)


def _meow(task: _Task, tau: float, **config: Any) -> CarrierSettings:
    low, high = task.meow_log_sigma
    return CarrierSettings(
        base=task.meow_weight,
        config=frozen(log_sigma_min=low, log_sigma_max=high, **config),
        hyper=frozen(tau=tau, reference_weight=task.meow_weight),
    )


def _paper(name: str, task: _Task) -> Preset:
    """One environment, one gradient step per step, the networks and rates of the carriers' own publications."""
    return Preset(
        steps=task.steps,
        num_envs=1,
        evaluations=100,
        episodes=10,
        replay=1_000_000,
        warmup=5_000,
        carriers=frozen(
            sac=CarrierSettings(base=_SAC_BASE, config=frozen(actor_delay=2), hyper=frozen()),
            ppo=ZOO[name],
            sql=_sql(task),
            meow=replace(_meow(task, task.meow_tau), warmup=task.meow_warmup),
        ),
    )


def _warm(name: str, task: _Task) -> Preset:
    """Sizes for `--warm-start`: wide ranges, short runs, and networks small enough to be stored with the code.

    The same preset trains the agents, on the pattern steady with ``--steps`` ten times as many. Three episodes per
    evaluation: with a hundred evaluations of a thousand steps each they already take longer than the training.
    """
    return replace(
        _quick(name, task),
        steps=102_400,
        num_envs=4,  # as the stored agents were trained
        evaluations=100,
        episodes=3,
        replay_fraction=0.2,  # with a larger one stale data hides what a schedule does
        warmup=5_120,
        options=frozen(channels=("hard",)),
    )


def _quick(name: str, task: _Task) -> Preset:
    """Small networks, one gradient step per environment step: the behaviour of schedules, not what carriers reach."""
    rates = frozen(learning_rate=1e-3, critic_learning_rate=1e-3, tau=0.01)
    sql = _sql(task, hidden=(64, 64), batch_size=64, fixed_particles=8, updated_particles=8)
    return Preset(
        steps=40_960,
        num_envs=1,
        evaluations=40,
        episodes=5,
        replay_fraction=0.25,
        warmup_fraction=0.025,
        carriers=frozen(
            sac=CarrierSettings(base=_SAC_BASE, config=frozen(hidden=(64, 64), batch_size=128), hyper=rates),
            ppo=CarrierSettings(
                base=ZOO[name].base or 1e-3,  # the zoo gives Ant no bonus, which leaves nothing to schedule
                config=frozen(rollout=128, epochs=10, minibatches=16, hidden=(64, 64)),
                hyper=frozen(learning_rate=3e-4),
                num_envs=8,
            ),
            sql=CarrierSettings(sql.base, sql.config, frozen(**sql.hyper, **rates)),
            meow=_meow(task, 0.01, flow_hidden=(64, 64), shift_hidden=(64, 64), batch_size=64),
        ),
    )


def _gpu(task: _Task) -> Preset:
    """Thousands of environments for an accelerator. Not tuned here.

    PPO has Isaac's settings of Ant, with a bonus. The off-policy carriers take one gradient step per vector step of
    1,024 environments on large batches; SAC follows FastTD3 and FastSAC (Seo et al. 2025) in batch size, layer norm
    and fast target networks, which take several gradient steps per vector step.
    """
    published = PARALLEL["isaac_ant"]
    return Preset(
        steps=65_536_000,
        num_envs=1024,
        evaluations=100,
        episodes=32,
        replay=2_097_152,
        warmup=102_400,
        carriers=frozen(
            sac=CarrierSettings(
                base=_SAC_BASE,
                config=frozen(hidden=(512, 256), batch_size=8192, layer_norm=True),
                hyper=frozen(critic_learning_rate=3e-4, tau=0.1),
            ),
            ppo=replace(published, base=1e-3),
            sql=_sql(task, batch_size=1024),
            meow=_meow(task, task.meow_tau, batch_size=1024),
        ),
    )


def _presets(name: str, task: _Task) -> Registry[Preset]:
    quick, paper = _quick(name, task), _paper(name, task)
    names = {"quick": quick, "paper": paper, "mujoco-quick": quick, "mujoco-paper": paper}
    return Registry(
        "preset",
        **names,
        **{"mujoco-warm": _warm(name, task), "mujoco-gpu": _gpu(task)},
        release=mujoco_release(name, _sql(task)),
    )


MUJOCO: dict[str, Registry[Preset]] = {name: _presets(name, task) for name, task in _TASKS.items()}
