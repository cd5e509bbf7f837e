import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # honest_day and planted_faults stand beside the tests that use them
