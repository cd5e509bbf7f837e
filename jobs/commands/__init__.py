"""The commands as functions with plain data, for the command line and for orchestration."""
