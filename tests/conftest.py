"""What every test may use."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# One profile for every machine: no deadline, because a slow runner is not a wrong program.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

pytest_plugins = ("making",)
