"""Published settings of PPO as data: `ZOO` (Stable-Baselines3 with the tuned settings of its zoo, MuJoCo) and
`PARALLEL` (massively parallel tasks, skrl and rl_games), by task.

None anneals the learning rate, which would forbid answering a late drift.
"""

from aesjax.registry import Registry
from experiments.presets.preset import CarrierSettings, frozen


def _settings(base: float, num_envs: int, config: dict, hyper: dict) -> CarrierSettings:
    return CarrierSettings(base, frozen(**config), frozen(**hyper), num_envs=num_envs)


def _zoo(
    rollout: int, minibatch: int, gamma: float, rate: float, ent: float, clip: float, epochs: int, lam: float,
    norm: float, vf: float, hidden: tuple[int, ...] = (256, 256), activation: str = "relu", orthogonal: bool = False,
    log_std: float = -2.0,
) -> CarrierSettings:  # fmt: skip
    config = {
        "rollout": rollout,
        "epochs": epochs,
        "minibatches": rollout // minibatch,
        "hidden": hidden,
        "activation": activation,
        "orthogonal": orthogonal,
        "log_std": log_std,
        "value_clip": False,
    }
    hyper = {"learning_rate": rate, "gamma": gamma, "gae_lambda": lam, "clip": clip, "value_coef": vf, "max_norm": norm}
    return _settings(ent, 1, config, hyper)


ZOO: Registry[CarrierSettings] = Registry(
    "task of PPO's settings in the zoo",
    halfcheetah=_zoo(512, 64, 0.98, 2.0633e-5, 4.01762e-4, 0.1, 20, 0.92, 0.8, 0.58096),
    hopper=_zoo(512, 32, 0.999, 9.80828e-5, 2.29519e-3, 0.2, 5, 0.99, 0.7, 0.835671),
    walker2d=_zoo(512, 32, 0.99, 5.05041e-5, 5.85045e-4, 0.1, 20, 0.95, 1.0, 0.871923, (256,), "gelu"),
    humanoid=_zoo(512, 256, 0.95, 3.56987e-5, 2.38306e-3, 0.3, 5, 0.9, 2.0, 0.431892),
    ant=_zoo(2048, 64, 0.99, 3e-4, 0.0, 0.2, 10, 0.95, 0.5, 0.5, (64, 64), "tanh", True, 0.0),
)


def _parallel(
    hidden: tuple[int, ...], num_envs: int, rollout: int, minibatches: int, epochs: int, rate: float, kl: float,
    value_scale: float, reward_scale: float,
) -> CarrierSettings:  # fmt: skip
    config = {
        "rollout": rollout,
        "epochs": epochs,
        "minibatches": minibatches,
        "hidden": hidden,
        "activation": "elu",
        "orthogonal": False,
        "shared": True,
        "log_std_bounds": (-20.0, 2.0),
        "normalise_obs": 5.0,
        "normalise_reward": False,
        "normalise_value": True,
        "adaptive_rate": True,
    }
    hyper = {
        "learning_rate": rate,
        "kl_target": kl,
        "value_coef": 2.0 * value_scale,  # the source's loss has no half
        "max_norm": 1.0,
        "reward_scale": reward_scale,
    }
    return _settings(0.0, num_envs, config, hyper)


PARALLEL: Registry[CarrierSettings] = Registry(
    "task of PPO's settings for Isaac",
    isaac_ant=_parallel((256, 128, 64), 4096, 16, 2, 4, 3e-4, 0.008, 1.0, 0.01),
    isaac_humanoid=_parallel((400, 200, 100), 4096, 32, 4, 5, 5e-4, 0.008, 2.0, 0.01),
    isaac_ingenuity=_parallel((256, 256, 128), 4096, 16, 4, 8, 1e-3, 0.016, 1.0, 0.01),
    isaac_anymal=_parallel((256, 128, 64), 4096, 24, 3, 5, 3e-4, 0.008, 1.0, 1.0),
    isaac_allegro_hand=_parallel((512, 256, 128), 8192, 16, 4, 5, 5e-4, 0.02, 2.0, 0.01),
    isaac_franka_cabinet=_parallel((256, 128, 64), 4096, 16, 8, 8, 5e-4, 0.008, 2.0, 0.01),
)
