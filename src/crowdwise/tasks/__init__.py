"""The use cases: one file each, behind the command line, notebooks, Ray and tests alike.

A task takes plain values and returns a result object. It raises `crowdwise.errors`, which name the parameter that is wrong,
tells an `Observer` how far it is, and never prints, parses or exits::

    from crowdwise.tasks.aggregate import aggregate

    result = aggregate("crowd.csv", "labels.csv")
    print(result.method, result.figures.alpha)

Importing this package is as light as importing crowdwise: each task brings what it needs.
"""
