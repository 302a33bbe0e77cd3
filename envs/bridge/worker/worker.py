"""The process that holds one simulation: commands as JSON over a Unix socket, arrays through shared memory.

Started by path with the simulator's own interpreter, Python 3.7 or later: `python worker.py SOCKET`. It imports the
standard library, NumPy, PyTorch and what a task needs, and never the package that it belongs to.
"""

import importlib
import json
import mmap
import os
import re
import socket
import struct
import sys
import traceback

PROTOCOL = 1
GYM_PYTHONS = ((3, 6), (3, 8))  # that its binaries load in
FIELDS = ("obs", "reward", "terminated", "truncated", "valid", "live", "final")
GYM_TASKS = ("AllegroHand", "Ant", "Anymal", "FrankaCabinet", "Humanoid", "Ingenuity")


class Refused(Exception):
    """A failure that the other side raises as its class `kind`."""

    def __init__(self, kind, text):
        Exception.__init__(self, text)
        self.kind = kind


def version():
    """This interpreter's version, such as 3.8."""
    return "%d.%d" % sys.version_info[:2]


def explained(error, task):
    """Remedy for an exception raised while a simulator is imported or built, or None."""
    text = "%s" % error
    name = getattr(error, "name", None) or ""
    ways = "install it there, choose its interpreter with --sim-python, or run our own %s"
    native = "isaac_" + re.sub("(?<=[a-z])(?=[A-Z])", "_", task).lower() if task in GYM_TASKS else "isaac_... tasks"
    if "isaacgym" in text and "before" in text and "torch" in text:
        return "ImportOrderError", "torch was imported first; isaacgym must be"
    if "No gym module found" in text or "libpython3" in text:
        low, high = ("%d.%d" % v for v in GYM_PYTHONS)
        hint = "; if the library is there, put the folder of libpython on LD_LIBRARY_PATH" if "lib" in text else ""
        detail = "Isaac Gym runs in Python %s to %s; %s is %s (%s)%s"
        return "PythonVersionError", detail % (low, high, sys.executable, version(), text, hint)
    if isinstance(error, ImportError) and name.split(".")[0] in ("isaacgym", "isaacgymenvs", "isaaclab"):
        detail = "%s cannot import %s: " + ways
        return "SimulatorNotInstalledError", detail % (sys.executable, name, native)
    if isinstance(error, ImportError) and name.split(".")[0] in ("omni", "carb", "isaacsim", "pxr"):
        return "ImportOrderError", "%s was imported first; the app (isaaclab.app.AppLauncher) must be started" % name
    needs = (
        ("module 'numpy' has no attribute", "numpy", "a numpy below 1.24"),
        ("Ninja is required", "ninja", "ninja (pip install ninja)"),
        ("Error building extension", "a compiler", "a C++ compiler (gcc 5 or later)"),
        ("libcuda", "libcuda", "the NVIDIA driver, whose library is libcuda.so.1"),
    )
    for sign, package, works in needs:
        if sign in text:
            return "SimulatorDependencyError", "the simulator fails for want of %s (%s); it needs %s" % (
                package,
                text.splitlines()[0],
                works,
            )
    if "no kernel image" in text or ("sm_" in text and "not compatible" in text):
        import torch

        capability = "%d.%d" % torch.cuda.get_device_capability() if torch.cuda.is_available() else "unknown"
        detail = "the GPU has compute capability %s, which PyTorch %s was not built for: %s"
        return "UnsupportedGpuError", detail % (capability, torch.__version__, text.splitlines()[0])
    return None


def build_gym(task, num_envs, seed, options):
    """A task of Isaac Gym; its modules in the one order that works."""
    if "isaacgym" not in sys.modules and "torch" in sys.modules:
        raise Refused("ImportOrderError", "torch was imported first; isaacgym must be")
    import isaacgym  # noqa: F401  # pyright: ignore
    import torch

    if str(options.get("sim_device", "cuda:0")).startswith("cuda"):
        torch.cuda.set_device(str(options.get("sim_device", "cuda:0")))
    import isaacgymenvs  # pyright: ignore

    device = options.get("sim_device", "cuda:0")
    return isaacgymenvs.make(
        seed=seed,
        task=task,
        num_envs=num_envs,
        sim_device=device,
        rl_device=options.get("rl_device", device),
        headless=True,
        force_render=False,
    )


def build_lab(task, num_envs, seed, options):
    """A task of Isaac Lab; the app comes before everything else."""
    for name in ("omni", "isaaclab.envs"):
        if name in sys.modules:
            raise Refused("ImportOrderError", "%s was imported first; the app must be started" % name)
    from isaaclab.app import AppLauncher  # pyright: ignore

    AppLauncher(headless=True, device=options.get("sim_device", "cuda:0"))
    import gymnasium
    import isaaclab_tasks  # noqa: F401  # pyright: ignore
    from isaaclab_tasks.utils import parse_env_cfg  # pyright: ignore

    config = parse_env_cfg(task, device=options.get("sim_device", "cuda:0"), num_envs=num_envs)
    config.seed = seed
    return gymnasium.make(task, cfg=config)


