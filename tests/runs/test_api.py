"""The Python interface refuses what it cannot work with in one line of its own, before anything is made."""

import pytest

import awavo
from awavo.errors import InputError

pytestmark = pytest.mark.bad_input


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, None, "abc", True])
def test_the_time_between_checkpoints_is_a_number_of_seconds(tmp_path, seconds):
    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"checkpoint_seconds is .*, expected a finite number of seconds >= 0\.$"):
        next(awavo.train_iter(awavo.configure("cartpole"), out, checkpoint_seconds=seconds))
    assert not out.exists()
