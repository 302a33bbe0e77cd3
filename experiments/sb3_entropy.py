"""An entropy schedule for SAC and PPO of Stable-Baselines3: a self-contained file to copy.

Usage: python experiments/sb3_entropy.py --algorithm sac --steps 5000
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from stable_baselines3 import PPO, SAC  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]

from aesjax import EntropySchedule, Signals, aes


class EntropyCallback(BaseCallback):
    """Set ``ent_coef`` of SAC or PPO from its TD errors, in units of the environment's reward.

    SAC: one update per step of its environments, on a new batch of the replay memory. PPO: one per rollout, on its
    one-step residuals.
    Create the agent with a number as ``ent_coef`` (SAC's default is "auto").

    Args:
      schedule: ``aes(base=0.2)``, or another schedule that reads only the TD errors of the update batch; ``base`` is
        the first weight.
    """

    model: Any  # `self.model` is SAC or PPO

    def __init__(self, schedule: EntropySchedule) -> None:
        super().__init__()
        self.state, self._update, self.weights = schedule.init(), jax.jit(schedule.update), []

    def _init_callback(self) -> None:
        if not (isinstance(self.model, PPO) or (isinstance(self.model, SAC) and self.model.ent_coef_optimizer is None)):
            raise ValueError(f"{type(self.model).__name__} must be PPO, or SAC with a number as ent_coef")
        self._set()

    def _on_step(self) -> bool:
        if isinstance(self.model, SAC) and self.num_timesteps > self.model.learning_starts:
            self._advance(self._residuals_of_sac())
        return True

    def _on_rollout_end(self) -> None:
        if isinstance(self.model, PPO):
            self._advance(self._residuals_of_ppo())

    def _advance(self, td_error: np.ndarray) -> None:
        self.state = self._update(Signals(td_error=jnp.asarray(td_error.ravel())), self.state)
        self._set()

    def _set(self) -> None:
        weight = float(self.state.weight)
        if isinstance(self.model, SAC):
            self.model.ent_coef_tensor = torch.tensor(weight, device=self.model.device)
        else:
            self.model.ent_coef = weight
        self.weights.append(weight)
        self.logger.record("train/entropy_weight", weight)

    @torch.no_grad()
    def _residuals_of_sac(self) -> np.ndarray:
        """Both critics' TD errors (2, B) on a new batch, with the target networks."""
        model = self.model
        batch = model.replay_buffer.sample(model.batch_size, env=model.get_vec_normalize_env())
        action, log_prob = model.actor.action_log_prob(batch.next_observations)
        values = torch.cat(model.critic_target(batch.next_observations, action), 1).min(1, keepdim=True).values
        soft = values - model.ent_coef_tensor * log_prob[:, None]
        target = batch.rewards + (1 - batch.dones) * model.gamma * soft
        return torch.stack([target - q for q in model.critic(batch.observations, batch.actions)]).cpu().numpy()

    def _residuals_of_ppo(self) -> np.ndarray:
        """One-step residuals (T, N) of the rollout, from its advantages: ``A_t - gamma lambda (1 - done_t) A_t+1``."""
        rollout = self.model.rollout_buffer
        later = (1 - rollout.episode_starts[1:]) * rollout.advantages[1:]
        residuals = rollout.advantages.copy()
        residuals[:-1] -= self.model.gamma * self.model.gae_lambda * later
        return residuals


def main(algorithm: str = "sac", env: str = "Pendulum-v1", steps: int = 5_000, kappa: float = 1.0) -> EntropyCallback:
    """Train with AES and print the weights."""
    callback = EntropyCallback(aes(base=0.2, kappa=kappa))
    agent = {"sac": SAC, "ppo": PPO}[algorithm]("MlpPolicy", env, ent_coef=float(callback.state.weight), seed=0)
    agent.learn(steps, callback=callback)
    print(f"entropy weight: {callback.weights[0]:.3g} at first, {callback.weights[-1]:.3g} at last")
    return callback


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
