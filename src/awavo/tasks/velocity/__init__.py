"""Run, but not too fast: six bodies of Gymnasium with the speed limits of Safety-Gymnasium."""
