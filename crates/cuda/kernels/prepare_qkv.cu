// From a row of projections to attention: bias, norm and rotation of queries and keys; queries out, keys and values into their
// blocks.
//
//   prepare_qkv      heads of 64, 128 and 256 values: a head's values are in the registers of 16 or 32 lanes, four in a row each; pairs of a
//                    rotation by halves are in the same lane or one shuffle apart. A warp takes up to four heads, all of whose loads overlap.
//   prepare_qkv_any  heads of any size, and norms over the whole row: a warp takes one head, in shared memory.
//
// Keys and values are stored as `kv.cuh` says: with KV8, each head's by its own largest value. HEAD_DIM and KV8 are set at compile time.

#define MOST_HEAD_DIM 256
#define HEADS_PER_BLOCK 8

struct PrepareQkv {
    const float *projections;  // [rows][queries | keys | values]
    const float *bias;         // [queries | keys | values], or null
    const float *query_norm;   // [head_dim], or [heads * head_dim] with `whole`; or null
    const float *key_norm;
    const float *cos_sin;      // [position][cos: pairs | sin: pairs], or null
    const u32 *positions;      // [rows]
    const u32 *slots;          // [rows], block * 32 + token in the block; NO_INDEX for padding
    bf16 *queries;             // [rows][heads][head_dim]
    Stored *kv;                // this layer's blocks
    u32 heads, kv_heads, head_dim, pairs, interleaved, whole;
    float eps;
};
#define NO_INDEX 0xffffffffu

// Where a head's values go; nowhere for keys and values of padding.
DEVICE void *destination_of(const PrepareQkv &a, u32 row, u32 head, u32 slot) {
    if (head < a.heads) return a.queries + ((u64)row * a.heads + head) * a.head_dim;
    if (slot == NO_INDEX) return nullptr;
    const u32 local = head - a.heads, kv_head = local % a.kv_heads, which = local / a.kv_heads;
    const u64 half = ((u64)(slot / BLOCK) * a.kv_heads + kv_head) * 2 + which;
#if KV8
    return a.kv + half * STORED_HALF + slot % BLOCK * HEAD_DIM;
#else
    return a.kv + (half * BLOCK + slot % BLOCK) * a.head_dim;
#endif
}
#if KV8
// Keys or values, and where the scale of the token whose quants go to `to` lies.
DEVICE u32 kind_of(const PrepareQkv &a, u32 head) { return (head - a.heads) / a.kv_heads; }
DEVICE float *scale_of(void *to, u32 slot) {
    const u32 token = slot % BLOCK;
    return (float *)((Stored *)to + (BLOCK - token) * HEAD_DIM) + token;
}
#endif

#if HEAD_DIM == 64 || HEAD_DIM == 128 || HEAD_DIM == 256
#define LANES (HEAD_DIM == 64 ? 16 : 32)          // of a head
#define FOURS (HEAD_DIM / 4 / LANES)              // of a lane
#define HEADS_AT_ONCE (HEAD_DIM == 256 ? 2 : 4)   // of the same lanes

DEVICE float4 plus(float4 a, float4 b) { return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)); }
DEVICE float squared(float4 v, float sum) { return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum)))); }
// The first of four values within the head.
DEVICE u32 first_of(u32 four) { return (four * LANES + threadIdx.x % LANES) * 4; }
DEVICE void norm_head(float4 (&x)[FOURS], const float *weight, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int f = 0; f < FOURS; f++) sum = squared(x[f], sum);
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(LANES_ALL, sum, step));
    const float scale = __fdiv_rn(1.0f, sqrtf(__fadd_rn(__fdiv_rn(sum, (float)HEAD_DIM), eps)));
