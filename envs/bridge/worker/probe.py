"""Seven questions that only somebody with the simulator can answer, answered into one JSON file to send back.

With the simulator's own interpreter, Python 3.7 or later: `python probe.py Ant --num-envs 4096 --out ant.json`.
"""

import argparse
import json
import os
import sys
import time

import worker

STEPS = 8  # of a fall, and of a decay


def names(simulation):
    """S1: joints of every actor, in the simulator's order."""
    gym, env, found = simulation.env.gym, simulation.env.envs[0], {}
    for i in range(gym.get_actor_count(env)):
        handle = gym.get_actor_handle(env, i)
        joints = gym.get_actor_dof_names(env, handle) if hasattr(gym, "get_actor_dof_names") else []
        found[gym.get_actor_name(env, handle)] = list(joints)
    return found


def recorded(simulation, torch):
    """S2: one step of the first copy under a fixed action, with the state before and after."""
    simulation.restart(0)
    action = torch.linspace(-1.0, 1.0, simulation.action_size, device=simulation.device)
    before = [part.reshape(simulation.num, -1)[0].tolist() for part in simulation.drift.state()]
    rows = simulation.step(action.repeat(simulation.num, 1))
    after = [part.reshape(simulation.num, -1)[0].tolist() for part in simulation.drift.state()]
    answer = {"obs": rows[0][0].tolist(), "reward": float(rows[1][0])}
    return dict(answer, action=action.tolist(), before=before, after=after)


def endings(simulation, torch, steps):
    """S3: what the simulator returns when episodes end, and in the step after that."""
    env, found = simulation.env, {"ends": 0, "phantoms": 0, "ends_in_phantoms": 0, "examples": []}
    simulation.restart(0)
    pending, dead = torch.zeros(simulation.num, dtype=torch.bool, device=simulation.device), None
    for _ in range(steps):
        actions = 2.0 * torch.rand((simulation.num, simulation.action_size), device=simulation.device) - 1.0
        observed, reward, reset, extras = env.step(actions)
        obs, done = observed["obs"].clone(), reset != 0
        found["ends"] += int((done & ~pending).sum())
        found["phantoms"] += int(pending.sum())
        found["ends_in_phantoms"] += int((done & pending).sum())
        if bool(pending.any()) and len(found["examples"]) < 5:
            i = int(pending.nonzero()[0])
            example = {"last": dead[i].tolist(), "after_phantom": obs[i].tolist(), "phantom_reward": float(reward[i])}
            found["examples"].append(dict(example, time_outs=bool(extras.get("time_outs", done)[i])))
        pending, dead = done.clone(), obs
    return found


def falls(simulation):
    """S4: how fast the height of a body in free fall changes, as a share of that at nominal gravity."""
    found = {}
    for scale in (1.0, 0.8, 1.2):
        simulation.drift.apply({"gravity": scale, "joint_damping": 1.0}, simulation.ending())
        simulation.restart(0)
        heights = []
        for _ in range(STEPS):
            simulation.step(simulation.zero)
            heights.append(simulation.drift.state()[0].reshape(simulation.num, -1)[:, 2].clone())
        found[scale] = float((heights[0] - 2.0 * heights[1] + heights[2]).mean())
    simulation.drift.apply({"gravity": 1.0, "joint_damping": 1.0}, simulation.ending())
    return {str(scale): value / found[1.0] if found[1.0] else None for scale, value in found.items()}


def decays(simulation, torch):
    """S5: what is left of the joints' speed after a push, under three dampings."""
    found = {}
    for scale in (1.0, 0.7, 1.3):
        simulation.drift.apply({"gravity": 1.0, "joint_damping": scale}, simulation.ending())
        simulation.restart(0)
        simulation.step(torch.ones_like(simulation.zero))
        speeds = []
        for _ in range(STEPS):
            joints = simulation.drift.state()[1]
            speeds.append(float((joints[..., 1] if joints.shape[-1] == 2 else joints).abs().mean()))
            simulation.step(simulation.zero)
        found[str(scale)] = speeds
    simulation.drift.apply({"gravity": 1.0, "joint_damping": 1.0}, simulation.ending())
    return found


def cost(simulation):
    """S6: seconds to set the damping of all copies, and to step them."""
    start = time.time()
    simulation.drift.apply({"gravity": 1.0, "joint_damping": 1.1}, simulation.ending())
    set_damping = time.time() - start
    simulation.drift.apply({"gravity": 1.0, "joint_damping": 1.0}, simulation.ending())
    start = time.time()
    for _ in range(STEPS):
        simulation.step(simulation.zero)
    return {"set_damping": set_damping, "step": (time.time() - start) / STEPS}


def report(simulation, steps):
    """All answers; a question that fails is answered with its error."""
    import simulators
    import torch

    found = {"versions": dict(worker.hello(), torch=torch.__version__)}
    questions = (
        ("description", lambda: simulators.describe(simulation)),
        ("S1_names", lambda: names(simulation)),
        ("S2_step", lambda: recorded(simulation, torch)),
        ("S3_endings", lambda: endings(simulation, torch, steps)),
        ("S4_fall", lambda: falls(simulation)),
        ("S5_decay", lambda: decays(simulation, torch)),
        ("S6_seconds", lambda: cost(simulation)),
        ("S7_damping_disturbs_state", simulation.disturbs),
    )
    for name, question in questions:
        try:
            found[name] = question()
        except Exception as error:
            found[name] = {"error": "%s: %s" % (type(error).__name__, error)}
    return found


def main(words):
    """Build the task, ask, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", help="a name of Isaac Gym, or MODULE:FUNCTION")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1100, help="of random actions, to see episodes end")
    parser.add_argument("--sim-device", default="cuda:0")
    parser.add_argument("--out", required=True)
    given = parser.parse_args(words)
    if os.path.exists(given.out):
        sys.exit("--out %s exists; choose another file" % given.out)
    options = {} if ":" in given.task else {"sim_device": given.sim_device}
    env = worker.build(given.task, given.num_envs, 0, options)
    import simulators

    answers = report(simulators.surface(env, given.task), given.steps)
    with open(given.out, "w") as file:
        json.dump(answers, file, indent=1)
    print("written: %s" % given.out)
    sys.stdout.flush()
    os._exit(0)  # simulators are known to crash while they are taken apart


if __name__ == "__main__":
    main(sys.argv[1:])
