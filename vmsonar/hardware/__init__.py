"""What the machine is: read at start and when something changed, so clarity comes before speed."""
