"""Reduces a failed Spark job to its cause: a task's error, or a summary of Java's errors."""

import re
import traceback

from jobs import errors
from jobs.errors import TidegateError

READING = re.compile(r"Encountered error while reading file (?:file:/+)?(\S.*?)\.\s+SQLSTATE")
KILLED = "Python worker exited unexpectedly"
STOPPED = "Cannot call methods on a stopped SparkContext"


def task_error(error: Exception) -> Exception:
    """Return the error that a task raised, as read from Spark's error; else the error itself."""
    message = re.search(rf"{re.escape(errors.__name__)}\.(\w+): (.+)", str(error))
    kind = vars(errors).get(message[1]) if message else None
    if message is None or kind is None or not issubclass(kind, TidegateError):
        return error
    own: TidegateError = kind(message[2].strip())
    return own


def explain_error(error: Exception) -> str:
    """Return the cause, with the unreadable file or a known cure."""
    text, cause = str(error), root_cause(error)
    if unreadable := READING.search(text):
        return f"input: /{unreadable[1].lstrip('/')} cannot be read: {cause}. Write the file again."
    if KILLED in text:
        return (
            "a Python worker of Spark was killed in each attempt of its task, perhaps because "
            "memory ran out. Run fewer tasks at once, or give them more memory; answers so far are "
            "in the ledger."
        )
    if STOPPED in text:
        return (
            "Spark ended the application, perhaps because its master did not answer or killed it; "
            "the log says why. Answers so far are in the ledger."
        )
    if _is_of_the_gateway(error):
        return (
            "Spark's Java ended or was killed, perhaps because memory ran out. Give the machine or "
            "the container more memory, or Java less; answers so far are in the ledger."
        )
    return cause


def _is_of_the_gateway(error: Exception) -> bool:
    """Return whether Python lost the connection to Java, whose sockets only Py4J uses."""
    frames = traceback.extract_tb(error.__traceback__)
    is_network = isinstance(error, OSError) or type(error).__name__ == "Py4JNetworkError"
    return is_network and any("py4j" in frame.filename for frame in frames)


def root_cause(error: Exception) -> str:
    """Return the innermost cause as a line: only the last cause of a Java error is informative."""
    # Spark indents what a Python wrote that did not start
    raised = re.search(r"^( *)Traceback .*\n(?:\1[ \t].*\n)*\1(\S.*)", str(error), re.MULTILINE)
    if raised is not None:
        return raised[2]
    java = getattr(error, "java_exception", None)
    if java is None:
        text = str(error).strip()
        return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
    while java.getCause() is not None:
        java = java.getCause()
    # a heading, as "Error from python worker:", is before the line that it is about
    return re.sub(r":\s*\n\s*", ": ", str(java.toString())).splitlines()[0]
