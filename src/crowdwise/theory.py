"""The old name of `crowdwise.bench.paper.theory`."""

import sys
import warnings

from crowdwise.bench.paper import theory

warnings.warn("crowdwise.theory is now crowdwise.bench.paper.theory", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = theory
