"""Training: rollouts, the chunked loop, checkpoints, evaluation."""
