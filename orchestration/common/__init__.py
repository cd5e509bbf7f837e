"""What every orchestrator shares: deadlines, modes, states of a day and their sentences. Knows no Dagster."""
