"""Models from GGUF files, llama.cpp's format of weights, tokenizer and description in one."""
