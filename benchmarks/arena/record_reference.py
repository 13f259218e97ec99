"""Record what Safety-Gymnasium 1.0.0 does, for the tests of the navigation tasks.

    SAFETY_PYTHON benchmarks/arena/record_reference.py tests/tasks/arena_reference.npz

Runs in an interpreter that has safety-gymnasium 1.0.0 (Python 3.8 or 3.10; mujoco 2.3.3), without this package. For
each of 16 tasks it keeps

* `starts`: two seeds, each followed by seven steps and a second reset: places of all things in the order in which
  they are drawn, heading, goal, observation;
* `steps`: single steps from states in which the agent stands on or beside the things: the state before, the action, and
  observation, reward, costs and state after;
* `goals`: one episode in which the agent (or the box) is put at each goal: the goals that follow, and when they come.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
import mujoco  # noqa: E402
import safety_gymnasium  # noqa: E402

AGENTS, ARENAS = ("Point", "Car"), ("Goal", "Button", "Push", "Circle")
COSTS = {
    "Goal1": ("hazards",), "Goal2": ("hazards", "vases_contact", "vases_velocity"),
    "Button1": ("buttons", "hazards", "gremlins"), "Button2": ("buttons", "hazards", "gremlins"),
    "Push1": ("hazards",), "Push2": ("hazards", "pillars"), "Circle1": ("out_of_boundary",),
    "Circle2": ("out_of_boundary",),
}  # fmt: skip
STATICS = ("goal", "hazard", "button", "pillar")


class Probe:
    """Reads and sets the state of one environment, in the world's frame."""

    def __init__(self, name):
        self.env = safety_gymnasium.make(f"Safety{name}-v0")
        self.task = self.env.unwrapped.task
        self.point = name.startswith("Point")

    def reset(self, seed=None):
        """Start an episode."""
        obs, _ = self.env.reset(seed=seed)
        self.turn = self.task.world_info.world_config_dict["agent_rot"]
        self.origin = self.task.model.body("agent").pos[:2].copy()
        free = [n for n in self.names() if n.startswith(("vase", "gremlin", "push_box"))]
        self.free = [n + "obj" if n.startswith("gremlin") else n for n in free]
        return obs

    def names(self):
        """Things in the order in which they are placed."""
        return [n for n in self.task.placements_conf.placements if n != "agent"]

    def matrix(self):
        """From the frame of the joints to the world's."""
        c, s = np.cos(self.turn), np.sin(self.turn)
        return np.array([[c, -s], [s, c]])

    def agent(self):
        """Positions and velocities of the agent's joints, in the world's frame."""
        data = self.task.data
        if not self.point:
            return data.qpos[:13].copy(), data.qvel[:11].copy()
        place = self.origin + self.matrix() @ data.qpos[:2]
        return np.r_[place, self.turn + data.qpos[2]], np.r_[self.matrix() @ data.qvel[:2], data.qvel[2]]

    def put_agent(self, place, heading):
        """Put the agent somewhere, at rest."""
        data = self.task.data
        size = 3 if self.point else 11
        data.qvel[:size] = 0
        if self.point:
            data.qpos[:2] = self.matrix().T @ (np.asarray(place) - self.origin)
            data.qpos[2] = heading - self.turn
        else:
            data.qpos[:2], data.qpos[2] = place, 0.0999
            data.qpos[3:7] = np.cos(heading / 2), 0, 0, np.sin(heading / 2)
        self.settle()

    def put_box(self, place):
        """Put the box somewhere."""
        joint = self.task.model.joint("push_box")
        self.task.data.qpos[joint.qposadr[0] : joint.qposadr[0] + 2] = place
        self.settle()

    def settle(self):
        """Recompute what follows from positions."""
        mujoco.mj_forward(self.task.model, self.task.data)
        for name, now in (
            ("last_dist_goal", "dist_goal"), ("last_dist_box", "dist_box"), ("last_box_goal", "dist_box_goal"),
        ):  # fmt: skip
            if getattr(self.task, name, None) is not None:
                setattr(self.task, name, getattr(self.task, now)())

    def things(self):
        """Poses and velocities of free things."""
        data, model, pose, twist = self.task.data, self.task.model, [], []
        for name in self.free:
            joint = model.joint(name)
            q, v = joint.qposadr[0], joint.dofadr[0]
            pose.append(data.qpos[q : q + 7].copy())
            twist.append(data.qvel[v : v + 6].copy())
        return np.reshape(pose, (-1, 7)), np.reshape(twist, (-1, 6))

    def goal(self):
        """Where the goal is."""
        return self.task.data.body("goal").xpos[:2].copy() if hasattr(self.task, "goal") else np.zeros(2)

    def buttons(self):
        """The button to press, and the timer."""
        buttons = getattr(self.task, "buttons", None)
        return (0, 0) if buttons is None else (buttons.goal_button, buttons.timer)

    def last(self):
        """The distances that the next reward starts from."""
        task = self.task
        if getattr(task, "last_dist_box", None) is not None:
            return np.array([task.last_dist_box, task.last_box_goal])
        return np.array([getattr(task, "last_dist_goal", 0.0) or 0.0, 0.0])

    def state(self):
        """All that a step depends on."""
        qpos, qvel = self.agent()
        pose, twist = self.things()
        steps = round(self.task.data.time / (10 * self.task.model.opt.timestep))
        button, timer = self.buttons()
        return dict(qpos=qpos, qvel=qvel, pose=pose, twist=twist, goal=self.goal(), button=button, timer=timer,
                    last=self.last(), steps=steps)  # fmt: skip


