"""Soft Q-learning in a table, where entropy buys data: values at a fixed temperature, actions drawn at a scheduled one.

The values learned and the policy judged, ``softmax(Q / mu)``, belong to the evaluation temperature mu of the MDP. The
schedule's weight only sets the temperature of the actions taken, so it acts through the data alone and leaves the
comparator where it is (replacing mu by the weight would move it).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from aesjax.schedules.rule import read_signal
from aesjax.types import Array, EntropySchedule, ScheduleState, Signals
from experiments.theory.softmdp import SoftMDP, Solution, regret, soft_return, soft_value, solve


@dataclass(frozen=True)
class ControlConfig:
    """How the learner learns and how often it is judged."""

    walkers: int = 8
    """Agents that act side by side and fill one table, one transition each per update."""
    learning_rate: float = 0.2
    """Step of a table entry towards the mean target of the transitions that left it."""
    restart_probability: float = 0.04
    """Chance that a walker's next state is drawn afresh from the start distribution."""
    window: int = 64
    """Newest residuals that the schedule's fresh signal holds."""
    updates_per_check: int = 50
    """Updates between two exact evaluations; a change of the world falls on such a boundary."""

    def __post_init__(self):
        """Raises ValueError for values that no run can use."""
        for field in ("walkers", "window", "updates_per_check"):
            if getattr(self, field) < 1:
                raise ValueError(f"ControlConfig.{field} must be at least 1; got {getattr(self, field)}")
        if self.window < self.walkers:
            raise ValueError(f"ControlConfig.window must hold one update, {self.walkers}; got {self.window}")
        for field in ("learning_rate", "restart_probability"):
            if not 0.0 < getattr(self, field) <= 1.0:
                raise ValueError(f"ControlConfig.{field} must lie in (0, 1]; got {getattr(self, field)}")


class Drifting(NamedTuple):
    """A world that changes abruptly among P phases; C stretches of `ControlConfig.updates_per_check` updates."""

    mdps: SoftMDP  # leaves (P, ...)
    solutions: Solution  # leaves (P, ...), of the MDPs
    best_greedy: Array  # (P,) optimal return without entropy from the judged start; reward
    phase: Array  # (C,) int32, which MDP is in force in each stretch
    start: Array  # (S,) distribution of walkers' starts
    judged: Array  # (S,) distribution of the first state for evaluation


class History(NamedTuple):
    """What a run did; C stretches, T = C * updates_per_check updates."""

    regret: Array  # (C,) soft return lost by softmax(Q / mu) at the end of the stretch, exact; reward
    played: Array  # (C,) the same lost by the policy that acted, softmax(Q / weight), judged at mu, too; reward
    greedy: Array  # (C,) return without entropy lost by the greedy policy, exact; reward
    collected: Array  # (C,) mean reward per transition while learning
    weight: Array  # (T,) temperature of the actions in each update; reward per nat
    proxy: Array  # (T,) drift proxy of the schedule, 0 for those without
    q: Array  # (S, A) the table at the end


class ControlState(NamedTuple):
    """The learner between updates; E walkers."""

    q: Array  # (S, A)
    place: Array  # (E,) int32
    residuals: Array  # (W,) newest first
    schedule: ScheduleState


def drifting(mdps: SoftMDP, phase: Array, start: Array, judged: Array) -> Drifting:
    """Solves the phases; leaves of ``mdps`` carry a leading axis P. Other arguments as in `Drifting`."""
    solutions = jax.vmap(solve)(mdps)

    def greedy_return(mdp: SoftMDP, solution: Solution) -> Array:
        # Values at a temperature near zero; their greedy policy is the optimal one wherever it matters to 1e-3.
        cold = solve(mdp._replace(temperature=jnp.asarray(1e-3, mdp.reward.dtype)), iterations=256)
        return soft_return(mdp, _one_hot(cold.q), judged)

    return Drifting(mdps, solutions, jax.vmap(greedy_return)(mdps, solutions), phase, start, judged)


def fresh_quantile(signals: Signals) -> Array:
    """() 0.9-quantile of the newest absolute residuals, the proxy of the deep agents; reward.

    By sorting and in the precision of the table, unlike `aesjax.schedules.td_quantile`, which rounds to float32.
    """
    residuals = read_signal("proxy 'fresh_quantile'", signals, "fresh_td_error", 1)
    return jnp.quantile(jnp.abs(residuals), 0.9)


def _one_hot(q: Array) -> Array:
    """(S, A) log of the greedy policy."""
    return jnp.where(jax.nn.one_hot(jnp.argmax(q, axis=-1), q.shape[-1], dtype=bool), 0.0, -jnp.inf)


