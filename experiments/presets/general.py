"""Untuned default sizes for tasks without a preset."""

from aesjax.registry import Registry
from experiments.presets.preset import CarrierSettings, Preset, frozen

_SHORT = 200  # steps of an episode up to which ten of them per evaluation cost little beside training

# Rewards of order one per step are assumed, as nothing is known of the task.
_WEIGHT = 0.1
_RATES = frozen(learning_rate=1e-3, critic_learning_rate=1e-3, tau=0.01)
_CARRIERS = frozen(
    sac=CarrierSettings(_WEIGHT, frozen(hidden=(64, 64), batch_size=128, actor_delay=1), _RATES),
    ppo=CarrierSettings(
        base=0.01,  # of the normalised reward
        config=frozen(rollout=128, epochs=10, minibatches=8, hidden=(64, 64)),
        hyper=frozen(learning_rate=3e-4),
        num_envs=8,
    ),
    sql=CarrierSettings(
        _WEIGHT,
        frozen(hidden=(64, 64), batch_size=64, fixed_particles=8, updated_particles=8),
        frozen(reward_scale=1.0 / _WEIGHT, reference_weight=_WEIGHT, **_RATES),
    ),
    meow=CarrierSettings(
        _WEIGHT,
        frozen(flow_hidden=(64, 64), shift_hidden=(64, 64), batch_size=64),
        frozen(learning_rate=1e-3, tau=0.01, reference_weight=_WEIGHT),
    ),
)


def _preset(steps: int, evaluations: int, episodes: int, replay_fraction: float) -> Preset:
    return Preset(
        steps=steps,
        num_envs=1,  # a gradient step per environment step
        evaluations=evaluations,
        episodes=episodes,
        replay_fraction=replay_fraction,
        warmup_fraction=0.025,
        carriers=_CARRIERS,
    )


def general(time_limit: int) -> Registry[Preset]:
    """`quick` (minutes) and `paper` for a task whose episodes have up to ``time_limit`` steps.

    A small replay, because stale transitions hide a drift from any schedule.
    """
    if time_limit <= _SHORT:
        return Registry("preset", quick=_preset(20_000, 100, 10, 0.05), paper=_preset(100_000, 100, 10, 0.05))
    return Registry("preset", quick=_preset(40_960, 40, 5, 0.25), paper=_preset(1_024_000, 100, 10, 0.05))
