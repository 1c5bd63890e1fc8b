// From a row of projections to attention: bias, norm and rotation of queries and keys; queries out, keys and values into their
// blocks. A warp takes one head of one token.
//
//   KV block   [kv head][keys | values][32 tokens][head_dim] bf16, of one layer

#define BLOCK 32
#define MOST_HEAD_DIM 256
#define HEADS_PER_BLOCK 8

struct Route {
    const float *projections;  // [rows][queries | keys | values]
    const float *bias;         // [queries | keys | values], or null
    const float *query_norm;   // [head_dim], or [heads * head_dim] with `whole`; or null
    const float *key_norm;
    const float *angles;       // [position][cos: pairs | sin: pairs], or null
    const u32 *positions;      // [rows]
    const u32 *slots;          // [rows], block * 32 + token in the block; NOWHERE for padding
    bf16 *queries;             // [rows][heads][head_dim]
    bf16 *kv;                  // this layer's blocks
    u32 heads, kv_heads, head_dim, pairs, interleaved, whole;
    float eps;
};
#define NOWHERE 0xffffffffu

KERNEL(route, Route, 256) {
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
    if (a.angles && (query || key)) {
        const float *cosines = a.angles + (u64)a.positions[row] * 2 * a.pairs, *sines = cosines + a.pairs;
        for (u32 p = lane; p < a.pairs; p += 32) {
            u32 one = a.interleaved ? 2 * p : p, other = a.interleaved ? 2 * p + 1 : p + a.pairs;
            float u = x[one], v = x[other], c = cosines[p], s = sines[p];
            x[one] = __fsub_rn(__fmul_rn(u, c), __fmul_rn(v, s));
            x[other] = __fadd_rn(__fmul_rn(u, s), __fmul_rn(v, c));
        }
        __syncwarp();
    }
    bf16 *to;
    if (query) {
        to = a.queries + ((u64)row * a.heads + head) * a.head_dim;
    } else {
        u32 slot = a.slots[row], kv_head = key ? local : local - a.kv_heads;
        if (slot == NOWHERE) return;
        u64 tile = (u64)(slot / BLOCK) * a.kv_heads + kv_head;
        to = a.kv + ((tile * 2 + (key ? 0 : 1)) * BLOCK + slot % BLOCK) * a.head_dim;
    }
    for (u32 i = lane; i < a.head_dim / 2; i += 32) ((u32 *)to)[i] = pack2(x[2 * i], x[2 * i + 1]);
}