def learn(
    world: Drifting,
    schedule: EntropySchedule,
    key: Array,
    config: ControlConfig = ControlConfig(),
    *,
    forget: Array | bool = False,
) -> History:
    """Soft Q-learning through a drifting world.

    Target ``r + gamma * mu logsumexp(Q(s') / mu)``; no replay, each transition is used once. The schedule sees the
    residuals of the update (`Signals.td_error`), of the newest transitions (`Signals.fresh_td_error`) and, for a
    reference that may know, 1 at a change and 0 otherwise (`Signals.true_drift`). Its weight has the lag of one.

    Args:
      world: see `drifting`.
      schedule: sets the temperature of the actions, reward per nat.
      key: typed PRNG key; the same key gives every schedule the same random numbers.
      config: static.
      forget: () True empties the table at each change: the reference that is told when to start again.
    """
    chunk, walkers = config.updates_per_check, config.walkers
    states, actions = world.mdps.reward.shape[1:]
    dtype = world.mdps.reward.dtype
    start_steps = jnp.cumsum(world.start)
    gamma, mu0 = world.mdps.discount[0], world.mdps.temperature[0]
    # Action values of a world without reward: an entry that is never visited is worth as much as one that found
    # nothing. A table of zeros would be pessimistic, as every visit adds the bonus of the entropy to come.
    blank = gamma * mu0 * jnp.log(actions) / (1.0 - gamma)
    changed = jnp.concatenate([jnp.zeros(1, bool), world.phase[1:] != world.phase[:-1]])

    def draw(cumulative: Array, u: Array) -> Array:
        """(E, K), (E,) -> (E,): inverse of the distribution function."""
        return jnp.minimum(jnp.sum(cumulative <= u[:, None], axis=-1), cumulative.shape[-1] - 1).astype(jnp.int32)

    def stretch(state: ControlState, now: tuple[Array, Array, Array]):
        phase, fresh_change, numbers = now
        mdp, solution = jax.tree.map(lambda leaf: leaf[phase], (world.mdps, world.solutions))
        ways = jnp.cumsum(mdp.transition, axis=-1)
        mu = mdp.temperature
        state = state._replace(q=jnp.where(fresh_change & forget, blank, state.q))

        def update(state: ControlState, random: tuple[Array, Array]):
            uniform, drift = random
            q, s = state.q, state.place
            weight = state.schedule.weight
            likely = jax.nn.softmax(q[s] / weight.astype(dtype), axis=-1)
            a = draw(jnp.cumsum(likely, axis=-1), uniform[0])
            reached = draw(ways[s, a], uniform[1])
            reward = mdp.reward[s, a]
            residual = reward + mdp.discount * soft_value(q[reached], mu) - q[s, a]
            # The mean over walkers that left the same entry: their sum could step past the target.
            entry = s * actions + a
            sharing = jnp.sum((entry[:, None] == entry[None, :]).astype(dtype), axis=-1)
            q = q.at[s, a].add(config.learning_rate * residual / sharing)
            residuals = jnp.concatenate([residual, state.residuals])[: config.window]
            memory = schedule.update(
                Signals(td_error=residual, fresh_td_error=residuals, true_drift=drift), state.schedule
            )
            fresh = draw(jnp.broadcast_to(start_steps[None], (walkers, states)), uniform[2])
            place = jnp.where(uniform[3] < config.restart_probability, fresh, reached)
            return ControlState(q, place, residuals, memory), (weight, memory.logs.proxy, jnp.mean(reward))

        drift = jnp.where(jnp.arange(chunk) == 0, fresh_change.astype(dtype), 0.0)
        state, (weight, proxy, reward) = jax.lax.scan(update, state, (numbers, drift))
        policy = jax.nn.log_softmax(state.q / mu, axis=-1)
        lost = regret(mdp, policy, world.judged, solution)
        acting = jax.nn.log_softmax(state.q / state.schedule.weight.astype(dtype), axis=-1)
        played = regret(mdp, acting, world.judged, solution)
        greedy = world.best_greedy[phase] - soft_return(mdp, _one_hot(state.q), world.judged)
        return state, (lost, played, greedy, jnp.mean(reward), weight, proxy)

    # Walkers start spread evenly over the start distribution.
    place = draw(jnp.broadcast_to(start_steps[None], (walkers, states)), (jnp.arange(walkers) + 0.5) / walkers)
    table = jnp.full((states, actions), blank, dtype)
    first = ControlState(table, place, jnp.zeros(config.window, dtype), schedule.init())
    # One flat draw: XLA compiles batched draws of several axes ten times as long.
    shape = (world.phase.shape[0], chunk, 4, walkers)
    numbers = jax.random.uniform(key, (math.prod(shape),), dtype).reshape(shape)
    last, (lost, played, greedy, collected, weight, proxy) = jax.lax.scan(
        stretch, first, (world.phase, changed, numbers)
    )
    return History(lost, played, greedy, collected, weight.reshape(-1), proxy.reshape(-1), last.q)
