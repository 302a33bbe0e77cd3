"""The registered carriers."""

from aesjax.registry import Registry
from agents import meow, ppo, sac, sql
from agents.common.spec import CarrierSpec, check_hyper

CARRIERS: Registry[CarrierSpec] = Registry(
    "carrier",
    sac=CarrierSpec(
        "SAC",
        sac.Sac,
        sac.SacConfig,
        sac.SacHyper,
        check_hyper,
        baseline="auto",
        meaning=("hidden", "layer_norm", "gamma"),
    ),
    ppo=CarrierSpec(
        "PPO",
        ppo.Ppo,
        ppo.PpoConfig,
        ppo.PpoHyper,
        check_hyper,
        baseline="fixed",
        absent={"fresh_critic_drift": "its newest transitions are its update batch, take source 'update'"},
        unturned={
            "window": "it keeps no replay: every rollout is new, and is dropped once it has been learned from",
            "updates": "it takes its gradient steps after a rollout; their number is set by 'epochs' and 'minibatches'",
        },
        meaning=(
            *("hidden", "activation", "shared", "layer_norm", "log_std_bounds", "normalise_obs", "normalise_reward"),
            *("normalise_value", "gamma", "reward_scale"),
        ),
        episodic=("discounted",),
    ),
    sql=CarrierSpec(
        "SQL",
        sql.Sql,
        sql.SqlConfig,
        sql.SqlHyper,
        check_hyper,
        baseline="fixed",
        absent={"log_prob": "it reads log_prob, and SQL's sampler is implicit: it has no density"},
        meaning=("hidden", "layer_norm", "gamma", "reward_scale"),
    ),
    meow=CarrierSpec(
        "MEow",
        meow.Meow,
        meow.MeowConfig,
        meow.MeowHyper,
        check_hyper,
        baseline="fixed",
        meaning=(
            *("flow_hidden", "shift_hidden", "layer_norm", "log_sigma_min", "log_sigma_max", "shift_units"),
            *("gamma", "reference_weight"),
        ),
    ),
)
