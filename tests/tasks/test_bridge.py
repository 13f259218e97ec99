import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from awavo.errors import BrokenEnvironmentError, InputError
from awavo.tasks.bridge import BridgeBackend, Worker, bridge_env
from awavo.tasks.bridge_worker import decode_frame, encode_frame
from awavo.tasks.host_core import CostSource
from awavo.types import Box, Discrete

# A stand-in with Safety-Gymnasium's interface: it needs no gymnasium, returns six values and prints to stdout.
PACKAGE = '''
import os
import sys
import time
import numpy as np

print("noise at import")

class Box:
    def __init__(self, low, high, shape):
        self.low, self.high, self.shape, self.dtype = np.full(shape, low), np.full(shape, high), shape, np.float64
    def seed(self, seed):
        self.rng = np.random.RandomState(seed)
    def sample(self):
        return self.rng.uniform(self.low, self.high)

class Discrete:
    def __init__(self, n, start):
        self.n, self.start = n, start
    def seed(self, seed):
        pass
    def sample(self):
        return self.start

class Spec:
    max_episode_steps = 5

class Env:
    """Moves a point by the action; the hazard cost is 1 beyond 1, the effort cost its size."""
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Box(-1.0, 1.0, (2, 1))
    spec = Spec()
    six = True
    def reset(self, seed=None):
        if seed is not None:
            self.rng = np.random.RandomState(seed)
        self.x, self.t = self.rng.uniform(-0.1, 0.1, 2), 0
        return self.x.copy(), {}
    def step(self, action):
        print("noise at step", flush=True)
        assert not os.read(0, 1), "stdin belongs to the bridge"
        self.x = self.x + np.asarray(action, float).ravel()
        self.t += 1
        costs = {"cost_hazard": float(abs(self.x[0]) > 1), "cost_effort": float(np.abs(action).sum())}
        cost, over = sum(costs.values()), self.t >= 5
        head = (self.x.copy(), float(-self.x[0]))
        return head + ((cost,) if self.six else ()) + (False, over, costs if self.six else dict(costs, cost=cost))

class Five(Env):
    six = False

class Numbered(Env):
    action_space = Discrete(3, 5)
    def step(self, action):
        assert action in (5, 6, 7), action
        return super().step([action - 6, 0])

class Strict(Env):
    action_space = Box(-0.1, 0.7, (2, 1))
    action_space.dtype = np.dtype(np.float64)
    def step(self, action):
        assert action.dtype == np.float64 and (action >= -0.1).all() and (action <= 0.7).all(), action
        return super().step(action)

class Endless(Env):
    spec = None

class Telling(Env):
    def step(self, action):
        *head, info = super().step(action)
        return (*head, dict(info, place=self.x.copy(), words="none", ragged=[[1], [1, 2]]))

class Slow(Env):
    def step(self, action):
        if self.t == 2:
            time.sleep(60)
        return super().step(action)

class Dying(Env):
    def step(self, action):
        if self.t == 2:
            print("engine exploded", file=sys.stderr, flush=True)
            os._exit(7)
        return super().step(action)

class Raising(Env):
    def step(self, action):
        if self.t == 2:
            raise RuntimeError("out\\nof fuel")
        return super().step(action)

class Leaving(Env):
    def step(self, action):
        if self.t == 2:
            sys.exit(0)
        return super().step(action)

class Old(Env):
    def step(self, action):
        return self.x, 0.0, False, {}

class NanReset(Env):
    def reset(self, seed=None):
        obs, info = super().reset(seed)
        return (obs * np.nan if seed else obs), info

class NanAfterTheEnd(Env):
    def reset(self, seed=None):
        obs, info = super().reset(seed)
        return (obs * np.nan if seed is None else obs), info

class Growing(Env):
    def step(self, action):
        out = super().step(action)
        return (np.zeros(3),) + out[1:] if self.t == 2 else out

class NanReward(Env):
    def step(self, action):
        out = super().step(action)
        return (out[0], np.nan) + out[2:] if self.t == 2 else out

class Parent(Env):
    """Starts a process of its own, and says which."""
    command = "sleep 60"
    def reset(self, seed=None):
        import subprocess
        if not hasattr(self, "child"):
            self.child = subprocess.Popen(["sh", "-c", self.command], stdin=subprocess.DEVNULL)
        obs, info = super().reset(seed)
        return np.array([self.child.pid, 0.0]), info

def make(id, **options):
    env = globals()[id]()
    for key, value in options.items():
        setattr(env, key, value)
    return env
'''


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "standin_gymnasium.py").write_text(PACKAGE)
    return folder


