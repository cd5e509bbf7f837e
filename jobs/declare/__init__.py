"""The declarations of users, without Spark or clients, so that they load fast."""
