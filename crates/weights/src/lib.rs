//! Checkpoint readers: GGUF, safetensors and MLX over mmap, every file hostile until proven otherwise
