"""Names of bridged tasks."""

PYTHON = "AESJAX_ISAAC_PYTHON"  # environment variable: the simulator's interpreter

#: Isaac Gym's name -> our own task of the same definitions.
GYM_TASKS = {
    "Ant": "isaac_ant",
    "Humanoid": "isaac_humanoid",
    "Ingenuity": "isaac_ingenuity",
    "Anymal": "isaac_anymal",
    "AllegroHand": "isaac_allegro_hand",
    "FrankaCabinet": "isaac_franka_cabinet",
}
#: The nearest tasks of Isaac Lab; any other of its ids works as well. None equals the one of Isaac Gym.
LAB_TASKS = (
    "Isaac-Ant-Direct-v0",
    "Isaac-Humanoid-Direct-v0",
    "Isaac-Quadcopter-Direct-v0",
    "Isaac-Velocity-Flat-Anymal-C-Direct-v0",
    "Isaac-Repose-Cube-Allegro-Direct-v0",
    "Isaac-Franka-Cabinet-Direct-v0",
)
NATIVE = "native:"  # one of our own tasks in the worker, on the surface of Isaac Gym: to try a bridge out
PREFIX = "bridge:"


def native_of(name: str) -> str | None:
    """Our own task that a bridged one corresponds to, by whose sizes a study of it is set up; None if there is none."""
    inner = name.removeprefix(PREFIX)
    return inner.removeprefix(NATIVE) if inner.startswith(NATIVE) else GYM_TASKS.get(inner)
