"""The HTTP API: one file per noun. Each turns a request into one call and its answer."""
