"""What plans lose against the target: losses of outputs, request by request, on prompts."""
