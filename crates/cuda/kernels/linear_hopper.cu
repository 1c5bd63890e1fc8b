// Products of plain weights by warpgroups, for Hopper alone and for experts with many rows: the sums of `linear.cu`, bit for bit.
//
// A warpgroup has 64 outputs. Weights are the A operand and rows of x the B operand, both in panels of 64 inputs in shared memory.
//
//   block     GROUPS warpgroups, 64 outputs each, that share BN rows
//   stage     64 inputs: a panel of weights, [GROUPS * 64][128 bytes], then one of rows, [BN][128 bytes]
//
// A warpgroup waits for its products before the next stage; another block on the same multiprocessor computes meanwhile.
template <int GROUPS, int BN, int STAGES> DEVICE void linear_by_warpgroups(const Linear &a) {
    DYNAMIC_PANELS(bytes);
    constexpr int THREADS = GROUPS * 128, BM = GROUPS * 64, NT = BN / 8, WEIGHTS = BM * 128, STAGE = WEIGHTS + BN * 128;
    constexpr u32 AHEAD = STAGES - 1, AT_ONCE = THREADS / 8;
    const u32 r = threadIdx.x / 8, c = threadIdx.x % 8;
    if (a.lists) grid_dependency_wait();  // which wrote the lists
    const BlockTile s = block_tile<BM, BN>(a);
    if (s.m0 >= s.rows) return;
    const uint4 *w = (const uint4 *)a.w + ((u64)s.expert * a.n + s.n0 + r) * (a.k / 8) + c;
    const u32 to_w = r * 128 + (c ^ (r & 7)) * 16, last = s.first + s.count;

    auto copy_weights = [&](u32 slot, u32 kb) {
        char *to = bytes + slot * STAGE + to_w;
#pragma unroll
        for (u32 i = 0; i < BM / AT_ONCE; i++) {
            const bool in = s.n0 + r + i * AT_ONCE < a.n && kb * 8 + c < a.k / 8;
            cp_async_16(to + i * AT_ONCE * 128, w + (u64)(i * AT_ONCE) * (a.k / 8) + kb * 8, in);
        }
    };
    // Weights are on their way before the kernel that makes the rows is done.
#pragma unroll 1
    for (u32 at = 0; at < AHEAD && s.first + at < last; at++) copy_weights(at, s.first + at);
    const Sources<BN, THREADS> sources = find_rows<BN, THREADS>(a, s);
    auto copy_own_rows = [&](u32 slot, u32 kb) { copy_rows<BN, 1>(bytes + slot * STAGE + WEIGHTS, a, sources, kb); };
    float sums[NT][4];
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[j][e] = 0.0f;
    grid_dependency_wait();
#pragma unroll 1
    for (u32 at = 0; at < AHEAD; at++) {
        if (s.first + at < last) copy_own_rows(at, s.first + at);
        cp_async_commit_group();
    }
    u32 slot = 0, free = AHEAD;
#pragma unroll 1
    for (u32 kb = s.first; kb < last; kb++) {
        cp_async_wait_group<AHEAD - 1>();
        fence_proxy_async();
        wgmma_wait_group<0>();  // of the stage before, whose memory is free then
        __syncthreads();
        if (kb + AHEAD < last) copy_weights(free, kb + AHEAD), copy_own_rows(free, kb + AHEAD);
        cp_async_commit_group();
        const char *stage = bytes + slot * STAGE;
        const u64 weights = wgmma_descriptor(stage + threadIdx.x / 128 * 8192, 0, 1024), rows = wgmma_descriptor(stage + WEIGHTS, 0, 1024);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++) wgmma_ss_add(sums, advance_descriptor(weights, step * 32), advance_descriptor(rows, step * 32));
        wgmma_commit_group();
        free = slot, slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
    wgmma_wait_group<0>();
    wgmma_hold_results(sums);
    __syncthreads();
    finish<BM, 1, NT, THREADS>(a, s, &sums, a.bf16_results, (u32 *)bytes);
}
// `src/kernels/products.rs` has the same numbers.
EARLY_KERNEL_OF_TWO(linear_128x64, Linear, 256) { linear_by_warpgroups<2, 64, 4>(a); }
EARLY_KERNEL_OF_TWO(linear_128x128, Linear, 256) { linear_by_warpgroups<2, 128, 3>(a); }
