"""The commands as plain functions with plain data, for the command line and for orchestration."""