#pragma unroll
    for (int f = 0; f < FOURS; f++) {
        const float4 w = weight ? *(const float4 *)(weight + first_of(f)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float4 v = x[f];
        if (weight) x[f] = make_float4(__fmul_rn(__fmul_rn(v.x, scale), w.x), __fmul_rn(__fmul_rn(v.y, scale), w.y), __fmul_rn(__fmul_rn(v.z, scale), w.z), __fmul_rn(__fmul_rn(v.w, scale), w.w));
    }
}
// One of a pair after it was turned.
DEVICE float rotated(float own, float other, float c, float s, bool first) {
    return first ? __fsub_rn(__fmul_rn(own, c), __fmul_rn(other, s)) : __fadd_rn(__fmul_rn(other, s), __fmul_rn(own, c));
}
DEVICE float4 rotated(float4 own, float4 other, float4 c, float4 s, bool first) {
    return make_float4(rotated(own.x, other.x, c.x, s.x, first), rotated(own.y, other.y, c.y, s.y, first), rotated(own.z, other.z, c.z, s.z, first), rotated(own.w, other.w, c.w, s.w, first));
}
DEVICE float4 shuffle_xor4(float4 v, int across) {
    return make_float4(__shfl_xor_sync(LANES_ALL, v.x, across), __shfl_xor_sync(LANES_ALL, v.y, across), __shfl_xor_sync(LANES_ALL, v.z, across), __shfl_xor_sync(LANES_ALL, v.w, across));
}
// Turns all pairs of a head, whose cosines and sines are `cos_sin`. All lanes of the warp take part.
DEVICE void rotate(float4 (&x)[FOURS], const float *cos_sin, bool interleaved, bool rotates) {
    const float *cosines = cos_sin, *sines = cos_sin + HEAD_DIM / 2;
    if (interleaved) {
#pragma unroll
        for (int f = 0; f < FOURS; f++) {
            const u32 pair = first_of(f) / 2;
            const float4 v = x[f];
            const float2 c = *(const float2 *)(cosines + pair), s = *(const float2 *)(sines + pair);
            if (rotates) x[f] = make_float4(rotated(v.x, v.y, c.x, s.x, true), rotated(v.y, v.x, c.x, s.x, false), rotated(v.z, v.w, c.y, s.y, true), rotated(v.w, v.z, c.y, s.y, false));
        }
        return;
    }
    const u32 pair = first_of(0) % (HEAD_DIM / 2);
    const float4 c = *(const float4 *)(cosines + pair), s = *(const float4 *)(sines + pair);
#if HEAD_DIM == 256
    const float4 low = x[0], high = x[1];
    if (rotates) x[0] = rotated(low, high, c, s, true), x[1] = rotated(high, low, c, s, false);
#else
    const float4 other = shuffle_xor4(x[0], LANES / 2);
    if (rotates) x[0] = rotated(x[0], other, c, s, first_of(0) < HEAD_DIM / 2);
#endif
}

DEVICE void store(void *to, const float4 (&x)[FOURS]) {
#pragma unroll
    for (int f = 0; f < FOURS; f++) {
        const float4 v = x[f];
        if (to) *(uint2 *)((bf16 *)to + first_of(f)) = make_uint2(pack_bf16x2(v.x, v.y), pack_bf16x2(v.z, v.w));
    }
}
#if KV8
DEVICE float largest(float4 v, float most) { return fmaxf(fmaxf(most, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w))); }
DEVICE u32 quants_of(float4 v, float inverse) { return quant(v.x, inverse) | quant(v.y, inverse) << 8 | quant(v.z, inverse) << 16 | quant(v.w, inverse) << 24; }
// A lane and the one that has the values eight later write a word each. All lanes of the warp take part.
DEVICE void store_quants(void *to, u32 slot, u32 which, const float4 (&x)[FOURS]) {
    const u32 lane = threadIdx.x % LANES;
    const bool later = lane & 2;
    float most = 0.0f;
#pragma unroll
    for (int f = 0; f < FOURS; f++) most = largest(x[f], most);
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(LANES_ALL, most, step));
    const Scales scales = scales_for(most);
#pragma unroll
    for (int f = 0; f < FOURS; f++) {
        const u32 own = quants_of(x[f], scales.inverse), other = __shfl_xor_sync(LANES_ALL, own, 2);
        const u32 word = interleave(later ? other : own, later ? own : other, which, later);
        if (to) ((u32 *)to)[first_of(f) / 16 * 4 + lane % 2 * 2 + later] = word;
    }
    if (to && lane == 0) *scale_of(to, slot) = scales.scale;
}
#endif

// Block (x, y): token x, the y-th part of its heads. Lanes of heads beyond the last one compute what nobody writes.
KERNEL(prepare_qkv, PrepareQkv, 256) {
    const u32 row = blockIdx.x, all = a.heads + 2 * a.kv_heads, slot = a.slots[row];
    const u32 first = (blockIdx.y * blockDim.x + threadIdx.x) / LANES * HEADS_AT_ONCE;
    const float *from = a.projections + (u64)row * all * HEAD_DIM, *cos_sin = a.cos_sin + (u64)a.positions[row] * HEAD_DIM;
    float4 x[HEADS_AT_ONCE][FOURS];
#pragma unroll
    for (int h = 0; h < HEADS_AT_ONCE; h++)
#pragma unroll
        for (int f = 0; f < FOURS; f++) {
            const u32 at = min(first + h, all - 1) * HEAD_DIM + first_of(f);
            x[h][f] = *(const float4 *)(from + at);
            if (a.bias) x[h][f] = plus(x[h][f], *(const float4 *)(a.bias + at));
        }
#pragma unroll
    for (int h = 0; h < HEADS_AT_ONCE; h++) {
        const u32 head = first + h;
        const bool query = head < a.heads, key = !query && head < a.heads + a.kv_heads;
        if (a.query_norm) norm_head(x[h], query ? a.query_norm : key ? a.key_norm : nullptr, a.eps);
        if (a.cos_sin) rotate(x[h], cos_sin, a.interleaved, query || key);
        void *to = head < all ? destination_of(a, row, head, slot) : nullptr;
#if KV8
        if (__ballot_sync(LANES_ALL, !query)) store_quants(query ? nullptr : to, slot, kind_of(a, head), x[h]);
        if (query) store(to, x[h]);
#else
        store(to, x[h]);
#endif
    }
}
#endif