def build(task, num_envs, seed, options):
    """The torch environment of a task: MODULE:FUNCTION, an id of Isaac Lab, or a name of Isaac Gym."""
    try:
        if ":" in task:
            module, _, function = task.partition(":")
            sys.path.append(os.getcwd())  # last, so that nothing there hides what is installed
            return getattr(importlib.import_module(module), function)(num_envs=num_envs, seed=seed, **options)
        return (build_lab if task.startswith("Isaac-") else build_gym)(task, num_envs, seed, options)
    except Exception as error:
        reason = None if hasattr(error, "kind") else explained(error, task)
        if reason is None:
            raise
        raise Refused(*reason) from None


class Server:
    """One simulation and the commands that it answers."""

    def __init__(self):
        self.simulation, self.slots, self.sequence = None, [], 0

    def make(self, task, num_envs, seed, options, simulation, on_inert, label):
        """Build the simulation; one in the life of a process."""
        if self.simulation is not None:
            raise Refused("SecondSimError", "one simulation per process; start another worker")
        env = build(task, num_envs, seed, options)
        import simulators  # after the simulator, which must be imported before torch

        self.simulation = simulators.surface(env, label, **simulation)
        return simulators.describe(self.simulation, on_inert)

    def map(self, path, size, slots):
        """Map the file of the arrays, which the other side then unlinks."""
        import numpy
        import torch

        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), size)
        for fields in slots:
            arrays = {}
            for name, kind, shape, offset in fields:
                count = int(numpy.prod(shape))
                flat = numpy.frombuffer(self.memory, dtype=kind, count=count, offset=offset)
                arrays[name] = torch.from_numpy(flat.reshape(shape))
            self.slots.append(arrays)
        return {}

    def drift(self, values):
        """Put factors in force before the next step; answers what was read back."""
        return self.simulation.drift.apply(values, self.simulation.ending())

    def restart(self, slot, seed, sequence):
        """Fresh episodes; their observations go to a slot."""
        return self._answer(slot, sequence, zip(("obs", "live"), self.simulation.restart(seed)))

    def step(self, slot, sequence):
        """One step under the actions in a slot; what it led to goes to the same slot."""
        if sequence != self.sequence + 1:
            raise Refused("ProtocolVersionError", "step %d follows step %d" % (sequence, self.sequence))
        actions = self.slots[slot]["actions"].to(self.simulation.device, copy=True)
        return self._answer(slot, sequence, zip(FIELDS, self.simulation.step(actions)))

    def _answer(self, slot, sequence, rows):
        arrays = self.slots[slot]
        for name, value in rows:
            if tuple(value.shape) != tuple(arrays[name].shape):
                text = "%s must have shape %s; got %s" % (name, tuple(arrays[name].shape), tuple(value.shape))
                raise Refused("ShapeMismatchError", text)
            if name in ("obs", "reward", "final") and value.dtype != arrays[name].dtype:
                text = "%s must be float32, as there is no silent cast; got %s" % (name, str(value.dtype)[6:])
                raise Refused("DtypeError", text)
            arrays[name].copy_(value)  # waits for the device
        self.sequence = sequence
        return {"slot": slot, "sequence": sequence}


def receive(connection):
    """The next message, or None when the other side is gone."""
    head = read(connection, 4)
    body = None if head is None else read(connection, struct.unpack(">I", head)[0])
    return None if body is None else json.loads(body.decode())


def read(connection, size):
    """So many bytes, or None."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def send(connection, message):
    """One message, its length first."""
    body = json.dumps(message).encode()
    connection.sendall(struct.pack(">I", len(body)) + body)


def hello():
    """Versions of this worker; PyTorch's version is available once a simulator has imported it."""
    return {"protocol": PROTOCOL, "python": version(), "executable": sys.executable}


def main(path):
    """Answer commands until the other side closes or goes."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    send(connection, hello())
    server = Server()
    while True:
        message = receive(connection)
        if message is None or message["command"] == "close":
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # simulators are known to crash while they are taken apart
        try:
            answer = getattr(server, message.pop("command"))(**message)
            send(connection, {"answer": answer})
        except Exception as error:
            kind = getattr(error, "kind", type(error).__name__)
            send(connection, {"error": {"kind": kind, "text": str(error), "traceback": traceback.format_exc()}})


if __name__ == "__main__":
    main(sys.argv[1])
