"""The registered carriers."""

from aesjax.registry import Registry
from agents import crossq, discrete, meow, ppo, sac, sql
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
        discrete=discrete.DiscreteSac,
    ),
    ppo=CarrierSpec(
        "PPO",
        ppo.Ppo,
        ppo.PpoConfig,
        ppo.PpoHyper,
        check_hyper,
        baseline="fixed",
        absent={"fresh_critic_drift": "its update batch is its newest transitions; use source 'update'"},
        unturned={
            **dict.fromkeys(("window", "recency"), "it has no replay: each rollout is dropped after the updates on it"),
            "updates": "'epochs' and 'minibatches' set the number of its gradient steps",
        },
        weight=0.01,  # of the normalised reward
        schedule={"lambda_max": 0.1},  # the paper's for PPO
        meaning=(
            *("hidden", "activation", "shared", "layer_norm", "log_std_bounds", "normalise_obs", "normalise_reward"),
            *("normalise_value", "gamma", "reward_scale"),
        ),
        episodic=("discounted",),
        discrete=discrete.DiscretePpo,
    ),
    sql=CarrierSpec(
        "SQL",
        sql.Sql,
        sql.SqlConfig,
        sql.SqlHyper,
        check_hyper,
        baseline="fixed",
        absent={"log_prob": "it reads log_prob, and SQL's sampler is implicit: it has no density"},
        positive="its policy is proportional to exp(Q / weight)",
        meaning=("hidden", "layer_norm", "gamma", "reward_scale"),
        discrete=discrete.DiscreteSql,
        exact=("log_prob",),
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
    crossq=CarrierSpec(
        "CrossQ",
        crossq.CrossQ,
        crossq.CrossQConfig,
        crossq.CrossQHyper,
        check_hyper,
        baseline="auto",
        meaning=("hidden", "gamma"),
        sized="sac",
        joint=True,
        in_all=False,
    ),
)
