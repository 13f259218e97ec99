"""A small certified run that the tests of certificates and of forgeries share."""

import shutil

import pytest

from awavo.cli.main import main


@pytest.fixture(scope="session")
def certified(once, small_run):
    """A run folder with certificates of all kinds, and the exit code of the command that made them."""

    def make(folder):
        shutil.copytree(small_run, folder / "cartpole")
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
