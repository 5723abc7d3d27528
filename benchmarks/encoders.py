"""How long tfidf takes, and how much memory: many short texts on this machine. ``python benchmarks/encoders.py --help``."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

import numpy as np

from crowdwise.encoders import Tfidf


def texts(n: int, words: int, seed: int) -> list[str]:
    """Texts of about ``words`` words with the frequencies of a language (Zipf's law)."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    share = 1 / np.arange(1, len(letters) + 1)
    lengths = rng.integers(2, 11, size=60_000)
    vocabulary = ["".join(rng.choice(letters, length, p=share / share.sum())) for length in lengths]
    frequency = 1 / np.arange(1, len(vocabulary) + 1) ** 1.05
    cumulative = np.cumsum(frequency / frequency.sum())
    sizes = np.maximum(rng.poisson(words, n), 3)
    drawn = np.minimum(np.searchsorted(cumulative, rng.random(int(sizes.sum()))), len(vocabulary) - 1)
    parts = np.split(drawn, np.cumsum(sizes)[:-1])
    return [" ".join([vocabulary[place] for place in part]) for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--words", type=int, default=15, help="words of a text, on average")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    some = texts(options.texts, options.words, options.seed)
    before, busy = time.perf_counter(), time.process_time()
    encoder = Tfidf().fitted(some)
    learnt = time.perf_counter()
    encoded = encoder.transform(some)
    after = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        json.dumps(
            {
                "texts": len(some),
                "columns": encoded.shape[1],
                "learn_seconds": round(learnt - before, 1),
                "encode_seconds": round(after - learnt, 1),
                "processor_seconds": round(time.process_time() - busy, 1),
                "peak_gb": round(peak, 2),
                "load": [round(each, 1) for each in os.getloadavg()],
                "processors": os.cpu_count(),
            }
        )
    )


if __name__ == "__main__":
    main()
