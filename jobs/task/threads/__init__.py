"""The threads of a task: user code, reading ahead, and the watch over the event loop."""
