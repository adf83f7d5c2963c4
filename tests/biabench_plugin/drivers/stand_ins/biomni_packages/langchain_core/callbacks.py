class BaseCallbackHandler:
    """Called around model calls."""
