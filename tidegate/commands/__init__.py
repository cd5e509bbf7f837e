"""The commands of the command line, by purpose, in the order of help; a module each."""

from importlib import import_module

from tidegate.commands.command import Command

GROUPS = {
    "Begin": {
        "init": "a new project, with an enrichment that runs",
        "check": "every declaration against its input, table, secrets, services; no call",
        "try": "a few rows with real calls, request beside answer",
        "eval": "compare variants of a lookup, such as two prompts, on a sample; answers are kept",
        "plan": "what days would call for, why, and what that costs; no call, no write",
        "test": "what today's declaration would make of a published day, from the ledger; no call",
    },
    "Run days": {
        "run": "enrich, check and publish days, one after the other, until one fails",
        "stream": "enrich, check and publish files as they come, each once",
    },
    "Look, without a call": {
        "ls": "the enrichments, with their lookups, schedules and tables",
        "status": "the last day of every table, or the days of one: what is wrong and what to do "
        "first; rows, calls, cost",
        "show": "an enrichment as it is declared; or a day: its runs, lookups and checks",
        "explain": "where the cells of a published row come from: key, request, answer, run, "
        "price; no call",
        "diff": "two versions of a published day: cells, rows, outcomes, checks, cost; no call",
        "dead-letters": "the rows that got no answer, by reason, of all days, held back or "
        "published",
    },
    "Mend": {
        "replay": "ask again for the dead letters of a day, or for those with a reason, and "
        "nothing else",
        "remap": "run published days again from stored responses, with new columns or paths; 0 "
        "calls",
        "refresh": "ask again for stored answers that meet a condition; run the days that use them",
        "forget": "remove keys from ledger, tables, old versions and evidence; prints a "
        "certificate",
        "jobs": "the jobs of vendors: which are open, and what they cost",
    },
    "Keep tidy": {
        "compact": "merge the many small parts of the ledgers into a few sorted files; loses no "
        "answer",
        "vacuum": "remove old versions and runs that were never published; never under a running "
        "job",
    },
    "Limits and money": {
        "limits": "which run holds how much of each shared limit, and which waits",
        "costs": "what the services billed in a month, by service, enrichment and lookup",
    },
    "Deploy and serve": {
        "manifest": "what Airflow must know of the enrichments, as JSON",
        "pack": "a zip of the packages that a cluster's executors need: Tidegate's and yours",
        "ui": "Dagster and the reports for the workspace.yaml here, until Ctrl-C",
        "reports": "serve a page over all tables, the reports and the runs' logs to this machine's "
        "browser",
        "mcp": "serve an agent the commands that only read, on stdin and stdout; it may run "
        "approved plans",
        "approve": "let an agent run a plan once, at its price",
    },
}
COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}
MODULES = {"dead-letters": "dead_letters", "eval": "evaluate", "test": "against", "try": "try_rows"}


def load_command(name: str) -> Command:
    """Return a command of COMMANDS. Imports no other command, so that each starts fast."""
    module = import_module(f"tidegate.commands.{MODULES.get(name, name)}")
    command: Command = module.COMMAND
    return command