@pytest.fixture
def bridge(package):
    opened = []

    def build(id="Env", **options):
        options = {"cost_limits": (10.0,), "timeout": 30.0} | options
        env = bridge_env(id, python=sys.executable, module="standin_gymnasium", path=package, **options)
        opened.append(env)
        return env

    yield build
    for env in opened:
        env.close()


def test_six_tuple_environment_through_the_bridge(bridge):
    env = bridge(num_envs=2)
    assert env.spec.action_space == Box((-1.0, -1.0), (1.0, 1.0))
    assert (env.spec.obs_dim, env.spec.horizon, env.spec.cost_names) == (2, 5, ("cost",))
    obs = env.reset(3)
    assert obs.dtype == np.float32
    action = np.array([[0.5, 0.0], [-0.25, 0.5]], np.float32)
    for t in range(5):
        out = env.step(action)
        np.testing.assert_allclose(out.final_obs, obs + action, atol=1e-6)
        hazard = np.abs(out.final_obs[:, 0]) > 1
        np.testing.assert_allclose(out.costs[:, 0], hazard + np.abs(action).sum(-1), atol=1e-6)
        np.testing.assert_allclose(out.reward, -out.final_obs[:, 0], atol=1e-6)
        assert out.truncated.tolist() == [t == 4] * 2
        obs = out.obs
    assert (np.abs(obs) <= 0.1).all()
    assert (np.abs(out.final_obs) > 0.1).any(-1).all()


def test_named_costs_five_tuples_and_seeds(bridge):
    env = bridge("Five", num_envs=2, cost_names=("hazard", "effort"), cost_limits=(1, 2))
    first = env.reset(0)
    assert not np.array_equal(first[0], first[1])
    out = env.step(np.ones((2, 2), np.float32))
    np.testing.assert_allclose(out.costs[:, 1], 2)
    assert set(out.costs[:, 0]) <= {0, 1}
    np.testing.assert_array_equal(env.reset(0), first)
    assert not np.array_equal(env.reset(1), first)


def test_discrete_actions_may_start_anywhere(bridge):
    env = bridge("Numbered")
    assert env.spec.action_space == Discrete(3)
    assert env.act_space.start != 0
    before = env.reset(0)
    np.testing.assert_allclose(env.step(np.array([2])).obs[:, 0], before[:, 0] + 1, atol=1e-6)


def test_bounds_of_float64_are_not_left_by_rounding(bridge):
    env = bridge("Strict")
    env.reset(0)
    for bound in (-0.1, 0.7):
        env.step(np.full((1, 2), bound, np.float32))


def test_cost_function_and_horizon(bridge):
    env = bridge("Endless", cost_fn=lambda obs, action, next_obs: np.abs(next_obs - obs), cost_limits=(1, 1), horizon=3)
    env.reset(0)
    action = np.array([[0.5, -0.25]], np.float32)
    outs = [env.step(action) for _ in range(3)]
    assert [bool(o.truncated[0]) for o in outs] == [False, False, True]
    for out in outs:
        np.testing.assert_allclose(out.costs, [[0.5, 0.25]], atol=1e-6)


