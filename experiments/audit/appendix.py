"""The quantitative sentences of Appendix B: ablation, proxies, sensitivity."""

from typing import Any

from experiments.audit.claim import ABRUPT, AES, BY_AES, DROP, NAUC, NO_NUMBER, RECOVERY, Claim, row_of
from experiments.audit.evidence import Spec, of
from experiments.audit.measured import Side, methods
from experiments.measure.patterns import STEADY

#: The AES of the ablation, whose learning rates follow the weight.
COUPLED = of("aes", coupling=1)
DEFAULT_ROW = "AES (Default)"
#: Rows of the paper's ablation beside its default -> what we train for them.
VARIANTS: dict[str, Spec] = {
    "Fixed lambda (No AES)": of("fixed"),
    "AES w/o coupling": AES,
    "AES w/o clipping": of("aes", lambda_min=0, lambda_max="inf", coupling=1),
    "AES (TD mean)": of("aes", proxy="td_mean", coupling=1),
    "AES (value loss)": of("aes", proxy="value_loss", coupling=1),
    "Heuristic linear schedule": of("linear"),
    "AES (critic drift)": of("aes", proxy="critic_drift", coupling=1),
}
_WEAKER = {  # section and text of the claim that a row is weaker than the default
    "Fixed lambda (No AES)": ("B.2", "Without AES, at a fixed weight"),
    "AES w/o coupling": ("B.2", "Without coupling"),
    "AES w/o clipping": ("B.2", "Without clipping"),
    "AES (TD mean)": ("B.3", "With the mean TD error as proxy"),
    "AES (value loss)": ("B.3", "With the value loss as proxy"),
    "Heuristic linear schedule": ("B.3", "With the reactive linear schedule"),
}
#: Rows of the paper's table over the clip range.
CLIPS: dict[tuple[str, str], Spec] = {
    (low, high): of("aes", lambda_min=low, lambda_max=high)
    for low, high in (("1e-5", "2"), ("1e-4", "1"), ("1e-5", "1"), ("1e-5", "0.5"), ("1e-4", "0.5"))
}
_CLIP = ("1e-4", "1")  # the default


def level(name: str, *values: str) -> Side:
    """AES at these values of one hyper-parameter."""
    return methods(*(of("aes", **{name: value}) for value in values))


def _weaker() -> list[Claim]:
    made = []
    for at, (row, (section, text)) in enumerate(_WEAKER.items(), 1):
        nauc, drop = (row_of("ablation", column, DEFAULT_ROW, row) for column in ("nauc", "drop_ratio"))
        sides: dict[str, Any] = {"first": methods(VARIANTS[row]), "second": methods(COUPLED)}
        made.append(Claim(f"E{at}a", section, f"{text}: lower nAUC", nauc, sign=-1, **sides))
        made.append(Claim(f"E{at}b", section, f"{text}: larger DropRatio", drop, metric=DROP, **sides))
    return made


def _proxies() -> list[Claim]:
    taken = [VARIANTS[row] for row, (section, _) in _WEAKER.items() if section == "B.2"]
    drift, default = methods(VARIANTS["AES (critic drift)"]), methods(COUPLED)
    noisy = methods(VARIANTS["AES (TD mean)"], VARIANTS["AES (value loss)"])
    text = "What is taken away shows more in DropRatio than in nAUC"
    numbers = row_of("ablation", "nauc", DEFAULT_ROW, "AES (critic drift)")
    return [
        Claim("E7", "B.2", text, "0.07 against 0.04", "mean", methods(*taken), default, f"{DROP}+{NAUC}"),
        Claim("E8", "B.3", "Critic drift as proxy is competitive in nAUC", numbers, "never_worse", drift, default),
        Claim(
            *("E9", "B.3", "With critic drift recovery is slower", NO_NUMBER, "mean", drift, default, RECOVERY),
            patterns=ABRUPT,
            weigh="task",
        ),
        Claim(
            *("E10", "B.3", "Mean TD error and value loss make a noisier weight", NO_NUMBER, "mean", noisy, default),
            metric="weight_noise",
            patterns=(STEADY,),
        ),
    ]


