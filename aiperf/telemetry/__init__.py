"""Telemetry of a host and its devices during a run, recorded once per second by a separate process."""
