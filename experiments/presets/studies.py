"""Named studies: which methods a table of the paper compares. `--study NAME` stands for the options listed here."""

from typing import NamedTuple

from aesjax.registry import Registry

_EVERY = "sac,ppo,sql,meow"


class NamedStudy(NamedTuple):
    """Options of `aesjax run` that a name stands for; whatever is typed beside it wins."""

    carriers: str
    schedules: str
    summary: str
    patterns: str = "all"
    seeds: str = "1:5"
    preset: str = "quick"


def _pairs(*bounds: tuple[str, str]) -> str:
    return ",".join(f"aes:lambda_min={low}:lambda_max={high}" for low, high in bounds)


def _axis(name: str, *values: str) -> str:
    return ",".join(f"aes:{name}={value}" for value in values)


def _constants(*weights: str) -> str:
    return ",".join(f"fixed:base={weight}" for weight in weights)


def _levers(off_policy: bool) -> str:
    """Adaptations by a drift signal, with constants, true timing and the literature's fixed intervals."""
    signals = "aes,aes_r,aes_c,oracle"
    if not off_policy:
        turned = "fixed+rate,fixed+refresh,aes_r+rate,aes_r+refresh,aes_c+refresh,oracle+refresh"
        return f"baseline,fixed,{signals},{turned},fixed+reset:strength=0.5," + _constants("0.002", "0.02", "0.05")
    data = "fixed+window,aes_r+window,aes_c+window,oracle+window,fixed+forget,aes_c+forget,oracle+forget"
    both = "aes_r+forget+refresh,aes_c+forget+refresh,oracle+forget+refresh,aes_c+refresh,aes_c+recent+refresh"
    both += ",aes_c+recent+refresh:threshold=3"
    clocks = "fixed+recent,fixed+ere,fixed+reset:strength=0.5"
    return f"baseline,fixed,{signals},{data},{both},fixed+rate,{clocks}," + _constants("0.02", "0.1", "0.2", "0.5")


_NO_CLIP = "lambda_min=0:lambda_max=inf"

# The baseline stands first in each: its steady runs are what returns are normalised by.
STUDIES: Registry[NamedStudy] = Registry(
    "study",
    default=NamedStudy("sac", "baseline,aes,aes_r", "SAC by itself, with AES and with AES-R"),
    toy_table=NamedStudy(_EVERY, "baseline,aes,aes_r", "the paper's main tables: four carriers", preset="paper"),
    # The rows of the paper's table, whose AES couples the learning rate to the weight:
    # `agents.common.adapting.Coupling`.
    ablation=NamedStudy(
        _EVERY,
        "baseline,fixed,aes:coupling=1,linear,aes,"
        f"aes:{_NO_CLIP}:coupling=1,"
        "aes:proxy=td_mean:coupling=1,aes:proxy=value_loss:coupling=1,aes:proxy=critic_drift:coupling=1",
        "the paper's mechanism ablation",
    ),
    # Of these the best in hindsight is what a schedule has to beat; the report names it for every pattern.
    fixed_grid=NamedStudy(
        _EVERY,
        "baseline," + _constants("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"),
        "constant weights: the best in hindsight of every pattern",
        preset="paper",
    ),
    responses=NamedStudy(
        "sac,sql,meow",
        _levers(off_policy=True),
        "what a drift signal should turn: entropy, data, parameters, rates; with `--carriers ppo` see responses_ppo",
        seeds="1:10",
        preset="paper",
    ),
    responses_ppo=NamedStudy(
        "ppo",
        _levers(off_policy=False),
        "the same for PPO, which keeps no data to choose from",
        seeds="1:10",
        preset="paper",
    ),
    sensitivity_q=NamedStudy(
        _EVERY, "baseline," + _axis("q", "0.5", "0.7", "0.8", "0.9", "0.95"), "the paper's table over the quantile"
    ),
    sensitivity_beta=NamedStudy(
        _EVERY, "baseline," + _axis("beta", "0.8", "0.9", "0.95", "0.98", "0.99"), "the paper's table over smoothing"
    ),
    sensitivity_clip=NamedStudy(
        _EVERY,
        "baseline," + _pairs(("1e-5", "2"), ("1e-4", "1"), ("1e-5", "1"), ("1e-5", "0.5"), ("1e-4", "0.5")),
        "the paper's table over the clip range",
    ),
)
