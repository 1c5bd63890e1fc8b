// y[row][n] = sum over k of w[n][k] * x[row][k]: bf16 in, f32 sums. Used as the reference that cuBLASLt's algorithms are compared with, as the
// fallback where cuBLASLt is missing, and for experts with bf16 weights (on Hopper, those with few rows). Weights are staged in shared memory like
// rows; `product.cuh` describes the rest. WIDE_STAGES, set at compile time, is how many stages fit into shared memory.

template <int BM, int BN, int STAGES, class Out> DEVICE void linear(const Linear &a) {
    DYNAMIC_SHARED(bytes);
    constexpr int STAGE = (BM + BN) * 128, MT = BM / 64, NT = BN / 8;
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    if (a.lists) grid_dependency_wait();  // which wrote the lists
    const BlockTile s = block_tile<BM, BN>(a);
    if (s.m0 >= s.rows) return;
    const Sources<BN> sources = find_rows<BN>(a, s);
    const bf16 *w = (const bf16 *)a.w + (u64)s.expert * a.n * a.k;

    auto copy_weights = [&](u32 stage, u32 kb) {
        char *to = bytes + stage * STAGE;
#pragma unroll
        for (int i = 0; i < BM * 8 / 128; i++) {
            u32 at = tid + i * 128, r = at / 8, c = at % 8, k = kb * 64 + c * 8;
            bool in = s.n0 + r < a.n && k < a.k;
            cp_async_16(to + r * 128 + ((c ^ (r & 7)) * 16), w + (in ? (u64)(s.n0 + r) * a.k + k : 0), in);
        }
    };
    auto copy_own_rows = [&](u32 stage, u32 kb) { copy_rows<BN, 1>(bytes + stage * STAGE + BM * 128, a, sources, kb); };
    float sums[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
    // Weights are on their way before the kernel that makes the rows is done.
#pragma unroll 1
    for (u32 at = 0; at < STAGES - 1 && at < s.count; at++) copy_weights(at, s.first + at);
    grid_dependency_wait();
#pragma unroll 1
    for (u32 at = 0; at < STAGES - 1; at++) {
        if (at < s.count) copy_own_rows(at, s.first + at);
        cp_async_commit_group();
    }
#pragma unroll 1
    for (u32 it = 0; it < s.count; it++) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (it + STAGES - 1 < s.count) {
            const u32 stage = (it + STAGES - 1) % STAGES, kb = s.first + it + STAGES - 1;
            copy_weights(stage, kb), copy_own_rows(stage, kb);
        }
        cp_async_commit_group();
        const char *from_w = bytes + it % STAGES * STAGE, *from_x = from_w + BM * 128;
#pragma unroll
        for (int kk = 0; kk < 4; kk++) {
            u32 fw[MT][4];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                int r = warp * (BM / 4) + i * 16 + lane % 16, c = kk * 2 + lane / 16;
                ldmatrix_x4(fw[i], from_w + r * 128 + ((c ^ (r & 7)) * 16));
            }
            multiply_rows<MT, NT>(sums, fw, from_x, kk);
        }
    }
    finish<BM, MT, NT>(a, s, sums, sizeof(Out) == sizeof(bf16), (u32 *)bytes);
}

EARLY_KERNEL(linear_8_f32, Linear, 128) { linear<64, 8, 6, float>(a); }
EARLY_KERNEL(linear_8_bf16, Linear, 128) { linear<64, 8, 6, bf16>(a); }
EARLY_KERNEL(linear_32_f32, Linear, 128) { linear<64, 32, 6, float>(a); }
EARLY_KERNEL(linear_32_bf16, Linear, 128) { linear<64, 32, 6, bf16>(a); }
EARLY_KERNEL(linear_128_f32, Linear, 128) { linear<128, 128, WIDE_STAGES, float>(a); }
EARLY_KERNEL(linear_128_bf16, Linear, 128) { linear<128, 128, WIDE_STAGES, bf16>(a); }

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
