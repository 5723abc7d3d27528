"""The program's own help, which is printed without importing a command or the parser of options."""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "Labels": {
        "aggregate": "Infer one label with a confidence per item.",
        "agreement": "Measure inter-annotator agreement, with confidence intervals.",
        "annotators": "Profile each annotator: skill and typical errors.",
        "report": "Write an HTML report: annotators, doubtful items, next labels.",
        "review": "Review and relabel doubtful items in the browser.",
    },
    "Models as annotators": {
        "judges": "Test whether models can replace human annotators.",
        "estimate": "Estimate class proportions or accuracy from a few gold labels.",
        "route": "Select the items that people should label to bound the error.",
    },
    "Classifiers": {
        "train": "Train a classifier on annotations.",
        "predict": "Predict the classes of new items.",
        "compare": "Rank training methods on your data with held-out labels.",
        "bench": "Run benchmarks: the paper's experiments or your own.",
    },
    "Data and information": {
        "convert": "Convert annotations to another file format.",
        "simulate": "Simulate a crowd with known true labels.",
        "demo": "Train and compare four methods on a simulated crowd.",
        "info": "Describe a file, a run, a method, a dataset or a format.",
        "methods": "List the training methods.",
        "presets": "List the presets.",
        "cache": "Show or clear the cache of pretrained-encoder features.",
    },
}
"""Heading -> command -> summary."""

OPTIONS = {
    "-h, --help": "Show this help; COMMAND --help shows a command's.",
    "--version": "Print the version and exit.",
    "--plugin MODULE": "Module or Python file with your own methods. Repeatable.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it.",
}


def overview() -> str:
    """Return the text of ``crowdwise --help``; no line has more than 80 columns."""
    lines = [
        "Usage: crowdwise [OPTIONS] COMMAND [ARGS]...",
        "",
        "  Infer labels, annotator skill and classifiers from annotators who disagree.",
        "  New here? Run `crowdwise demo`.",
    ]
    for heading, entries in {**GROUPS, "Options": OPTIONS}.items():
        width = max(len(name) for name in entries) if heading == "Options" else 10
        lines += ["", f"{heading}:", *(f"  {name:{width}}  {text}" for name, text in entries.items())]
    return "\n".join(lines) + "\n"
