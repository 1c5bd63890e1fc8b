//! The executor on CPU kernels: paged KV storage, forward pass, sampling
