def get_worker_info():
    """As in torch's main process."""
    return None
