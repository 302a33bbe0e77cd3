"""The methods that a table of the paper, or of ours, compares, by name."""

from typing import NamedTuple

from aesjax.registry import Registry


class NamedStudy(NamedTuple):
    """Methods, and what else a table sets unless it is given."""

    schedules: str
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
    # The rows of the paper's table, whose AES couples the learning rate to the weight:
    # `agents.common.adapting.Coupling`.
    ablation=NamedStudy(
        "baseline,fixed,aes:coupling=1,linear,aes,"
        f"aes:{_NO_CLIP}:coupling=1,"
        "aes:proxy=td_mean:coupling=1,aes:proxy=value_loss:coupling=1,aes:proxy=critic_drift:coupling=1",
    ),
    # Of these the best in hindsight is what a schedule has to beat; the report names it for every pattern.
    fixed_grid=NamedStudy(
        "baseline," + _constants("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"), preset="paper"
    ),
    # What a drift signal should turn: entropy, data, parameters, rates.
    responses=NamedStudy(_levers(off_policy=True), seeds="1:10", preset="paper"),
    responses_ppo=NamedStudy(_levers(off_policy=False), seeds="1:10", preset="paper"),
    sensitivity_q=NamedStudy("baseline," + _axis("q", "0.5", "0.7", "0.8", "0.9", "0.95")),
    sensitivity_beta=NamedStudy("baseline," + _axis("beta", "0.8", "0.9", "0.95", "0.98", "0.99")),
    sensitivity_clip=NamedStudy(
        "baseline," + _pairs(("1e-5", "2"), ("1e-4", "1"), ("1e-5", "1"), ("1e-5", "0.5"), ("1e-4", "0.5"))
    ),
)
