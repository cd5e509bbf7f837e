"""What the commands do, each a plain function that gives plain data: for the command line and for orchestration."""
