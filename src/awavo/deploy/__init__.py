"""From a trained run to a machine that flies: exported policies, and MAVLink."""
