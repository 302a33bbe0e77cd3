"""Sizes and settings of the Isaac family: massively parallel for an accelerator, and what two cores can do."""

from typing import Any, NamedTuple

from aesjax.registry import Registry
from experiments.presets.ppo_profiles import PARALLEL
from experiments.presets.preset import CarrierSettings, Preset, frozen


class _Task(NamedTuple):
    """Differences between the six tasks, as published; MEow's rows are its authors' on Isaac's tasks."""

    steps: int  # the reference trainer's samples, in whole PPO rollouts between 100 evaluations
    sac_weight: float  # where auto-tuning starts
    meow_weight: float
    meow_tau: float
    meow_log_sigma: tuple[float, float]
    sql_scale: float = 10.0  # nobody has published SQL on these tasks; Ant's and Humanoid's are MuJoCo's
    copies: int = 128  # of the off-policy carriers
    sac_tau: float = 0.0025
    walks: bool = False


_TASKS = {
    "isaac_ant": _Task(32_768_000, 0.4, 0.075, 0.0005, (-5.0, 2.0), 300.0, walks=True),
    "isaac_humanoid": _Task(131_072_000, 0.025, 0.25, 0.00025, (-5.0, -0.3), 100.0, walks=True),
    "isaac_ingenuity": _Task(32_768_000, 0.1, 0.025, 0.0025, (-4.0, -0.3)),
    "isaac_anymal": _Task(98_304_000, 0.01, 0.00075, 0.025, (-5.0, -1.0), walks=True),
    "isaac_allegro_hand": _Task(655_360_000, 0.1, 0.1, 0.001, (-4.0, -0.3), copies=512),
    "isaac_franka_cabinet": _Task(98_304_000, 0.1, 0.075, 0.01, (-5.0, -0.3), copies=512, sac_tau=0.025),
}

_ROWS = 131_072  # of a batch times the copies of an off-policy carrier
_REPLAY = 15_000  # transitions of a copy
_RANDOM = 100  # vector steps before learning
_COPIES = 64  # of any carrier on a CPU


def _off_policy(task: _Task, batch: int, sizes: dict[str, dict[str, Any]], rates: dict[str, Any]) -> dict[str, Any]:
    """SAC, SQL and MEow; ``sizes`` of their networks, ``rates`` where they are not the published ones."""
    low, high = task.meow_log_sigma
    weight, meow = 1.0 / task.sql_scale, rates or {"tau": task.meow_tau}
    both = {"critic_learning_rate": rates["learning_rate"]} if rates else {"tau": task.sac_tau}
    return {
        "sac": CarrierSettings(
            base=task.sac_weight,
            config=frozen(batch_size=batch, **sizes["sac"]),
            hyper=frozen(**rates | both),
        ),
        "sql": CarrierSettings(
            base=weight,
            config=frozen(batch_size=batch, **sizes["sql"]),
            hyper=frozen(reward_scale=task.sql_scale, reference_weight=weight, **rates | both),
        ),
        "meow": CarrierSettings(
            base=task.meow_weight,
            config=frozen(batch_size=batch, log_sigma_min=low, log_sigma_max=high, **sizes["meow"]),
            hyper=frozen(reference_weight=task.meow_weight, **meow),
        ),
    }


def _paper(name: str, task: _Task) -> Preset:
    """PPO as published. The others see as many samples, in fewer copies: one gradient step for all of them per step.

    Their publications look at them for 1e6 vector steps (`--steps` 128 or 512 million), and normalise observations,
    which our off-policy carriers do not.
    """
    sizes = {"sac": {"hidden": (512, 256)}, "sql": {"hidden": (256, 256)}, "meow": {}}
    return Preset(
        steps=task.steps,
        num_envs=task.copies,
        evaluations=100,
        episodes=10,
        replay=_REPLAY * task.copies,
        warmup=_RANDOM * task.copies,
        carriers=frozen(ppo=PARALLEL[name], **_off_policy(task, _ROWS // task.copies, sizes, {})),
    )


def _quick(name: str, task: _Task) -> Preset:
    """Small networks and 64 copies on MuJoCo's C engine: the behaviour of schedules, not what carriers can reach.

    PPO's published settings are for updates of 100,000 samples. With 2,048 the KL-adaptive learning rate and a trunk
    shared with a value loss of twice the weight let Humanoid and ANYmal forget what they had learned, and a first
    standard deviation of 1 throws every walker over; so those that walk have a constant rate, two networks, and e^-1.
    The others learn faster as published: with the walkers' settings Ingenuity stays at a fortieth of its return.
    """
    published = PARALLEL[name]
    small: dict[str, Any] = {"hidden": (128, 64), "rollout": 32, "minibatches": 4, "epochs": 5}
    steady: dict[str, Any] = {"adaptive_rate": False, "shared": False, "log_std": -1.0} if task.walks else {}
    rate = {"learning_rate": 3e-4} if task.walks else {}
    sizes = {
        "sac": {"hidden": (128, 128)},
        "sql": {"hidden": (64, 64), "fixed_particles": 8, "updated_particles": 8},
        "meow": {"flow_hidden": (64, 64), "shift_hidden": (64, 64)},
    }
    ppo = CarrierSettings(
        base=1e-3,  # the publication has no bonus, which leaves nothing to schedule
        config=frozen(**{**published.config, **small, **steady}),
        hyper=frozen(**{**published.hyper, **rate}),
    )
    return Preset(
        steps=1_024_000,
        num_envs=_COPIES,
        evaluations=25,
        episodes=4,
        replay_fraction=0.25,
        warmup_fraction=0.025,
        carriers=frozen(ppo=ppo, **_off_policy(task, 256, sizes, {"learning_rate": 1e-3, "tau": 0.01})),
    )


def _presets(name: str, task: _Task) -> Registry[Preset]:
    quick, paper = _quick(name, task), _paper(name, task)
    names = {"quick": quick, "paper": paper, "isaac-quick": quick, "isaac-paper": paper}
    return Registry("preset", **names)


ISAAC: dict[str, Registry[Preset]] = {name: _presets(name, task) for name, task in _TASKS.items()}
