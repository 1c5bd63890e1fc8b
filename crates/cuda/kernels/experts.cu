// A mixture of experts: who computes what (router, topk_experts, sort_by_expert), and what becomes of it (combine). The products between are those of
// `product.cuh` over lists of pairs; pair p is choice p % top_k of token p / top_k, a token's choices in ascending order of their experts.
//
//   router          f32 logits over norm(hidden)
//   topk_experts    softmax, the largest top_k; the lower index wins a tie
//   sort_by_expert  the pairs sorted by expert, each expert's in ascending order, and the tiles that products compute of them
//   combine         branch[token] = sum over its choices of weight * result, in ascending order of experts

// logits[row][e] = scale(row) * sum over i of (hidden[row][i] * norm[i]) * w[e][i], where scale is one over the root of the mean square.
//
// Lane l of a warp adds the inputs l, l + 32, l + 64, ... of a logit, and those of a row's squares, then the lanes are added up: the same
// order in every form, so that a row's bits do not depend on how many rows there are.
//
//   warp    R rows x E experts
//   block   WR x WE warps; their rows, weights and the norm's weights are copied CHUNK inputs at a time, STAGES - 1 chunks ahead
//   memory  [STAGES][BE experts, norm, BR rows][CHUNK] f32
//
// A form of more rows reads less of each operand again: R * E products take R + E + 1 words of shared memory, BR rows read all weights once.
struct Router {
    const float *hidden;   // [rows][width]
    const float *norm;     // [width]
    const float *w;        // [experts][width]
    float *logits;         // [rows][experts]
    u32 *counts;           // [experts], cleared for `topk_experts`
    u32 width, rows, experts;
    float eps;
};
template <int R, int E, int WR, int WE, int CHUNK, int STAGES> DEVICE void router(const Router &a) {
    DYNAMIC_SHARED(bytes);
    constexpr int THREADS = WR * WE * 32, BR = R * WR, BE = E * WE, PIECES = CHUNK / 4, STAGE = (BE + 1 + BR) * CHUNK;
    float *stages = (float *)bytes;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunks = (a.width + CHUNK - 1) / CHUNK;
    const u32 row0 = blockIdx.x * BR, expert0 = blockIdx.y * BE;

    auto copy_weights = [&](u32 chunk) {
        float *to = stages + chunk % STAGES * STAGE;
#pragma unroll
        for (u32 i = threadIdx.x; i < (BE + 1) * PIECES; i += THREADS) {
            const u32 e = i / PIECES, k = chunk * CHUNK + i % PIECES * 4;
            const float *from = e < BE ? a.w + (u64)(expert0 + e) * a.width : a.norm;
            cp_async_16(to + i * 4, from + k, k < a.width && (e == BE || expert0 + e < a.experts));
        }
    };
    auto copy_hidden = [&](u32 chunk) {
        float *to = stages + chunk % STAGES * STAGE + (BE + 1) * CHUNK;
#pragma unroll
        for (u32 i = threadIdx.x; i < BR * PIECES; i += THREADS) {
            const u32 row = row0 + i / PIECES, k = chunk * CHUNK + i % PIECES * 4;
            cp_async_16(to + i * 4, a.hidden + (u64)row * a.width + k, k < a.width && row < a.rows);
        }
    };
    // Weights are on their way before the kernel that makes the rows is done.
#pragma unroll 1
    for (u32 at = 0; at < STAGES - 1 && at < chunks; at++) copy_weights(at);
    grid_dependency_wait();
#pragma unroll 1
    for (u32 at = 0; at < STAGES - 1; at++) {
        if (at < chunks) copy_hidden(at);
        cp_async_commit_group();
    }
    if (blockIdx.x == 0 && blockIdx.y == 0)
        for (u32 e = threadIdx.x; e < a.experts; e += THREADS) a.counts[e] = 0;
    float sums[R][E], squares[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        squares[r] = 0.0f;
#pragma unroll
        for (int e = 0; e < E; e++) sums[r][e] = 0.0f;
    }
#pragma unroll 1
    for (u32 chunk = 0; chunk < chunks; chunk++) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (chunk + STAGES - 1 < chunks) copy_weights(chunk + STAGES - 1), copy_hidden(chunk + STAGES - 1);
        cp_async_commit_group();
        const float *stage = stages + chunk % STAGES * STAGE + lane, *norm = stage + BE * CHUNK;
        const float *w = stage + warp % WE * E * CHUNK, *hidden = norm + CHUNK + warp / WE * R * CHUNK;
        const u32 end = min(a.width - chunk * CHUNK, (u32)CHUNK);
#pragma unroll R * E > 32 ? 1 : 4
        for (u32 k = 0; k < end; k += 32) {
            const float n = norm[k];
            float own[E];
#pragma unroll
            for (int e = 0; e < E; e++) own[e] = w[e * CHUNK + k];
#pragma unroll
            for (int r = 0; r < R; r++) {
                const float h = hidden[r * CHUNK + k], x = __fmul_rn(h, n);
                squares[r] = __fmaf_rn(h, h, squares[r]);
#pragma unroll
                for (int e = 0; e < E; e++) sums[r][e] = __fmaf_rn(x, own[e], sums[r][e]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float scale = __fdiv_rn(1.0f, sqrtf(__fadd_rn(__fdiv_rn(warp_sum(squares[r]), (float)a.width), a.eps)));
        const u32 row = row0 + warp / WE * R + r;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const u32 expert = expert0 + warp % WE * E + e;
            const float logit = __fmul_rn(warp_sum(sums[r][e]), scale);
            if (lane == e && row < a.rows && expert < a.experts) a.logits[(u64)row * a.experts + expert] = logit;
        }
    }
}
// `src/kernels/experts.rs` has the same numbers.
EARLY_KERNEL(router_1, Router, 128) { router<1, 1, 1, 4, 256, 8>(a); }
EARLY_KERNEL(router_8, Router, 128) { router<8, 4, 1, 4, 128, 6>(a); }
EARLY_KERNEL(router_32, Router, 512) { router<8, 8, 4, 4, 128, 3>(a); }

// A warp per row. Lane l alone reads and writes the entries of the experts l, l + 32, ...: no barriers are needed.
struct TopkExperts {
    const float *logits;   // [rows][experts]
    u32 *experts_of;       // [rows][top_k], ascending
    float *weights;        // [rows][top_k]
    u32 *counts;           // [experts]: pairs of each, zero before
    u32 *lists;            // [pairs] and work, as `sort_by_expert` would write them, or null: a single row needs no sorting
    uint4 *work;
    u32 rows, experts, top_k;
    u32 normalise;         // whether weights are divided by their sum, not by that of all experts
};
KERNEL(topk_experts, TopkExperts, 128) {
    DYNAMIC_SHARED(bytes);
    constexpr u32 TAKEN = 1u << 31;  // beside the bits of a number that has no sign
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * 4 + warp;
    if (row >= a.rows) return;
    const float *logits = a.logits + (u64)row * a.experts;
    u32 *shares = (u32 *)bytes + warp * a.experts;
    float most = minus_infinity(), total = 0.0f, kept = 0.0f;
    for (u32 e = lane; e < a.experts; e += 32) most = fmaxf(most, logits[e]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(LANES_ALL, most, step));
    for (u32 e = lane; e < a.experts; e += 32) {
        const float share = expf(__fsub_rn(logits[e], most));
        total = __fadd_rn(total, share), shares[e] = __float_as_uint(share) & ~TAKEN;
    }
    for (u32 k = 0; k < a.top_k; k++) {
        u32 largest = 0, at = lane;  // of this lane's experts: numbers without a sign are ordered like their bits
        for (u32 e = lane; e < a.experts; e += 32) {
            const u32 share = shares[e], key = share & TAKEN ? 0 : share + 1;
            if (key > largest) largest = key, at = e;
        }
        const u32 best = warp_max(largest), chosen = warp_min(largest == best ? at : 0xffffffffu);
        kept = __fadd_rn(kept, __uint_as_float(best - 1));
        if (chosen % 32 == lane) shares[chosen] |= TAKEN;
    }
    const float whole = a.normalise ? kept : warp_sum(total);
    u64 place = (u64)row * a.top_k;
    for (u32 first = 0; first < a.experts; first += 32) {
        const u32 e = first + lane, share = e < a.experts ? shares[e] : 0;
        const u32 votes = __ballot_sync(LANES_ALL, share & TAKEN);
        if (share & TAKEN) {
            const u64 at = place + __popc(votes & ((1u << lane) - 1));
            a.experts_of[at] = e, a.weights[at] = __fdiv_rn(__uint_as_float(share & ~TAKEN), whole);
            if (a.lists) a.lists[at] = (u32)at, a.work[at] = make_uint4(e, (u32)at, 1, 0);
            else atomicAdd(&a.counts[e], 1u);
        }
        place += __popc(votes);
    }
}

// Block e sorts the pairs of expert e. Warps take stretches of pairs, one after another.
struct SortByExpert {
    const u32 *experts_of;  // [pairs]
    const u32 *counts;      // [experts]
    u32 *lists;             // [pairs], sorted by expert
    uint4 *work;            // [items]: expert, first place in `lists`, how many, 0. Those without pairs come last
    u32 pairs, experts;
    u32 tile;               // most pairs of an item
    u32 items;
};
// Sums over the block, the same for every thread; `scratch` is free again after the next barrier.
DEVICE u32 total_of(u32 v, u32 *scratch) {
    const u32 warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    v = warp_total(v);
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    return warp_total(lane < warps ? scratch[lane] : 0);
}
KERNEL(sort_by_expert, SortByExpert, 1024) {
    constexpr u32 AT_ONCE = 8;  // pairs that a lane reads before it looks at the first
    __shared__ u32 pairs_before[32], tiles_before[32], found[32];
    const u32 expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 first = 0, tile = 0;  // what the experts before have
    for (u32 e = threadIdx.x; e < expert; e += blockDim.x) first += a.counts[e], tile += (a.counts[e] + a.tile - 1) / a.tile;
    first = total_of(first, pairs_before), tile = total_of(tile, tiles_before);
    const u32 count = a.counts[expert], tiles = (count + a.tile - 1) / a.tile;
    for (u32 i = threadIdx.x; i < tiles; i += blockDim.x) a.work[tile + i] = make_uint4(expert, first + i * a.tile, min(count - i * a.tile, a.tile), 0);
    if (expert == a.experts - 1)
        for (u32 i = tile + tiles + threadIdx.x; i < a.items; i += blockDim.x) a.work[i] = make_uint4(0, 0, 0, 0);
    if (count == 0) return;
    const u32 stretch = (a.pairs + blockDim.x - 1) / blockDim.x * 32, begin = warp * stretch, end = min(begin + stretch, a.pairs);
    u32 mine = 0;
#pragma unroll 8
    for (u32 pair = begin + lane; pair < end; pair += 32) mine += a.experts_of[pair] == expert;
    mine = warp_total(mine);
    if (lane == 0) found[warp] = mine;
    __syncthreads();
    u32 at = first + warp_total(lane < warp ? found[lane] : 0);
    if (mine == 0) return;
#pragma unroll 1
    for (u32 start = begin + lane; start < end + lane; start += 32 * AT_ONCE) {
        u32 expert_of[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) expert_of[i] = start + i * 32 < end ? a.experts_of[start + i * 32] : a.experts;
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            const u32 votes = __ballot_sync(LANES_ALL, expert_of[i] == expert);
            if (expert_of[i] == expert) a.lists[at + __popc(votes & ((1u << lane) - 1))] = start + i * 32;
            at += __popc(votes);
        }
    }
}

struct Combine {
    const float *results;  // [rows][top_k][width]
    const float *weights;  // [rows][top_k]
    float *branch;         // [rows][width]
    u32 width, top_k;
};
// Four values a thread; eight choices are read before the first is added.
KERNEL(combine, Combine, 128) {
    const u32 i = blockIdx.y * blockDim.x + threadIdx.x, fours = a.width / 4;
    if (i >= fours) return;
    const u64 first = (u64)blockIdx.x * a.top_k;
    const float4 *results = (const float4 *)a.results + first * fours + i;
    const float *weights = a.weights + first;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (u32 k = 0; k < a.top_k; k++) {
        const float weight = weights[k];
        const float4 result = results[(u64)k * fours];
        sum.x = __fadd_rn(sum.x, __fmul_rn(weight, result.x)), sum.y = __fadd_rn(sum.y, __fmul_rn(weight, result.y));
        sum.z = __fadd_rn(sum.z, __fmul_rn(weight, result.z)), sum.w = __fadd_rn(sum.w, __fmul_rn(weight, result.w));
    }
    ((float4 *)a.branch)[(u64)blockIdx.x * fours + i] = sum;
}
