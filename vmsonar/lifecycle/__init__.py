"""What makes vmsonar a service: installing, user-data, and saving what was recorded before the VM is gone."""
