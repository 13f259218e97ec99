"""Why a controller decided so: latent factors, their influence with intervals, decision records, flight logs."""
