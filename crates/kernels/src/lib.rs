//! CPU kernels: packed formats, matmul, attention, elementwise loops and the compute pool