def test_a_cost_function_gets_the_info_of_the_other_interpreter(bridge):
    def effort(obs, action, next_obs, info):
        return info["cost_effort"] + info["place"][:, 1]

    with bridge("Telling", cost_fn=effort, cost_limits=(1,), horizon=2) as env:
        env.reset(0)
        for _ in range(3):
            out = env.step(np.array([[0.5, -0.25]], np.float32))
            np.testing.assert_allclose(out.costs[:, 0], 0.75 + out.final_obs[:, 1], atol=1e-6)


def test_gymnasium_itself_through_the_bridge():
    """Its name is also that of a file beside the worker."""
    options = {"cost_fn": lambda obs, action, next_obs: np.abs(next_obs[:, 2]) > 4, "cost_limits": (9,)}
    with bridge_env("Pendulum-v1", python=sys.executable, module="gymnasium", **options) as env:
        assert (env.spec.horizon, env.spec.obs_dim, env.spec.action_space) == (200, 3, Box((-2.0,), (2.0,)))
        env.reset(0)
        assert env.step(np.zeros((1, 1), np.float32)).costs.shape == (1, 1)


def test_options_reach_the_factory(bridge):
    env = bridge(env_options={"six": False})
    env.reset(0)
    assert env.step(np.zeros((1, 2), np.float32)).costs.shape == (1, 1)


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("Dying", "exit code 7.*engine exploded"),
        ("Raising", "RuntimeError: out of fuel"),
        ("Leaving", "raised SystemExit: 0"),
        ("Slow", "did not answer within 1 s"),
    ],
)
def test_a_failing_worker_gives_one_clear_error(bridge, id, message):
    env = bridge(id, timeout=120.0)
    workers = env._backend._workers
    processes = [worker._process for worker in workers]
    env.reset(0)
    for _ in range(2):
        env.step(np.zeros((1, 2), np.float32))
    # Only the step that hangs gets little time: a busy machine may need seconds to start a worker.
    for worker in workers:
        worker._timeout = 1.0 if id == "Slow" else worker._timeout
    with pytest.raises(BrokenEnvironmentError, match=message) as caught:
        env.step(np.zeros((1, 2), np.float32))
    assert "\n" not in str(caught.value)
    assert all(p.returncode is not None for p in processes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "Nothing"}, "KeyError: 'Nothing' during 'make'"),
        ({"id": "Old"}, "returned 4 values"),
        ({"id": "Endless"}, "horizon=N"),
        ({"cost_limits": None}, "cost_limits is missing"),
        ({"cost_limits": (1, 2)}, "2 cost limits given"),
    ],
)
def test_bad_input_is_refused_at_once(bridge, options, message):
    with pytest.raises((BrokenEnvironmentError, InputError), match=message):
        bridge(**options)


def test_missing_interpreter_and_missing_package(package):
    with pytest.raises(InputError, match="cannot be started"):
        bridge_env("Env", python=package / "no-python", cost_limits=(1,))
    with pytest.raises(BrokenEnvironmentError, match="No module named 'safety_gymnasium'"):
        bridge_env("Env", python=sys.executable, cost_limits=(1,))


