// Kernels that treat every token by itself: embedding, norms with the residual stream, the gate between two products, and copies
// of KV blocks. A row's result depends on that row alone: each has a block (or a fixed part of one), and sums run in a fixed order.

// Set in a token that the previous step samples and the host does not know yet: the other bits are its row in that step.
#define SAMPLED_LAST_STEP 0x80000000u

struct Embed {
    const u32 *tokens;   // [rows], SAMPLED_LAST_STEP | row of `chosen`, or a token
    const u32 *chosen;   // what the step before chose, by its rows
    const bf16 *table;   // [vocab][width]
    float *hidden;       // [rows][width]
    u32 width, vocab;
    float scale;
};
KERNEL(embed, Embed, 128) {
    u32 row = blockIdx.x, token = a.tokens[row];
    if (token & SAMPLED_LAST_STEP) token = a.chosen[token & ~SAMPLED_LAST_STEP];
    token = token < a.vocab ? token : 0;
    const u32 *from = (const u32 *)(a.table + (u64)token * a.width);
    float *to = a.hidden + (u64)row * a.width;
    for (u32 i = threadIdx.x; i < a.width / 2; i += blockDim.x) {
        u32 pair = from[i];
        to[2 * i] = __fmul_rn(low_bf16(pair), a.scale);
        to[2 * i + 1] = __fmul_rn(high_bf16(pair), a.scale);
    }
}

// hidden += post_norm(branch + bias); out = norm(hidden). Operands that are null are left out.
struct Residual {
    float *hidden;         // [rows][width]
    const float *branch;   // [slices][rows][width], which are added up first, in order; or null: nothing is added
    const float *bias;     // [width], or null
    const float *post;     // [width], or null: the branch is added as it is
    const float *weight;   // [width]
    bf16 *out;             // [rows][width]
    u32 width, slices;
    u32 fours;             // values of a slice, in fours
    float eps;
};
DEVICE float4 plus(float4 a, float4 b) { return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)); }
DEVICE float4 times(float4 a, float4 b) { return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w)); }
DEVICE float4 scaled(float4 a, float s) { return times(a, make_float4(s, s, s, s)); }
DEVICE float squared(float4 v, float sum) { return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum)))); }
DEVICE float inverse_root(float squares, u32 width, float eps) {
    return __fdiv_rn(1.0f, sqrtf(__fadd_rn(__fdiv_rn(squares, (float)width), eps)));
}
// Four values at a time; a row's values stay in registers. ROW_THREADS and GROUPS, set at compile time, are how many threads share a
// row, and how many fours each of them holds.
KERNEL(residual, Residual, ROW_THREADS) {
    __shared__ float scratch[32];
    const u32 row = blockIdx.x, groups = a.width / 4;
    float4 *hidden = (float4 *)(a.hidden + (u64)row * a.width);
    const float4 *branch = (const float4 *)(a.branch + (u64)row * a.width);
    const float4 *bias = (const float4 *)a.bias, *post = (const float4 *)a.post, *weight = (const float4 *)a.weight;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 x[GROUPS], added[GROUPS], weights[GROUPS];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {  // all that is read, at once
        u32 at = threadIdx.x + i * ROW_THREADS;
        bool in = at < groups;
        x[i] = in ? hidden[at] : zero;
        weights[i] = in ? weight[at] : zero;
        added[i] = in && a.branch ? branch[at] : zero;
#pragma unroll 1
        for (u32 slice = 1; slice < a.slices; slice++) added[i] = plus(added[i], in ? branch[slice * a.fours + at] : zero);
        if (in && bias) added[i] = plus(added[i], bias[at]);
        if (post) squares = squared(added[i], squares);
    }
    if (post && a.branch) {
        float share = inverse_root(block_sum(squares, scratch), a.width, a.eps);
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            u32 at = threadIdx.x + i * ROW_THREADS;
            if (at < groups) added[i] = times(scaled(added[i], share), post[at]);
        }
    }
    squares = 0.0f;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        u32 at = threadIdx.x + i * ROW_THREADS;
        if (a.branch) x[i] = plus(x[i], added[i]);
        if (a.branch && at < groups) hidden[at] = x[i];
        squares = squared(x[i], squares);
    }
    float scale = inverse_root(block_sum(squares, scratch), a.width, a.eps);
    uint2 *out = (uint2 *)(a.out + (u64)row * a.width);
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        u32 at = threadIdx.x + i * ROW_THREADS;
        float4 v = times(scaled(x[i], scale), weights[i]);
        if (at < groups) out[at] = make_uint2(pack_bf16x2(v.x, v.y), pack_bf16x2(v.z, v.w));
    }
}

