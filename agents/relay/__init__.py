"""A relay between an agent and its model: it holds the key, passes everything through, and writes down what passed.

The operator's side starts one relay per trial, as a process of its own (``python -m agents.relay``). The agent gets the
relay's address and a token that is good for nothing else. :mod:`agents.relay.ledger` is what other code reads.
"""