def test_processes_end_with_close_and_with_the_parent(bridge, package):
    env = bridge(num_envs=2)
    processes = [worker._process for worker in env._backend._workers]
    env.close()
    env.close()
    assert [p.returncode for p in processes] == [0, 0]
    code = (
        "import sys, time; from awavo.tasks.bridge import bridge_env\n"
        f"options = dict(module='standin_gymnasium', path=[{str(package)!r}], cost_limits=(1,))\n"
        "env = bridge_env('Env', python=sys.executable, **options)\n"
        "print(env._backend._workers[0]._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_frames_survive_a_round_trip_and_refuse_nonsense():
    arrays = {"a": np.arange(6, dtype=np.float64).reshape(2, 3), "b": np.array(7), "c": np.zeros((0, 4), np.float32)}
    data = encode_frame({"x": [1, None, float("inf")]}, arrays)
    header, back = decode_frame(_reader(data))
    assert header == {"x": [1, None, float("inf")]}
    assert {k: v.shape for k, v in back.items()} == {"a": (2, 3), "b": (), "c": (0, 4)}
    np.testing.assert_array_equal(back["a"], arrays["a"])
    for bad in (b"\xff\xff\xff\xff" + data, data.replace(b"<f4", b"|O8"), data.replace(b"[2, 3]", b"[2,-3]")):
        with pytest.raises(ValueError):  # noqa: PT011
            decode_frame(_reader(bad))


def _reader(data):
    position = 0

    def read(size):
        nonlocal position
        position += size
        return data[position - size : position]

    return read


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("NanReset", r"an observation \(obs\) that is not finite or is beyond .* during 'reset'"),
        ("NanAfterTheEnd", r"an observation \(obs\) that is not finite or is beyond .* during 'step'"),
        ("Growing", r"float32 \[3\] as obs, expected float32 \[2\] during 'step'"),
        ("NanReward", "the reward nan, expected a finite number during 'step'"),
    ],
)
def test_answers_that_cannot_be_used_are_refused(bridge, id, message):
    env = bridge(id)

    def play():
        env.reset(1)
        for _ in range(5):
            env.step(np.zeros((1, 2), np.float32))

    with pytest.raises(BrokenEnvironmentError, match=message):
        play()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_an_environment_started_ends_with_it(bridge, package, end):
    if end == "close":
        env = bridge("Parent")
        grandchild = int(env.reset(0)[0, 0])
        assert _runs(grandchild)
        env.close()
    else:
        code = (
            "import os, sys; from awavo.tasks.bridge import bridge_env\n"
            f"options = dict(module='standin_gymnasium', path=[{str(package)!r}], cost_limits=(1,))\n"
            "env = bridge_env('Parent', python=sys.executable, **options)\n"
            "print(int(env.reset(0)[0, 0]), flush=True); os.kill(os.getpid(), 9)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        grandchild = int(done.stdout)
    deadline = time.monotonic() + 10
    while _runs(grandchild) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(grandchild)


def test_what_hides_from_the_first_signal_ends_with_close(bridge):
    env = bridge("Parent", env_options={"command": "trap '' TERM; sleep 60; sleep 60"})
    grandchild = int(env.reset(0)[0, 0])
    time.sleep(0.2)  # until it no longer hears
    env.close()
    deadline = time.monotonic() + 10
    while _runs(grandchild) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(grandchild)


# Another end of the bridge: it answers the first request with whatever the file holds, or does not even read.
FAKE = """#!{python}
import os, struct, sys, time
answer = open({answer!r}, "rb").read()
if not answer:
    time.sleep(60)
os.read(0, 4096)
os.write(1, answer)
while os.read(0, 4096):
    pass
"""


def fake(folder, answer):
    (folder / "answer").write_bytes(answer)
    (folder / "python").write_text(FAKE.format(python=sys.executable, answer=str(folder / "answer")))
    (folder / "python").chmod(0o700)
    return folder / "python"


def frame(text, body=b""):
    text = text if isinstance(text, bytes) else text.encode()
    return len(text).to_bytes(4, "little") + text + body


OFFER = {
    "obs_dim": 2, "action": {"kind": "box", "low": [-1.0], "high": [1.0]}, "horizon": 5, "costs": {"cost": 0.0},
}  # fmt: skip
FIRST = {"obs": np.zeros(2), "action": np.zeros(1), "next_obs": np.zeros(2)}


MALFORMED = {
    "a list": (frame("[]"), "no table"),
    "no arrays": (frame("{}"), "no table"),
    "arrays": (frame('{"arrays": [7]}'), "is not allowed"),
    "a name": (frame('{"arrays": [[7, "<f4", [1]]]}'), "is not allowed"),
    "a side": (frame('{"arrays": [["a", "<f4", ["1"]]]}'), "is not allowed"),
    "many sides": (frame(f'{{"arrays": [["a", "<f4", {[1] * 99}]]}}'), "is not allowed"),
    "a large array": (frame('{"arrays": [["a", "<f4", [99999999]]]}'), "expected at most 67108864"),
    "many arrays": (frame(f'{{"arrays": {[["a", "<f4", [1]]] * 17}}}'.replace("'", '"')), "no table"),
    "depth": (frame("[" * 90000), "without end"),
    "text": (frame(b"\xff\xfe"), "cannot be read"),
    "an error of another kind": (frame('{"arrays": [], "error": {"a": [1]}}'), "raised {'a': .1.}"),
    "no offer": (frame('{"arrays": []}'), "offered no action space"),
    "length": (encode_frame({**OFFER, "obs_dim": "2"}, FIRST), "offered a length of the observation"),
    "many actions": (
        encode_frame({**OFFER, "action": {"kind": "discrete", "n": 10**12, "start": 0}}, FIRST),
        "actions",
    ),
    "bounds": (encode_frame({**OFFER, "action": {"kind": "box", "low": [0], "high": []}}, FIRST), "bounds of actions"),
    "bounds the wrong way": (
        encode_frame({**OFFER, "action": {"kind": "box", "low": [2.0], "high": [1.0]}}, FIRST),
        "a lower one is above",
    ),
    "no bounds": (
        encode_frame({**OFFER, "action": {"kind": "box", "low": [float("nan")], "high": [1.0]}}, FIRST),
        "a lower one is above",
    ),
    "horizon": (encode_frame({**OFFER, "horizon": -3}, FIRST), "a time limit"),
    "costs": (encode_frame({**OFFER, "costs": 3}, FIRST), "costs that are none"),
    "no step": (encode_frame(OFFER), "no first step"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_answers_are_refused(case, tmp_path):
    answer, message = MALFORMED[case]
    with pytest.raises(BrokenEnvironmentError, match=message):
        bridge_env("Env", python=fake(tmp_path, answer), cost_limits=(1,), timeout=30.0)


@pytest.mark.parametrize("reward", [10**39, 10**400, float("nan"), -1e39, True, "1", None])
def test_a_reward_is_a_number_of_a_size_that_can_be_learnt_from(reward):
    class Answering(Worker):
        def __init__(self):
            pass

        def send(self, *_, **__):
            pass

        def receive(self):
            obs = np.zeros(2, np.float32)
            ends = {"terminated": False, "truncated": False}
            return {"reward": reward, "costs": {"cost": 0.0}, **ends}, {"obs": obs, "final_obs": obs}

        def refuse(self, what):
            return BrokenEnvironmentError(what)

    backend = BridgeBackend([Answering()], CostSource(("cost",), ("cost",)), 2)
    with pytest.raises(BrokenEnvironmentError, match="the reward"):
        backend.step(np.zeros((1, 1), np.float32))


def test_an_offer_without_a_time_limit_is_refused(tmp_path):
    answer = encode_frame({k: v for k, v in OFFER.items() if k != "horizon"}, FIRST)
    with pytest.raises(InputError, match="horizon=N"):
        bridge_env("Env", python=fake(tmp_path, answer), cost_limits=(1,), timeout=30.0)


def test_a_worker_that_takes_no_request_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("awavo.tasks.bridge.PATIENCE", 0.1)
    began = time.monotonic()
    with pytest.raises(BrokenEnvironmentError, match=r"did not take a request within 0.5 s"):
        bridge_env("E" * 10**6, python=fake(tmp_path, b""), cost_limits=(1,), timeout=0.5)
    assert time.monotonic() - began < 10


@pytest.mark.bad_input
@pytest.mark.parametrize("timeout", [0, -1, np.nan, np.inf, "soon", True, 10**9])
def test_a_timeout_is_a_number_of_seconds(timeout):
    with pytest.raises(InputError, match="timeout="):
        bridge_env("Env", python=sys.executable, cost_limits=(1,), timeout=timeout)
