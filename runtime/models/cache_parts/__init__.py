"""Parts of a cache that drafts read: chunks that a query retrieves, and heads that stream."""
