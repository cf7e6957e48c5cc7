"""A running component shows its whole configuration."""

from koordinator.api.kubescheduler import Extender, ExtenderTLSConfig, KubeSchedulerConfiguration
from koordinator.process.endpoints import configz


def test_defaults_are_shown_as_they_would_be_written() -> None:
    """In the spelling of the file, durations too."""
    shown = configz(KubeSchedulerConfiguration)({})

    assert isinstance(shown, dict)
    configuration = shown["componentconfig"]
    assert configuration["podMaxBackoffSeconds"] == 10
    assert configuration["leaderElection"]["leaseDuration"] == "15s"
    assert configuration["profiles"][0]["schedulerName"] == "default-scheduler"
    assert configuration["profiles"][0]["plugins"] is None


def test_keys_are_not_shown() -> None:
    """Readers of the configuration must not be able to act for the scheduler."""
    tls = ExtenderTLSConfig(key_data=b"secret")
    configuration = KubeSchedulerConfiguration(extenders=(Extender(tls_config=tls),))

    assert "'keyData': '(6 bytes)'" in str(configz(lambda: configuration)({}))
