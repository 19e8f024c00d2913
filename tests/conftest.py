"""What holds for every test: no property fails since the machine was slow while its examples were drawn."""

from hypothesis import HealthCheck, settings

# the parent is "ci" where CI is set: the same examples in every run, so that a failure there can be had again
settings.register_profile("any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
