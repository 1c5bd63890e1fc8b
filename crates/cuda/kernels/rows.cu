// Kernels that treat every token by itself: embedding, norms with the residual stream, the gate between two products, and copies
// of KV blocks. A row's result depends on that row alone: each has a block (or a fixed part of one), and sums run in a fixed order.

// A token that the step before chooses: the bit says so, the rest is that step's row.
#define FED 0x80000000u

struct Embed {
    const u32 *tokens;   // [rows], FED | row of `chosen`, or a token
    const u32 *chosen;   // what the step before chose, by its rows
    const bf16 *table;   // [vocab][width]
    float *hidden;       // [rows][width]
    u32 width, vocab;
    float scale;
};
KERNEL(embed, Embed, 128) {
    u32 row = blockIdx.x, token = a.tokens[row];
    if (token & FED) token = a.chosen[token & ~FED];
    token = token < a.vocab ? token : 0;
    const u32 *from = (const u32 *)(a.table + (u64)token * a.width);
    float *to = a.hidden + (u64)row * a.width;
    for (u32 i = threadIdx.x; i < a.width / 2; i += blockDim.x) {
        u32 pair = from[i];
        to[2 * i] = __fmul_rn(low_half(pair), a.scale);
        to[2 * i + 1] = __fmul_rn(high_half(pair), a.scale);
    }
}

// hidden += post_norm(branch + bias); out = norm(hidden): whatever of it is there.
struct Residual {
    float *hidden;         // [rows][width]
    const float *branch;   // [rows][width], or null: nothing is added
    const float *bias;     // [width], or null
    const float *post;     // [width], or null: the branch is added as it is
    const float *weight;   // [width]
    bf16 *out;             // [rows][width]
    const u32 *picked;     // rows of `hidden` and `branch` to take, or null: all in order
    u32 width;
    float eps;
    u32 keep;              // whether the sum goes back into `hidden`
};
KERNEL(residual, Residual, 256) {
    DYNAMIC_SHARED(bytes);
    __shared__ float scratch[32];
    float *x = (float *)bytes;  // [width]
    const u32 row = a.picked ? a.picked[blockIdx.x] : blockIdx.x;
    float *hidden = a.hidden + (u64)row * a.width;
    const float *branch = a.branch ? a.branch + (u64)row * a.width : nullptr;
    float share = 1.0f;
    if (branch && a.post) {
        float squares = 0.0f;
        for (u32 i = threadIdx.x; i < a.width; i += blockDim.x) {
            float v = a.bias ? __fadd_rn(branch[i], a.bias[i]) : branch[i];
            squares = __fmaf_rn(v, v, squares);
        }
        share = __fdiv_rn(1.0f, sqrtf(__fadd_rn(__fdiv_rn(block_sum(squares, scratch), (float)a.width), a.eps)));
    }
    float squares = 0.0f;
    for (u32 i = threadIdx.x; i < a.width; i += blockDim.x) {
        float v = hidden[i];
        if (branch) {
            float b = a.bias ? __fadd_rn(branch[i], a.bias[i]) : branch[i];
            if (a.post) b = __fmul_rn(__fmul_rn(b, share), a.post[i]);
            v = __fadd_rn(v, b);
            if (a.keep) hidden[i] = v;
        }
        x[i] = v;
        squares = __fmaf_rn(v, v, squares);
    }
    float scale = __fdiv_rn(1.0f, sqrtf(__fadd_rn(__fdiv_rn(block_sum(squares, scratch), (float)a.width), a.eps)));
    u32 *out = (u32 *)(a.out + (u64)blockIdx.x * a.width);
    __syncthreads();
    for (u32 i = threadIdx.x; i < a.width / 2; i += blockDim.x)
        out[i] = pack2(__fmul_rn(__fmul_rn(x[2 * i], scale), a.weight[2 * i]), __fmul_rn(__fmul_rn(x[2 * i + 1], scale), a.weight[2 * i + 1]));
}

#define SILU 0u
#define GELU_TANH 1u
#define GELU 2u
DEVICE float activated(float x, u32 kind) {
    if (kind == SILU) return __fdiv_rn(x, __fadd_rn(1.0f, power2(__fmul_rn(-1.442695041f, x))));
    if (kind == GELU_TANH) {
        float inner = __fmul_rn(0.7978846f, __fmaf_rn(__fmul_rn(__fmul_rn(0.044715f, x), x), x, x));
        return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, tanh_by_power(inner)));
    }
    return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, erff(__fmul_rn(x, 0.70710678f))));
}

// out = activation(gate) * up
struct Gate {
    const bf16 *gate_up;  // [rows][gate: width | up: width]
    const float *bias;    // [2 * width], or null
    bf16 *out;            // [rows][width]
    u32 width, kind;
};
KERNEL(gate, Gate, 256) {
    const u32 i = (blockIdx.y * blockDim.x + threadIdx.x) * 2;
    if (i >= a.width) return;
    const bf16 *row = a.gate_up + (u64)blockIdx.x * 2 * a.width;
    u32 gates = *(const u32 *)(row + i), ups = *(const u32 *)(row + a.width + i);
    float g[2] = {low_half(gates), high_half(gates)}, u[2] = {low_half(ups), high_half(ups)};
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (a.bias) g[e] = __fadd_rn(g[e], a.bias[i + e]), u[e] = __fadd_rn(u[e], a.bias[a.width + i + e]);
        g[e] = __fmul_rn(activated(g[e], a.kind), u[e]);
    }
    *(u32 *)(a.out + (u64)blockIdx.x * a.width + i) = pack2(g[0], g[1]);
}

// Copies whole KV blocks, in all layers: block (x, y) copies pair x in layer y. Pairs of one launch don't overlap.
struct CopyBlocks {
    u8 *kv;              // [layer][block][bytes]
    const u32 *pairs;    // [count][from, to]
    u64 layer_bytes;
    u32 block_bytes;     // of one layer; a multiple of 16
};
KERNEL(copy_blocks, CopyBlocks, 256) {
    u8 *layer = a.kv + blockIdx.y * a.layer_bytes;
    const uint4 *from = (const uint4 *)(layer + (u64)a.pairs[2 * blockIdx.x] * a.block_bytes);
    uint4 *to = (uint4 *)(layer + (u64)a.pairs[2 * blockIdx.x + 1] * a.block_bytes);
    for (u32 i = threadIdx.x; i < a.block_bytes / 16; i += blockDim.x) to[i] = from[i];
}

// Random weights, for measurements: uniform in -amount .. amount.
struct Randomise {
    bf16 *values;
    u64 count;
    u32 seed;
    float amount;
};
KERNEL(randomise, Randomise, 256) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < a.count; i += (u64)gridDim.x * blockDim.x) {
        u64 z = (i + 1) * 0x9E3779B97F4A7C15ull + a.seed * 0xD1B54A32D192ED03ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        a.values[i] = narrow(((float)((z >> 40) & 0xffffff) / 8388608.0f - 1.0f) * a.amount);
    }
}
