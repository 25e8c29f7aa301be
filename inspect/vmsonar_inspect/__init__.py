"""What explains an archive: rates, rollups, verdicts, tables and pages."""
