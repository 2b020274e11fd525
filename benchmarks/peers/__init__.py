"""The same inference-learning update in dendrax, by hand, and in other libraries.

Run ``python -m benchmarks.peers``. Each library runs in a worker process of its own virtual
environment, so nothing may be imported here: the workers' environments have neither dendrax nor
rich.
"""
