// A mixture of experts: who computes what (router, lists), and what becomes of it (combine). The products between are `linear`
// over lists of pairs; pair p is choice p % top_k of token p / top_k, a token's choices in ascending order of their experts.
//
//   router   f32 logits over norm(hidden), softmax, the largest top_k; the lower index wins a tie
//   lists    one block per expert: its pairs in ascending order
//   combine  branch[token] = sum over its choices of weight * result, in ascending order of experts

struct Router {
    const float *hidden;   // [rows][width]
    const float *norm;     // [width]
    const float *w;        // [experts][width]
    u32 *experts_of;       // [rows][top_k], ascending
    float *weights;        // [rows][top_k]
    u32 width, experts, top_k;
    float eps;
    u32 normalise;
};
KERNEL(router, Router, 256) {
    DYNAMIC_SHARED(bytes);
    __shared__ float scratch[32];
    float *x = (float *)bytes, *logits = x + a.width;  // [width], [experts]
    const float *hidden = a.hidden + (u64)blockIdx.x * a.width;
    float squares = 0.0f;
    for (u32 i = threadIdx.x; i < a.width; i += blockDim.x) squares = __fmaf_rn(hidden[i], hidden[i], squares);
    float scale = __fdiv_rn(1.0f, sqrtf(__fadd_rn(__fdiv_rn(block_sum(squares, scratch), (float)a.width), a.eps)));
    for (u32 i = threadIdx.x; i < a.width; i += blockDim.x) x[i] = __fmul_rn(__fmul_rn(hidden[i], scale), a.norm[i]);
    __syncthreads();
    for (u32 e = threadIdx.x / 32; e < a.experts; e += blockDim.x / 32) {
        float sum = 0.0f;
        for (u32 i = threadIdx.x % 32; i < a.width; i += 32) sum = __fmaf_rn(x[i], a.w[(u64)e * a.width + i], sum);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) logits[e] = sum;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    float most = minus_infinity(), total = 0.0f, kept = 0.0f;
    for (u32 e = 0; e < a.experts; e++) most = fmaxf(most, logits[e]);
    for (u32 e = 0; e < a.experts; e++) logits[e] = expf(__fsub_rn(logits[e], most)), total = __fadd_rn(total, logits[e]);
    u32 *chosen = a.experts_of + (u64)blockIdx.x * a.top_k;
    float *weights = a.weights + (u64)blockIdx.x * a.top_k;
    for (u32 k = 0; k < a.top_k; k++) {
        u32 best = 0;
        for (u32 e = 1; e < a.experts; e++)
            if (logits[e] > logits[best]) best = e;
        float p = logits[best];
        kept = __fadd_rn(kept, p);
        logits[best] = -1.0f;
        u32 at = k;
        for (; at > 0 && chosen[at - 1] > best; at--) chosen[at] = chosen[at - 1], weights[at] = weights[at - 1];
        chosen[at] = best, weights[at] = p;
    }
    for (u32 k = 0; k < a.top_k; k++) weights[k] = __fdiv_rn(weights[k], a.normalise ? kept : total);
}

struct Lists {
    const u32 *experts_of;  // [pairs]
    u32 *lists;             // [experts][pairs]
    u32 *counts;            // [experts]
    u32 pairs;
};
KERNEL(lists, Lists, 256) {
    __shared__ u32 found[8], base;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 *list = a.lists + (u64)blockIdx.x * a.pairs;
    if (threadIdx.x == 0) base = 0;
    for (u32 start = 0; start < a.pairs; start += blockDim.x) {
        u32 pair = start + threadIdx.x;
        bool mine = pair < a.pairs && a.experts_of[pair] == blockIdx.x;
        u32 votes = __ballot_sync(LANES_ALL, mine);
        if (lane == 0) found[warp] = __popc(votes);
        __syncthreads();
        u32 at = base;
        for (u32 w = 0; w < warp; w++) at += found[w];
        if (mine) list[at + __popc(votes & ((1u << lane) - 1))] = pair;
        __syncthreads();
        if (threadIdx.x == 0)
            for (u32 w = 0; w < 8; w++) base += found[w];
        __syncthreads();
    }
    if (threadIdx.x == 0) a.counts[blockIdx.x] = base;
}

struct Combine {
    const float *results;  // [rows][top_k][width]
    const float *weights;  // [rows][top_k]
    float *branch;         // [rows][width]
    u32 width, top_k;
};
KERNEL(combine, Combine, 256) {
    const u32 i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= a.width) return;
    float sum = 0.0f;
    for (u32 k = 0; k < a.top_k; k++) {
        u64 pair = (u64)blockIdx.x * a.top_k + k;
        sum = __fadd_rn(sum, __fmul_rn(a.weights[pair], a.results[pair * a.width + i]));
    }
    a.branch[(u64)blockIdx.x * a.width + i] = sum;
}
