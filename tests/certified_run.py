"""A small certified run that the tests of certificates and of forgeries share."""

import shutil

import pytest

from awavo.cli.main import main


@pytest.fixture(scope="session")
def certified(once, small_run):
    """A run folder with certificates of all kinds, and the exit code of the command that made them."""

    def make(folder):
        shutil.copytree(small_run, folder / "cartpole")
        # Attacks and episodes that find nothing in this small run anyway: fewer of them.
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (("metric.STARTS", 4), ("metric.STEPS", 10), ("run_certificates.CRITIC_EPISODES", 100)):
                patch.setattr(f"awavo.formal.{name}", value)
            code = main(["certify", str(folder / "cartpole"), "--episodes", "60", "--json"])
        (folder / "code").write_text(str(code))

    folder = once("certified", make)
    return folder / "cartpole", int((folder / "code").read_text())


PROOFS = {}


def proved_once(certify):
    """`certify_operator` that proves an operator, known by what it says at one point, once for each of its ranges."""

    def proved(operator, ranges):
        maps = (operator.reward, operator.cost, operator.reward_log_likelihood, operator.cost_log_likelihood)
        known = (operator.name, operator.log_floor, operator.bounded, *(float(f(-0.5, -2.0, 3.0)) for f in maps))
        found = PROOFS.setdefault((*known, *map(tuple, ranges)), [])
        found += [] if found else certify(operator, ranges)
        return list(found)

    return proved


@pytest.fixture
def safety_only(monkeypatch):
    """Leave out what does not depend on the policies, or prove it once, to be quick."""
    from awavo.formal import run_certificates

    monkeypatch.setattr(run_certificates, "certify_operator", proved_once(run_certificates.certify_operator))
    monkeypatch.setattr(run_certificates, "certify_metric", lambda slices: [])
    monkeypatch.setattr(run_certificates, "_reference", lambda settings: [])
    monkeypatch.setattr(run_certificates, "_calibration", lambda subject, plan, delivered: ([], None))
