"""Names of bridged tasks."""

PYTHON = "AESJAX_ISAAC_PYTHON"  # environment variable: the simulator's interpreter

#: Name in Isaac Gym -> our task with the same definition.
GYM_TASKS = {
    "Ant": "isaac_ant",
    "Humanoid": "isaac_humanoid",
    "Ingenuity": "isaac_ingenuity",
    "Anymal": "isaac_anymal",
    "AllegroHand": "isaac_allegro_hand",
    "FrankaCabinet": "isaac_franka_cabinet",
}
#: Similar tasks of Isaac Lab; any other id works as well. None is identical to Isaac Gym's task.
LAB_TASKS = (
    "Isaac-Ant-Direct-v0",
    "Isaac-Humanoid-Direct-v0",
    "Isaac-Quadcopter-Direct-v0",
    "Isaac-Velocity-Flat-Anymal-C-Direct-v0",
    "Isaac-Repose-Cube-Allegro-Direct-v0",
    "Isaac-Franka-Cabinet-Direct-v0",
)
NATIVE = "native:"  # one of our tasks in the worker, with Isaac Gym's interface, to test the bridge
PREFIX = "bridge:"


def native_of(name: str) -> str | None:
    """Our task that corresponds to a bridged task and gives the sizes of its study; None if there is none."""
    inner = name.removeprefix(PREFIX)
    return inner.removeprefix(NATIVE) if inner.startswith(NATIVE) else GYM_TASKS.get(inner)
