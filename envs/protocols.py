"""Published drift protocols by name: the task, the drift and its clock, with what differs from the publication.

>>> PROTOCOLS["SlipperyAnt-v0"].period
2000000
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from aesjax.registry import Registry


@dataclass(frozen=True)
class Protocol:
    """A drift that others published; ``gymnasium.make("aesjax/NAME")`` and ``aesjax run --protocol NAME`` use it."""

    task: str
    patterns: tuple[str, ...]  # an environment has the first that drifts, a study all
    period: int  # environment steps of a segment, summed over parallel environments
    segments: int
    source: str
    deviations: str  # from the publication
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))  # of the task, channels included

    @property
    def steps(self) -> int:
        """Environment steps of a run."""
        return self.period * self.segments

    @property
    def summary(self) -> str:
        return f"{self.task}, {', '.join(self.patterns)}, every {self.period:,} steps ({self.source})"

    @property
    def environment(self) -> dict[str, Any]:
        """Arguments of the environments of `envs.adapters`."""
        pattern = next(name for name in self.patterns if name != "steady")
        sizes = {"period": self.period, "segments": self.segments}
        return {"task": self.task, "pattern": pattern, **sizes, **self.options}


_V5 = "task, reward and observation are Gymnasium's v5"
_DRAWN = "drawn values are not theirs and depend on the seed"
_AES, _RELEASE = "Adaptive Entropy Scheduling, text", "Adaptive Entropy Scheduling, authors' code"
_PATTERNS = ("steady", "abrupt", "linear", "periodic", "mixed")
_RELEASED = ("steady", "abrupt", "sawtooth", "periodic", "mixed_release")

PROTOCOLS: Registry[Protocol] = Registry(
    "protocol",
    **{
        "SlipperyAnt-v0": Protocol(
            task="ant",
            patterns=("redrawn",),
            period=2_000_000,
            segments=10,
            source="Dohare et al. 2024, Nature 632",
            deviations=f"{_V5}, not v3; friction is drawn log-uniformly and depends on the seed, their code "
            "reads it from a file; it changes within an episode, not at its end",
            options={"channels": ("geom_friction=0.02:2",)},
        ),
        "ChuaWalkerMass-v0": Protocol(
            task="walker2d",
            patterns=("noisy_sine", "ou"),
            period=250_000,
            segments=8,
            source="Chua et al., ICML 2026",
            deviations=f"{_V5}, not the DeepMind suite's; mass changes at every step, not after ten episodes; "
            "the sine's noise is drawn every 4,000 steps, with lines between; `ou` forgets within a tenth of the run, "
            "their process hardly at all",
            options={"channels": ("body_mass=0.95:1.05",)},
        ),
        "RealWorldWalkerFriction-v0": Protocol(
            task="walker2d",
            patterns=("linear",),
            period=50_000,
            segments=20,
            source="realworldrl_suite (Dulac-Arnold et al. 2020), scheduler `saw_wave`",
            deviations=f"{_V5}, not the DeepMind suite's; lines up and down with the mean of their random steps, which "
            "their code does not add up; starts at the lower end; no horizon is stated",
            options={"channels": ("geom_friction=0.015:2.85",)},
        ),
        "AESToy-v0": Protocol("toy", _PATTERNS, 20_000, 5, _AES, "the text states no horizon"),
        "AESReleaseToy-v0": Protocol(
            task="toy_multigoal_classic",
            patterns=_RELEASED,
            period=800,
            segments=5,
            source=_RELEASE,
            deviations="the code's changes are equal for all seeds; ours depend on the drift seed",
            options={"goal_shift": 0.5, "time_limit": 1_000},
        ),
    },
)

for _name in ("Hopper", "HalfCheetah", "Walker2d", "Ant", "Humanoid"):
    _task = _name.lower()
    PROTOCOLS[f"AES{_name}-v0"] = Protocol(
        task=_task,
        patterns=_PATTERNS,
        period=200_000,
        segments=5,
        source=_AES,
        deviations="the text states no horizon; joint friction is viscous and dry",
        options={"channels": ("body_mass=0.7:1.3", "joint_friction=0.5:1.5")},
    )
    _observation = {"observation": "v4"} if _task in ("ant", "humanoid") else {}
    PROTOCOLS[f"AESRelease{_name}-v0"] = Protocol(
        task=_task,
        patterns=_RELEASED,
        period=200_000,
        segments=5,
        source=_RELEASE,
        deviations=f"{_DRAWN}; inertia scales with mass; their joint friction is 0, so it does not drift",
        options={"channels": ("body_mass=0.7:1.3",), **_observation},
    )
