"""The companion: the only process that talks to a container engine. It passes on listed fields, nothing else."""
