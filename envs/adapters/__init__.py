"""Drifting tasks in the interfaces of other libraries, and the other way round.

Nothing is imported here: `envs.adapters.gymnasium` needs Gymnasium, `envs.adapters.brax` needs Brax,
`envs.adapters.sb3` needs Stable-Baselines3.
"""
