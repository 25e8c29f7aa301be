"""The archive: records, layout, writer, reader, seal, bundle and verify."""
