"""The archive in other tools' layouts."""
