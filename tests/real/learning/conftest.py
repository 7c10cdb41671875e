"""Makes the studies of tests/learning importable."""

import importlib
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "learning")]

with warnings.catch_warnings():  # gym-sokoban 0.0.6 uses what setuptools has given up
    warnings.simplefilter("ignore")
    importlib.import_module("sample_logs.generators.sokoban")
