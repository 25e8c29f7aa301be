"""What the container collector and its companion share: control groups, networks, owners and their wire."""