def record_starts(probe):
    rows = []
    for seed in (0, 1):
        for again in (False, True):
            obs = probe.reset(None if again else seed)
            drawn = probe.task.world_info.reset_layout
            places = np.array([drawn[n] for n in probe.names()])
            if "goal" in probe.names():  # drawn a second time
                places[probe.names().index("goal")] = probe.goal()
            rows.append(dict(places=places, heading=probe.turn, agent=drawn["agent"], obs=np.float32(obs)))
            for _ in range(7):
                probe.env.step(np.zeros(2))
    return rows


def target(probe, rng):
    """A place on or beside something, and a heading."""
    task, heading = probe.task, rng.uniform(0, 2 * np.pi)
    names = [n for n in probe.names() if n.startswith((*STATICS, "vase", "gremlin", "push_box"))]
    if not names:
        return rng.uniform(-1.5, 1.5, 2), heading
    name = names[rng.integers(len(names))]
    place = task.data.body(name + "obj" if name.startswith("gremlin") else name).xpos[:2]
    away = rng.uniform(0.0, 0.3) if name.startswith(("goal", "hazard")) else rng.uniform(0.18, 0.3)
    away += 0.1 * name.startswith("pillar")
    away += 0.2 * name.startswith("push_box")
    angle = rng.uniform(0, 2 * np.pi)
    return place + away * np.array([np.cos(angle), np.sin(angle)]), angle + np.pi + rng.normal(0, 0.5)


def record_steps(probe, name, rng, count):
    rows, kinds = [], COSTS[name.replace("Point", "").replace("Car", "")]
    probe.reset(50)
    statics = {n: probe.task.data.body(n).xpos[:2].copy() for n in probe.names() if n.startswith(STATICS[1:])}
    while len(rows) < count:
        probe.put_agent(*target(probe, rng))
        for _ in range(2):
            action = rng.uniform(-1, 1, 2).astype(np.float32)
            if rng.random() < 0.5:
                action = np.float32([1, 0.1 * action[1]] if probe.point else [1, 1])
            before = probe.state()
            obs, reward, cost, _, _, info = probe.env.step(action)
            after = probe.state()
            costs = [info.get("cost_" + k, 0.0) for k in kinds]
            rows.append(dict(
                **before, action=action, obs=np.float32(obs), reward=reward, costs=costs, cost=cost,
                met=info.get("goal_met", False), after_qpos=after["qpos"], after_qvel=after["qvel"],
                after_pose=after["pose"], after_timer=after["timer"],
            ))  # fmt: skip
    return rows, np.array(list(statics.values())).reshape(-1, 2)


def record_goals(probe, name):
    probe.reset(7)
    rows = []
    for i in range(40):
        if i % 8 == 7:
            goal = probe.goal()
            if "Push" in name:
                probe.put_box(goal)
            else:
                probe.put_agent(goal + ([0.19, 0.0] if "Button" in name else [0.0, 0.0]), 0.0)
        _, _, _, _, _, info = probe.env.step(np.zeros(2))
        rows.append(dict(goal=probe.goal(), met=info.get("goal_met", False)))
    return rows


def main():
    out, kept = sys.argv[1], {}
    rng = np.random.default_rng(0)
    for agent in AGENTS:
        for arena in ARENAS:
            for level in "12":
                name = agent + arena + level
                probe = Probe(name)
                starts = record_starts(probe)
                steps, statics = record_steps(probe, name, rng, 24)
                goals = [] if arena == "Circle" else record_goals(probe, name)
                for part, rows in (("starts", starts), ("steps", steps), ("goals", goals)):
                    for key in rows[0] if rows else ():
                        kept[f"{name}/{part}/{key}"] = np.array([row[key] for row in rows])
                kept[f"{name}/statics"] = statics
                print(name, "costs", np.sum([r["costs"] for r in steps], 0), "met", sum(r["met"] for r in steps),
                      "goals", sum(r["met"] for r in goals), flush=True)  # fmt: skip
    versions = f"safety-gymnasium {safety_gymnasium.__version__}, mujoco {mujoco.__version__}, numpy {np.__version__}"
    np.savez_compressed(out, provenance=np.array(f"benchmarks/arena/record_reference.py; {versions}"), **kept)


if __name__ == "__main__":
    main()
