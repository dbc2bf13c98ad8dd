"""A server under load: requests in flight, requests served."""
