"""Experiments, their records, and what is made of them: tables beside the paper's, rankings, figures.

A record is one run (one setting, one method, one seed) as a dictionary. Nothing here imports torch until a run starts.
"""

from __future__ import annotations
