"""Tables the tests run over: operations, graphs, and strategies for random programs."""
