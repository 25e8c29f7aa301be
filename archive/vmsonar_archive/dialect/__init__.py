"""Other tools' shapes of our records: Sonar's JSON, and metrics for Prometheus and OpenTelemetry.

Comes in: records in order. Goes out: JSON for Sonar's consumers, metrics as text. Imports records only.
"""

__all__ = ["batch", "exposition", "grafana", "history", "metrics", "otlp", "places", "sonar", "subjects"]
