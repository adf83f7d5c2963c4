"""Published data: fetched from the hub, kept in one cache, checked, and rebuilt from the original sources."""
