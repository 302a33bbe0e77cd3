"""The carrier protocol: pure functions that never hold an entropy weight of their own."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aesjax.types import Array, Signals
from agents.common.plasticity import Probe


class Transition(NamedTuple):
    """One or many environment steps; leading axes are free. ``next_obs`` is never a reset observation."""

    obs: Array  # (..., S) float32
    action: Array  # (..., A) float32, normalised to [-1, 1]
    reward: Array  # (...,) float32, raw task reward
    terminated: Array  # (...,) float32, 1 where the MDP ended; only this stops the bootstrap
    next_obs: Array  # (..., S) float32, the true successor, before any auto-reset


class UpdateOut(NamedTuple):
    """Result of one gradient step."""

    state: Any
    signals: Signals
    # () float32 each; always `critic_loss` and `actor_loss` (0 where there is no actor); `grad_norm` beside a `probe`
    metrics: dict[str, Array]


#: state, a fresh one, critic (), actor () -> the state whose parameters went a step towards the fresh ones,
#: ``p + step (p_fresh - p)``: the critic's, targets included, by ``critic`` and the actor's by ``actor``, in [0, 1]. An
#: optimiser whose parameters moved starts anew; what only describes the data (running statistics) stays.
Refresh = Callable[[Any, Any, Any, Any], Any]
#: state, obs (B, S), action (B, A) -> its networks on them, by "critic" and "actor"
Look = Callable[[Any, Array, Array], Mapping[str, Probe]]
#: state, a fresh one, obs (B, S), action (B, A), threshold () -> the state without units asleep on them:
#: `agents.common.recycle`
Recycle = Callable[[Any, Any, Array, Array, Array], Any]


class Carrier(NamedTuple):
    """An off-policy maximum-entropy algorithm. The entropy weight is an argument of every call that uses one.

    Residuals, values and entropy weights are in raw reward units, whatever scale a carrier trains in.
    S = observation size, A = action size, N = environments, B = update batch.
    """

    init: Callable[[Array], Any]  # key -> state
    act: Callable[[Any, Array, Array], Array]  # state, obs (N, S), key -> behaviour action (N, A)
    act_deterministic: Callable[[Any, Array], Array]  # state, obs (N, S) -> evaluation action (N, A)
    entropy: Callable[[Any, Array, Array], Array]  # state, obs (B, S), key -> () nats, mean over the observations
    update: Callable[..., UpdateOut]  # state, batch (B,), key, step (), *, entropy_weight, hyper -> UpdateOut
    td_error: Callable[..., Array]  # state, batch, key, *, entropy_weight, hyper -> residuals (2B,); no gradient
    q_value: Callable[..., Array]  # state, obs (B, S), action (B, A), *, entropy_weight, hyper -> (2, B), no dropout
    batch_size: int
    refresh: Refresh | None = None  # None: its parameters cannot be refreshed
    probe: Look | None = None  # None: its plasticity cannot be measured
    recycle: Recycle | None = None  # None: its units cannot be recycled


class Rollout(NamedTuple):
    """T steps of N environments, (T, N, ...) each, collected with one set of parameters."""

    obs: Array  # (T, N, S) float32, normalised as the policy saw them
    action: Array  # (T, N, A) float32, the policy's sample, not clipped
    reward: Array  # (T, N) float32, scaled as the critic is trained
    terminated: Array  # (T, N) float32
    truncated: Array  # (T, N) float32
    next_obs: Array  # (T, N, S) float32, normalised true successor, before any auto-reset
    valid: Array | None = None  # (T, N) bool, rows that count, the others zero but truncated; None: all


class OnPolicyCarrier(NamedTuple):
    """An on-policy algorithm: whole rollouts, several epochs of minibatches, one gradient step per minibatch.

    `prepare` turns a rollout into a data set whose leaves have the leading axis T * N, of which `update` gets rows.
    """

    init: Callable[[Array, int], Any]  # key, number of environments N -> state
    # Where some copies do not count, the two that learn statistics get which do, (N,) bool, as one argument more.
    observe: Callable[..., tuple[Any, Array]]  # state, obs (N, S) -> state with new statistics, normalised obs
    view: Callable[[Any, Array], Array]  # the same normalisation without learning from what is seen
    act: Callable[[Any, Array, Array], Array]  # state, normalised obs (N, S), key -> sample (N, A), may leave [-1, 1]
    act_deterministic: Callable[[Any, Array], Array]  # state, raw obs (N, S) -> evaluation action (N, A)
    entropy: Callable[[Any, Array, Array], Array]  # state, obs (B, S), key -> () nats
    scale_reward: Callable[..., tuple[Any, Array]]  # state, reward (N,), done (N,), hyper -> state, scaled reward (N,)
    prepare: Callable[..., tuple[Any, Any, Array]]  # state, Rollout, hyper -> state, data set, residuals (T * N,)
    update: Callable[..., UpdateOut]  # state, rows, *, entropy_weight, hyper -> UpdateOut
    end_epoch: Callable[..., Any]  # state, mean metrics of the epoch, hyper -> state
    rollout: int  # T
    epochs: int
    minibatches: int
    refresh: Refresh | None = None  # None: its parameters cannot be refreshed
    probe: Look | None = None  # None: its plasticity cannot be measured
    recycle: Recycle | None = None  # None: its units cannot be recycled