def _quantiles() -> list[Claim]:
    at, name, default = "B.4.1", "q", level("q", "0.9")
    stable = row_of("quantile", "nauc", "0.8", "0.9")
    others = level(name, "0.5", "0.7", "0.8", "0.95")
    return [
        Claim(
            *("F1", at, "Moderate to high quantiles (0.8, 0.9) do best", "0.84, 0.83 against 0.82, 0.81", "mean"),
            first=level(name, "0.8", "0.9"),
            second=level(name, "0.5", "0.95"),
        ),
        Claim(
            *("F2", at, "A low quantile (0.5) underreacts to drift", NO_NUMBER, "mean", level(name, "0.5"), default),
            metric="responsiveness",
            sign=-1,
            patterns=ABRUPT,
        ),
        Claim(
            *("F3", at, "A very high quantile (0.95) makes a more variable weight", NO_NUMBER, "mean"),
            first=level(name, "0.95"),
            second=default,
            metric="weight_noise",
            patterns=(STEADY,),
        ),
        Claim("F4", at, "The default q = 0.9 lies in the stable region", stable, "never_worse", default, others),
    ]


def _smoothing() -> list[Claim]:
    at, name, default = "B.4.2", "beta", level("beta", "0.95")
    return [
        Claim(
            *("G1", at, "Weak smoothing (0.8) makes a more variable weight", NO_NUMBER, "mean"),
            first=level(name, "0.8"),
            second=default,
            metric="weight_noise",
            patterns=(STEADY,),
        ),
        Claim(
            *("G2", at, "Strong smoothing (0.99) delays the response", NO_NUMBER, "mean", level(name, "0.99"), default),
            metric="responsiveness",
            sign=-1,
            patterns=ABRUPT,
        ),
        Claim(
            *("G3", at, "Intermediate smoothing (0.95) does best", "0.84 against 0.82, 0.82", "mean"),
            first=default,
            second=level(name, "0.8", "0.99"),
        ),
    ]


def _clipping() -> list[Claim]:
    at, default = "B.4.3", methods(CLIPS[_CLIP])
    wide, narrow = methods(CLIPS["1e-5", "2"]), methods(CLIPS["1e-4", "0.5"])
    others = methods(*(spec for bounds, spec in CLIPS.items() if bounds != _CLIP))
    return [
        Claim("H1", at, "A wider clip range costs nAUC", "0.84 → 0.82", "mean", wide, default, sign=-1),
        Claim(
            *("H2", at, "A wider clip range makes the weight less stable", NO_NUMBER, "mean", wide, default),
            metric="weight_noise",
            patterns=(STEADY,),
        ),
        Claim("H3", at, "A narrow clip range costs nAUC", "0.84 → 0.80", "mean", narrow, default, sign=-1),
        Claim(
            *("H4", at, "The default clip range is the most consistent", "0.84 against 0.80 to 0.83", "never_worse"),
            first=default,
            second=others,
        ),
    ]


def _structure() -> list[Claim]:
    """What the experiments are said to test: the weight goes up with drift and down without."""
    at, calm = "3.5, B.6", methods(AES, pattern=STEADY)
    return [
        Claim(
            *("I1", at, "The entropy weight rises after a change", NO_NUMBER, "mean", BY_AES, calm),
            metric="responsiveness",
            patterns=ABRUPT,
        ),
        Claim(
            *("I2", at, "The entropy weight is larger under drift", NO_NUMBER, "mean", BY_AES, calm),
            metric="mean_entropy_weight",
        ),
    ]


APPENDIX: tuple[Claim, ...] = tuple(_weaker() + _proxies() + _quantiles() + _smoothing() + _clipping() + _structure())