#if KV8
DEVICE void store_any_quants(void *to, u32 slot, u32 which, const float *x) {
    const u32 lane = threadIdx.x % 32;
    float most = 0.0f;
    for (u32 i = lane; i < HEAD_DIM; i += 32) most = fmaxf(most, fabsf(x[i]));
#pragma unroll
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(LANES_ALL, most, step));
    const Scales scales = scales_for(most);
    for (u32 word = lane; word < HEAD_DIM / 4; word += 32) {
        u32 quants = 0;
        for (u32 e = 0; e < 4; e++) quants |= quant(x[value_at(which, word, e)], scales.inverse) << 8 * e;
        ((u32 *)to)[word] = quants;
    }
    if (lane == 0) *scale_of(to, slot) = scales.scale;
}
#endif
KERNEL(prepare_qkv_any, PrepareQkv, 256) {
    __shared__ float values[HEADS_PER_BLOCK][MOST_HEAD_DIM];
    __shared__ float scratch[32];
    const u32 row = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y * HEADS_PER_BLOCK + warp;
    const u32 width = (a.heads + 2 * a.kv_heads) * a.head_dim;
    const float *from = a.projections + (u64)row * width;
    float squares[2] = {0.0f, 0.0f};
    if (a.whole)
        for (u32 part = 0; part < 2; part++) {
            u32 start = part ? a.heads * a.head_dim : 0, len = (part ? a.kv_heads : a.heads) * a.head_dim;
            float sum = 0.0f;
            for (u32 i = threadIdx.x; i < len; i += blockDim.x) {
                float v = a.bias ? __fadd_rn(from[start + i], a.bias[start + i]) : from[start + i];
                sum = __fmaf_rn(v, v, sum);
            }
            squares[part] = block_sum(sum, scratch);
        }
    if (head >= a.heads + 2 * a.kv_heads) return;
    const bool query = head < a.heads, key = !query && head < a.heads + a.kv_heads;
    const u32 start = head * a.head_dim, local = query ? head : head - a.heads;
    float *x = values[warp], sum = 0.0f;
    for (u32 i = lane; i < a.head_dim; i += 32) {
        float v = from[start + i];
        if (a.bias) v = __fadd_rn(v, a.bias[start + i]);
        x[i] = v;
        sum = __fmaf_rn(v, v, sum);
    }
    const float *norm = query ? a.query_norm : key ? a.key_norm : nullptr;
    if (norm) {
        float total = a.whole ? squares[query ? 0 : 1] : warp_sum(sum);
        float len = a.whole ? (float)((query ? a.heads : a.kv_heads) * a.head_dim) : (float)a.head_dim;
        float scale = __fdiv_rn(1.0f, sqrtf(__fadd_rn(__fdiv_rn(total, len), a.eps)));
        if (a.whole) norm += local * a.head_dim;
        for (u32 i = lane; i < a.head_dim; i += 32) x[i] = __fmul_rn(__fmul_rn(x[i], scale), norm[i]);
    }
    __syncwarp();
    if (a.cos_sin && (query || key)) {
        const float *cosines = a.cos_sin + (u64)a.positions[row] * 2 * a.pairs, *sines = cosines + a.pairs;
        for (u32 p = lane; p < a.pairs; p += 32) {
            u32 one = a.interleaved ? 2 * p : p, other = a.interleaved ? 2 * p + 1 : p + a.pairs;
            float u = x[one], v = x[other], c = cosines[p], s = sines[p];
            x[one] = __fsub_rn(__fmul_rn(u, c), __fmul_rn(v, s));
            x[other] = __fadd_rn(__fmul_rn(u, s), __fmul_rn(v, c));
        }
        __syncwarp();
    }
    void *to = destination_of(a, row, head, a.slots[row]);
    if (!to) return;
#if KV8
    if (!query) return store_any_quants(to, a.slots[row], kind_of(a, head), x);
#endif
    for (u32 i = lane; i < a.head_dim / 2; i += 32) ((u32 *)to)[i] = pack_bf16x2(x[2 * i], x[2 * i + 1]);
}
