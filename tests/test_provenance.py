"""What a result says about its origin."""

import datetime
import subprocess
import sys

from awavo.provenance import stamp


def test_a_stamp_holds_what_is_asked_for_in_that_order():
    assert list(stamp()) == ["command", "commit", "versions", "device"]
    assert list(stamp("versions", "created")) == ["versions", "created"]
    made = datetime.datetime.fromisoformat(stamp("created")["created"])
    assert abs((datetime.datetime.now(datetime.UTC) - made).total_seconds()) < 60


def test_a_stamp_without_the_device_imports_no_jax():
    parts = "'command', 'commit', 'versions', 'created'"
    code = f"import sys; from awavo.provenance import stamp; stamp({parts}); print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
