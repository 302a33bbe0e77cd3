"""The carrier interface: pure functions that never hold an entropy weight of their own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from aesjax.types import Array, Signals


class Transition(NamedTuple):
    """One or many environment steps; leading axes are free. ``next_obs`` is never a reset observation."""

    obs: Array  # (..., S) float32
    action: Array  # (..., A) float32, normalised to [-1, 1]
    reward: Array  # (...,) float32, raw task reward
    terminated: Array  # (...,) float32, 1 where the MDP ended; only this stops the bootstrap
    next_obs: Array  # (..., S) float32, the true successor, before any auto-reset


class Rollout(NamedTuple):
    """T steps of N environments, (T, N, ...) each, collected with one set of parameters."""

    obs: Array  # (T, N, S) float32, normalised as the policy saw them
    action: Array  # (T, N, A) float32, the policy's sample, not clipped
    reward: Array  # (T, N) float32, scaled as the critic is trained
    terminated: Array  # (T, N) float32
    truncated: Array  # (T, N) float32
    next_obs: Array  # (T, N, S) float32, normalised true successor, before any auto-reset
    valid: Array | None = None  # (T, N) bool, rows that count, the others zero but truncated; None: all


class UpdateOut(NamedTuple):
    """Result of one gradient step."""

    state: Any
    signals: Signals
    # () float32 each; always `critic_loss` and `actor_loss` (0 without an actor)
    metrics: dict[str, Array]


class Network(NamedTuple):
    """One network of a carrier: its role and state fields."""

    role: str  # "critic" or "actor"
    params: str = "params"
    opt: str = "opt"
    target: str | None = None  # None: it has no target parameters
    heads: Mapping[str, str] = MappingProxyType({})  # top-level names of its parameters with another role -> that role

    def role_of(self, name: str) -> str:
        """Role of the parameters with this top-level name."""
        return self.heads.get(name, self.role)


@dataclass(frozen=True)
class Algorithm(ABC):
    """Base of off-policy and on-policy algorithms; the entropy weight is an argument wherever it is used.

    Residuals, values and entropy weights are in raw reward units, for any scale of the carrier's training.
    S = observation size, A = action size, N = environments, B = update batch.
    """

    obs_size: int
    action_size: int
    config: Any  # static structure

    @property
    def networks(self) -> tuple[Network, ...]:
        """Networks that can be refreshed (`agents.common.plasticity`)."""
        return ()

    @abstractmethod
    def act(self, state: Any, obs: Array, key: Array) -> Array:
        """Behaviour actions (N, A) for observations (N, S).

        On-policy: for normalised observations, and actions may leave [-1, 1].
        """

    @abstractmethod
    def act_deterministic(self, state: Any, obs: Array) -> Array:
        """Evaluation actions (N, A) for raw observations (N, S)."""

    @abstractmethod
    def entropy(self, state: Any, obs: Array, key: Array) -> Array:
        """Entropy of the policy, () nats, mean over raw observations (B, S)."""


@dataclass(frozen=True)
class Carrier(Algorithm):
    """An off-policy maximum-entropy algorithm; its config has a field `batch_size` (B)."""

    @abstractmethod
    def init(self, key: Array) -> Any:
        """The state of a new agent."""

    @abstractmethod
    def q_value(self, state: Any, obs: Array, action: Array, *, entropy_weight: Any, hyper: Any) -> Array:
        """Both state-action values (2, B), without dropout."""

    @abstractmethod
    def td_error(self, state: Any, batch: Transition, key: Array, *, entropy_weight: Array, hyper: Any) -> Array:
        """Residuals (2B,) of a batch, no gradient."""

    @abstractmethod
    def update(
        self, state: Any, batch: Transition, key: Array, step: Array, *, entropy_weight: Array, hyper: Any
    ) -> UpdateOut:
        """One gradient step on a batch (B,) at vector step ``step`` ()."""


@dataclass(frozen=True)
class OnPolicyCarrier(Algorithm):
    """An on-policy algorithm: complete rollouts, several epochs of minibatches, one gradient step per minibatch.

    Its config has fields `rollout` (T), `epochs` and `minibatches`. `prepare` turns a rollout into rows with a leading
    axis T * N, and `update` receives minibatches of them. Masks (N,) bool exclude environments from statistics;
    None: all count.
    """

    @abstractmethod
    def init(self, key: Array, num_envs: int) -> Any:
        """The state of a new agent."""

    @abstractmethod
    def observe(self, state: Any, obs: Array, live: Array | None = None) -> tuple[Any, Array]:
        """State with updated statistics of observations (N, S), and the normalised observations."""

    @abstractmethod
    def view(self, state: Any, obs: Array) -> Array:
        """Normalised observations; statistics are unchanged."""

    @abstractmethod
    def scale_reward(
        self, state: Any, reward: Array, done: Array, hyper: Any, valid: Array | None = None
    ) -> tuple[Any, Array]:
        """State with updated statistics of rewards (N,), and the scaled rewards; ``done`` (N,) float32."""

    @abstractmethod
    def prepare(self, state: Any, rollout: Rollout, hyper: Any) -> tuple[Any, Any, Array]:
        """State, data set and residuals (T * N,) of a rollout."""

    @abstractmethod
    def update(self, state: Any, batch: Any, *, entropy_weight: Array, hyper: Any) -> UpdateOut:
        """One gradient step on rows of the data set."""

    @abstractmethod
    def end_epoch(self, state: Any, metrics: dict[str, Array], hyper: Any) -> Any:
        """State after an epoch with these mean metrics."""
