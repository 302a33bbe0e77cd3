"""The process that holds one simulation: commands as JSON over a pipe, arrays through shared memory.

Started by path with the simulator's own interpreter, Python 3.7 or later: `python worker.py PIPE FILE`, numbers of open
files. It imports the standard library, NumPy, PyTorch for simulators and the task's modules, never its own package.
"""

import importlib
import json
import mmap
import os
import re
import sys
import traceback
from multiprocessing.connection import Connection

FIELDS = ("obs", "reward", "terminated", "truncated", "valid", "live", "final")
GYM_TASKS = ("AllegroHand", "Ant", "Anymal", "FrankaCabinet", "Humanoid", "Ingenuity")


class Refused(Exception):
    """A failure with an explanation."""


def explained(error, task):
    """Remedy for an exception during import or construction of a simulator, or None."""
    text = "%s" % error
    name = getattr(error, "name", None) or ""
    native = "isaac_" + re.sub("(?<=[a-z])(?=[A-Z])", "_", task).lower() if task in GYM_TASKS else "isaac_... tasks"
    if "isaacgym" in text and "before" in text and "torch" in text:
        return "torch was imported first; isaacgym must be"
    if "No gym module found" in text or "libpython3" in text:
        hint = "; if the library is there, put the folder of libpython on LD_LIBRARY_PATH" if "lib" in text else ""
        version = "%d.%d" % sys.version_info[:2]
        return "Isaac Gym runs in Python 3.6 to 3.8; %s is %s (%s)%s" % (sys.executable, version, text, hint)
    if isinstance(error, ImportError) and name.split(".")[0] in ("isaacgym", "isaacgymenvs", "isaaclab"):
        ways = "%s cannot import %s: install it there, choose its interpreter with --sim-python, or run our own %s"
        return ways % (sys.executable, name, native)
    if isinstance(error, ImportError) and name.split(".")[0] in ("omni", "carb", "isaacsim", "pxr"):
        return "%s was imported first; the app (isaaclab.app.AppLauncher) must be started" % name
    needs = (
        ("module 'numpy' has no attribute", "numpy", "a numpy below 1.24"),
        ("Ninja is required", "ninja", "ninja (pip install ninja)"),
        ("Error building extension", "a compiler", "a C++ compiler (gcc 5 or later)"),
        ("libcuda", "libcuda", "the NVIDIA driver, whose library is libcuda.so.1"),
    )
    for sign, package, works in needs:
        if sign in text:
            first = text.splitlines()[0]
            return "the simulator fails for want of %s (%s); it needs %s" % (package, first, works)
    if "no kernel image" in text or ("sm_" in text and "not compatible" in text):
        import torch

        capability = "%d.%d" % torch.cuda.get_device_capability() if torch.cuda.is_available() else "unknown"
        detail = "the GPU has compute capability %s, which PyTorch %s was not built for: %s"
        return detail % (capability, torch.__version__, text.splitlines()[0])
    return None


def build_gym(task, num_envs, seed, sim_device):
    """Task of Isaac Gym; its modules are imported in the only order that works."""
    if "isaacgym" not in sys.modules and "torch" in sys.modules:
        raise Refused("torch was imported first; isaacgym must be")
    import isaacgym  # noqa: F401  # pyright: ignore
    import torch

    if sim_device.startswith("cuda"):
        torch.cuda.set_device(sim_device)
    import isaacgymenvs  # pyright: ignore

    own = {"sim_device": sim_device, "rl_device": sim_device, "headless": True, "force_render": False}
    return isaacgymenvs.make(seed=seed, task=task, num_envs=num_envs, **own)


def build_lab(task, num_envs, seed, sim_device):
    """Task of Isaac Lab; the app starts before all other imports."""
    for name in ("omni", "isaaclab.envs"):
        if name in sys.modules:
            raise Refused("%s was imported first; the app must be started" % name)
    from isaaclab.app import AppLauncher  # pyright: ignore

    AppLauncher(headless=True, device=sim_device)
    import gymnasium
    import isaaclab_tasks  # noqa: F401  # pyright: ignore
    from isaaclab_tasks.utils import parse_env_cfg  # pyright: ignore

    config = parse_env_cfg(task, device=sim_device, num_envs=num_envs)
    config.seed = seed
    return gymnasium.make(task, cfg=config)


def build(task, num_envs, seed, options):
    """Torch environment of a task: MODULE:FUNCTION, an id of Isaac Lab, or a name of Isaac Gym."""
    try:
        if ":" in task:
            module, _, function = task.partition(":")
            sys.path.append(os.getcwd())  # last, so that installed modules take precedence
            return getattr(importlib.import_module(module), function)(num_envs=num_envs, seed=seed, **options)
        return (build_lab if task.startswith("Isaac-") else build_gym)(task, num_envs, seed, **options)
    except Exception as error:
        reason = None if isinstance(error, Refused) else explained(error, task)
        if reason is None:
            raise
        raise Refused(reason) from None


class Server:
    """One simulation and its commands."""

    def __init__(self, file):
        self.file = file

    def make(self, task, num_envs, seed, options, simulation, label):
        """Build the simulation, once per process."""
        env = build(task, num_envs, seed, options)
        import simulators  # after the simulator, which must be imported before torch

        self.simulation = simulators.surface(env, label, **simulation)
        return simulators.describe(self.simulation)

    def map(self, fields):
        """Map the arrays of both slots; the file is large enough for them."""
        import numpy

        kind = numpy.dtype([(name, code, tuple(shape)) for name, code, shape in fields])
        arrays = numpy.frombuffer(mmap.mmap(self.file, 2 * kind.itemsize), kind)
        self.slots = [{name: arrays[name][slot] for name in kind.names} for slot in (0, 1)]
        if not self.simulation.numpy:
            import torch

            self.slots = [{name: torch.from_numpy(array) for name, array in slot.items()} for slot in self.slots]

    def drift(self, values):
        """Set factors before the next step; returns the values read back."""
        return self.simulation.drift.apply(values)

    def restart(self, slot, seed):
        """Begin new episodes; their observations are written to a slot."""
        self._fill(slot, zip(("obs", "live"), self.simulation.restart(seed)))

    def step(self, slot):
        """One step under the actions in a slot; results are written to the same slot."""
        self._fill(slot, zip(FIELDS, self.simulation.step(self.slots[slot]["actions"])))

    def _fill(self, slot, rows):
        for name, value in rows:
            array = self.slots[slot][name]
            if tuple(value.shape) != tuple(array.shape):
                text = "%s must have shape %s; got %s" % (name, tuple(array.shape), tuple(value.shape))
                raise Refused(text)
            if value.dtype != array.dtype:
                text = "%s must be %s, as there is no silent cast; got %s"
                kinds = [str(each.dtype).replace("torch.", "") for each in (array, value)]
                raise Refused(text % (name, *kinds))
            if self.simulation.numpy:
                array[...] = value
            else:
                array.copy_(value)  # waits for the device


def main(pipe, file):
    """Serve commands until the pipe closes."""
    for number in (pipe, file):
        os.set_inheritable(number, False)  # inherited by processes of the simulator
    connection, server = Connection(pipe), Server(file)
    while True:
        try:
            message = json.loads(connection.recv_bytes().decode())
        except (EOFError, OSError):
            message = {"command": "close"}
        if message["command"] == "close":
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # simulators are known to crash at shutdown
        try:
            reply = {"answer": getattr(server, message.pop("command"))(**message)}
        except Exception as error:
            reply = {"error": {"kind": type(error).__name__, "text": str(error), "traceback": traceback.format_exc()}}
        connection.send_bytes(json.dumps(reply).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
