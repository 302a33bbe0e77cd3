"""A carrier's registry entry: constructor, settings and default entropy weight."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from aesjax.typed import require, typed
from agents.common.carrier import Carrier, OnPolicyCarrier
from envs.adopt import trying

_SHARES = ("gamma", "gae_lambda", "tau", "weight_decay")


class CarrierSpec(NamedTuple):
    """An entry of `agents.CARRIERS`."""

    kind = "carrier"
    traits = ("label", "baseline")  # fields that a stored definition holds
    label: str  # name in tables: "SAC", and "SAC+AES" with a schedule
    make: Callable[[int, int, Any], Carrier | OnPolicyCarrier]  # obs_size, action_size, config; continuous actions
    config: type  # frozen dataclass of static structure
    hyper: type  # NamedTuple of traced floats
    check: Callable[[Any], None]  # raises ValueError for concrete values of `hyper` that make no sense
    baseline: str  # schedule that stands for the carrier's own entropy weight
    absent: Mapping[str, str] = {}  # fields of `Signals` it cannot report -> the reason
    unturned: Mapping[str, str] = {}  # levers of `aesjax.adaptations` that it lacks -> the reason
    weight: float = 0.1  # static entropy weight where no preset gives one; reward per nat
    positive: str = ""  # why its entropy weight cannot be 0; "": it can
    schedule: Mapping[str, float] = {}  # options of its schedules, instead of their defaults
    #: settings of ``config`` and ``hyper`` that must match to load trained parameters; None: all of ``config``
    meaning: tuple[str, ...] | None = None
    episodic: tuple[str, ...] = ()  # fields of its state that belong to unfinished episodes
    #: as `make`, for discrete actions, one-hot rows (A,); None: it refuses them
    discrete: Callable[[int, int, Any], Carrier | OnPolicyCarrier] | None = None
    exact: tuple[str, ...] = ()  # fields of `absent` that it reports where actions are discrete
    #: optax transformation of gradients, such as ``optax.scale_by_rms()``; None: the carrier's Adam
    optimiser: Any = None
    sized: str = ""  # carrier whose presets it takes, as far as it has their settings; "": none but its own
    joint: bool = False  # an update normalises over its batch, so that each residual of it depends on all rows
    in_all: bool = True  # part of `--carriers all`

    @property
    def name(self) -> str:
        """Lower-case label, used in data and folder names: "sac"."""
        return re.sub(r"\W+", "_", self.label.lower())

    @property
    def on_policy(self) -> bool:
        """Whether it learns from complete rollouts, as its class decides."""
        return isinstance(self.make(1, 1, self.config()), OnPolicyCarrier)

    def lacks(self, discrete: bool) -> Mapping[str, str]:
        """`absent` for one kind of actions."""
        return {field: reason for field, reason in self.absent.items() if not (discrete and field in self.exact)}

    def agent(self, obs_size: int, action_size: int, config: Any, discrete: bool = False) -> Any:
        """The carrier of these sizes, with the optimiser of this entry; ValueError if it does not take it."""
        make: Any = self.discrete if discrete else self.make
        agent = make(obs_size, action_size, config)
        if self.optimiser is None:
            return agent
        if "optimiser" not in {field.name for field in fields(agent)}:
            raise ValueError(f"carrier {self.label} takes no optimiser: its class has no field `optimiser`")
        check_optimiser(self.optimiser)
        return replace(agent, optimiser=self.optimiser)

    def check_lever(self, adaptation: str, lever: str, carrier: str) -> None:
        """Raise a ValueError for an adaptation of a lever that the carrier, called ``carrier``, does not have."""
        if lever in self.unturned:
            raise ValueError(f"adaptation '{adaptation}' cannot be used with {carrier}: {self.unturned[lever]}")

    def check_base(self, base: Any) -> None:
        """Raise a ValueError for a first entropy weight that the carrier cannot have; not for None or a traced one."""
        if self.positive and not isinstance(base, Tracer) and base == 0.0:
            raise ValueError(
                f"carrier '{self.name}' needs an entropy weight above 0, because {self.positive}; got base=0"
            )


def check_hyper(hyper: Any) -> None:
    """Raise a ValueError unless fields of `_SHARES` lie in [0, 1] and all others are positive and finite."""
    for name, value in hyper._asdict().items():
        field = f"{type(hyper).__name__}.{name}"
        value = typed(float, value, field)
        if name in _SHARES:
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{field} must lie in [0, 1]; got {value:g}")
        elif not 0.0 < value < float("inf"):
            raise ValueError(f"{field} must be positive and finite; got {value:g}")


def check_optimiser(optimiser: Any) -> None:
    """Raise a ValueError unless it is an optax transformation whose steps have the sign of the gradients."""
    kind = "an optax transformation such as optax.scale_by_rms()"
    require(isinstance(optimiser, optax.GradientTransformation), "optimiser", kind, optimiser)
    with trying("the optimiser does not work"), jax.ensure_compile_time_eval():
        ones = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2)}
        steps, _ = optimiser.update(ones, optimiser.init(ones), ones)
        downhill = bool(jnp.sum(steps["kernel"]) < 0.0)
    kind = "without sign and learning rate: optax.scale_by_adam(), or optax.chain(optax.adam(1.0), optax.scale(-1.0))"
    require(not downhill, "optimiser", kind, optimiser)
