"""A small certified run that the tests of certificates and of forgeries share."""

import pytest

import awavo
from awavo.cli.main import main

SMALL = dict(
    num_envs=4, rollout_length=16, num_updates=2, batch_size=16, hidden=(16,), num_quantiles=8, warmup_steps=64
)


@pytest.fixture(scope="session")
def certified(once):
    """A run folder with certificates of all kinds, and the exit code of the command that made them."""

    def make(folder):
        config = awavo.configure(
            "cartpole", steps=512, seeds=2, cost_limits=(150.0, 150.0), task_options={"horizon": 30}, **SMALL
        )
        awavo.train(config, folder / "cartpole")
        code = main(["certify", str(folder / "cartpole"), "--episodes", "60", "--json"])
        (folder / "code").write_text(str(code))

    folder = once("certified", make)
    return folder / "cartpole", int((folder / "code").read_text())


@pytest.fixture
def safety_only(monkeypatch):
    """Leave out what does not depend on the policies, to be quick."""
    from awavo.formal import run_certificates

    monkeypatch.setattr(run_certificates, "certify_metric", lambda slices: [])
    monkeypatch.setattr(run_certificates, "_reference", lambda settings: [])
    monkeypatch.setattr(run_certificates, "_calibration", lambda subject, plan, delivered: ([], None))
