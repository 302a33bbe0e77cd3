"""Settings of the authors' code (github.com/WtxwNs/AES): its flow carrier on the toy task, SAC, PPO and flow on MuJoCo.

For its first weight the schedule is typed ``aes:base=1e-4``; PPO's base of 0 gives it anyway. Differences that remain:
PPO's learning rate is not annealed, its proxy is one rollout's one-step residuals, and it bootstraps on time limits;
evaluations of SAC take the mean action, and the actor's delay counts updates. The code has no SQL, and neither SAC nor
PPO on the toy task.
"""

from experiments.presets.preset import CarrierSettings, Preset, frozen


def _sac(gamma: float) -> CarrierSettings:
    """`baseline` tunes the weight from 1; 0.2 is the constant of the code's untuned variant."""
    return CarrierSettings(0.2, frozen(actor_delay=2), frozen(gamma=gamma))


def _ppo(gamma: float, rollout: int, minibatches: int) -> CarrierSettings:
    """No entropy bonus: ``base`` is 0."""
    config = frozen(rollout=rollout, minibatches=minibatches)
    return CarrierSettings(0.0, config, frozen(gamma=gamma))


def _meow(weight: float, low: float, high: float, gamma: float, tau: float) -> CarrierSettings:
    """The entropy weight multiplies the reward shifts, too."""
    config = frozen(shift_units="lam", log_sigma_min=low, log_sigma_max=high)
    return CarrierSettings(weight, config, frozen(gamma=gamma, tau=tau, reference_weight=weight))


def _preset(steps: int, evaluations: int, warmup: int, options: dict, **carriers: CarrierSettings) -> Preset:
    own = frozen(**carriers)
    return Preset(steps, 1, evaluations, 10, own, replay=1_000_000, warmup=warmup, options=frozen(**options))


# SQL has the temperature of the flow.
TOY_RELEASE = _preset(
    4_000,
    evaluations=5,
    warmup=1_000,
    options={"goal_shift": 0.5, "time_limit": 1_000},
    sac=_sac(0.9),
    ppo=_ppo(0.9, 800, 16),
    sql=CarrierSettings(2.5, frozen(), frozen(gamma=0.9, reward_scale=0.4, reference_weight=2.5)),
    meow=_meow(2.5, -2.0, 1.0, 0.9, 0.0005),
)


def mujoco_release(name: str, sql: CarrierSettings) -> Preset:
    """A million steps, rounded up to whole rollouts of PPO between evaluations; body mass (with inertia) drifts alone.

    The code also scales the joints' dry friction, which is 0 in these models. ``sql``: settings of SQL, which it lacks.
    """
    options = {"channels": ("body_mass",)} | ({"observation": "v4"} if name in ("ant", "humanoid") else {})
    carriers = {"sac": _sac(0.99), "ppo": _ppo(0.99, 2048, 32), "meow": _meow(0.2, -5.0, -0.3, 0.99, 0.005)}
    return _preset(1_024_000, evaluations=100, warmup=5_000, options=options, sql=sql, **carriers)