// Rows whose logits are wanted, side by side; several may be the same one.
struct Pick {
    const u32 *picked;      // rows to take
    const float *hidden;    // [rows][width]
    const bf16 *attended;   // [rows][queries]
    float *picked_hidden;
    bf16 *picked_attended;
    u32 width, queries;     // multiples of 4 and 8
};
KERNEL(pick, Pick, 256) {
    const u64 row = a.picked[blockIdx.x], to = blockIdx.x;
    const uint4 *hidden = (const uint4 *)(a.hidden + row * a.width), *attended = (const uint4 *)(a.attended + row * a.queries);
    for (u32 i = threadIdx.x; i < a.width / 4; i += blockDim.x) ((uint4 *)(a.picked_hidden + to * a.width))[i] = hidden[i];
    for (u32 i = threadIdx.x; i < a.queries / 8; i += blockDim.x) ((uint4 *)(a.picked_attended + to * a.queries))[i] = attended[i];
}

// out = activation(gate) * up
struct Gate {
    const bf16 *gate_up;  // [rows][gate: width | up: width]
    const float *bias;    // [2 * width], or null
    bf16 *out;            // [rows][width]
    u32 width, kind;      // width is a multiple of 8
};
KERNEL(gate, Gate, 256) {
    const u32 i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= a.width) return;
    const bf16 *row = a.gate_up + (u64)blockIdx.x * 2 * a.width;
    const uint4 gates = *(const uint4 *)(row + i), ups = *(const uint4 *)(row + a.width + i);
    const u32 from[2][4] = {{gates.x, gates.y, gates.z, gates.w}, {ups.x, ups.y, ups.z, ups.w}};
    u32 to[4];
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        float g[2] = {low_bf16(from[0][pair]), high_bf16(from[0][pair])}, u[2] = {low_bf16(from[1][pair]), high_bf16(from[1][pair])};
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const u32 at = i + pair * 2 + e;
            if (a.bias) g[e] = __fadd_rn(g[e], a.bias[at]), u[e] = __fadd_rn(u[e], a.bias[a.width + at]);
            g[e] = __fmul_rn(activated(g[e], a.kind), u[e]);
        }
        to[pair] = pack_bf16x2(g[0], g[1]);
    }
    *(uint4 *)(a.out + (u64)blockIdx.x * a.width + i) = make_uint4(to[0], to[1], to[2], to[3]);
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

// Moves one KV block between the pool and packed memory: block (x, y) moves a part of layer y.
struct MoveBlock {
    u8 *kv;              // [layer][block][bytes]
    u8 *packed;          // [layer][bytes]
    u64 layer_bytes;
    u32 block_bytes;     // of one layer; a multiple of 16
    u32 block;
    u32 into_pool;
};
KERNEL(move_block, MoveBlock, 256) {
    uint4 *pool = (uint4 *)(a.kv + blockIdx.y * a.layer_bytes + (u64)a.block * a.block_bytes);
    uint4 *packed = (uint4 *)(a.packed + (u64)blockIdx.y * a.block_bytes);
    const uint4 *from = a.into_pool ? packed : pool;
    uint4 *to = a.into_pool ? pool : packed;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < a.block_bytes / 16; i += gridDim.x * blockDim.x) to[i] = from[i];
}
