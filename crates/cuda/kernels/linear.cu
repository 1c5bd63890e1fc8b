// y[row][n] = sum over k of w[n][k] * x[row][k]: bf16 in, f32 sums. The judge of the library's products, what runs where that
// library is missing, and the product of experts.
//
// Weights are the 16-row operand of the matrix instruction and rows its 8 columns, so that 1 and 1,000 rows run the same sums:
// k in steps of 16, cut into `slices` at fixed places, slices added in ascending order. The block's shape changes who computes a
// sum, not its order.
//
//   block   BM outputs x BN rows x one slice; a warp has BM / WARPS outputs
//   stage   64 inputs: rows of 128 bytes whose 16-byte pieces are swizzled by the row
//
// With experts, block y is an expert: its weights follow those of the expert before, and its rows are a list.

struct Linear {
    const bf16 *w;        // [experts][n][k]
    const bf16 *x;        // [rows][k]
    void *y;              // [rows][n], bf16 or f32
    float *partial;       // [slices][tiles][BM * BN]: sums of slices, when there are several
    u32 *finished;        // [tiles], zero between launches
    const u32 *lists;     // [experts][rows]: which rows an expert computes, or null: all
    const u32 *counts;    // [experts]: how many
    u32 n, rows, k;
    u32 slices;
    u32 input_share;      // row r of y reads row r / input_share of x
};

DEVICE void store(float *y, float v) { *y = v; }
DEVICE void store(bf16 *y, float v) { *y = narrow(v); }

template <int WARPS, int BM, int BN, int STAGES, class Out> DEVICE void linear(const Linear &a) {
    DYNAMIC_SHARED(bytes);
    constexpr int THREADS = WARPS * 32, STAGE = (BM + BN) * 128, MT = BM / WARPS / 16, NT = BN / 8;
    if (a.lists) after_the_kernel_before();  // which wrote the lists
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const u32 expert = a.lists ? blockIdx.y : 0, slice = a.lists ? 0 : blockIdx.y, slices = a.lists ? 1 : a.slices;
    const u32 rows = a.lists ? a.counts[expert] : a.rows, n0 = blockIdx.x * BM, m0 = blockIdx.z * BN;
    if (m0 >= rows) return;
    const u32 *list = a.lists ? a.lists + (u64)expert * a.rows : nullptr;
    const bf16 *w = a.w + (u64)expert * a.n * a.k;
    const u32 blocks = (a.k + 63) / 64, first = (u32)((u64)slice * blocks / slices), count = (u32)((slice + 1ull) * blocks / slices) - first;

    auto load_weights = [&](u32 stage, u32 kb) {
        char *to = bytes + stage * STAGE;
#pragma unroll
        for (int i = 0; i < BM * 8 / THREADS; i++) {
            u32 at = tid + i * THREADS, r = at / 8, c = at % 8, k = kb * 64 + c * 8;
            bool in = n0 + r < a.n && k < a.k;
            copy16(to + r * 128 + ((c ^ (r & 7)) * 16), w + (in ? (u64)(n0 + r) * a.k + k : 0), in);
        }
    };
    auto load_rows = [&](u32 stage, u32 kb) {
        char *to = bytes + stage * STAGE + BM * 128;
        for (u32 at = tid; at < BN * 8; at += THREADS) {
            u32 r = at / 8, c = at % 8, k = kb * 64 + c * 8;
            bool in = m0 + r < rows && k < a.k;
            u32 row = in ? (list ? list[m0 + r] : m0 + r) / a.input_share : 0;
            copy16(to + r * 128 + ((c ^ (r & 7)) * 16), a.x + (in ? (u64)row * a.k + k : 0), in);
        }
    };
    float sums[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
    // Weights are there before the kernel that makes the rows is done.
#pragma unroll 1
    for (u32 s = 0; s < STAGES - 1 && s < count; s++) load_weights(s, first + s);
    after_the_kernel_before();
#pragma unroll 1
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < count) load_rows(s, first + s);
        copy_commit();
    }
#pragma unroll 1
    for (u32 it = 0; it < count; it++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (it + STAGES - 1 < count) {
            const u32 stage = (it + STAGES - 1) % STAGES, kb = first + it + STAGES - 1;
            load_weights(stage, kb), load_rows(stage, kb);
        }
        copy_commit();
        const char *from_w = bytes + it % STAGES * STAGE, *from_x = from_w + BM * 128;
#pragma unroll
        for (int kk = 0; kk < 4; kk++) {
            u32 fw[MT][4], fx[NT][2];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                int r = warp * (BM / WARPS) + i * 16 + lane % 16, c = kk * 2 + lane / 16;
                load_matrices4(fw[i], from_w + r * 128 + ((c ^ (r & 7)) * 16));
            }
            if (NT == 1) {
                int r = lane % 8, c = kk * 2 + lane / 8 % 2;
                load_matrices2(fx[0], from_x + r * 128 + ((c ^ (r & 7)) * 16));
            } else {
#pragma unroll
                for (int j = 0; j < NT / 2; j++) {
                    int r = j * 16 + lane % 8 + lane / 16 * 8, c = kk * 2 + lane / 8 % 2;
                    load_matrices4(fx[2 * j], from_x + r * 128 + ((c ^ (r & 7)) * 16));
                }
            }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) multiply(sums[i][j], fw[i], fx[j]);
        }
    }
    if (slices > 1) {  // the block that comes last adds all slices, in their order
        __shared__ u32 before;
        const u64 tiles = (u64)gridDim.x * gridDim.z, tile = blockIdx.z * (u64)gridDim.x + blockIdx.x;
        constexpr int VALUES = MT * NT * 4;
        float *mine = a.partial + (slice * tiles + tile) * (VALUES * THREADS);
#pragma unroll
        for (int v = 0; v < VALUES; v++) mine[v * THREADS + tid] = sums[v / 4 / NT][v / 4 % NT][v % 4];
        __threadfence();
        __syncthreads();
        if (tid == 0) before = atomicAdd(&a.finished[tile], 1u);
        __syncthreads();
        if (before != slices - 1) return;
        __threadfence();
        if (tid == 0) a.finished[tile] = 0;
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
            const float *p = a.partial + tile * (VALUES * THREADS) + v * THREADS + tid;
            float sum = __ldcg(p);
#pragma unroll 1
            for (u32 s = 1; s < slices; s++) sum = __fadd_rn(sum, __ldcg(p + s * tiles * (VALUES * THREADS)));
            sums[v / 4 / NT][v / 4 % NT][v % 4] = sum;
        }
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 n = n0 + warp * (BM / WARPS) + i * 16 + lane / 4 + e / 2 * 8, m = m0 + j * 8 + lane % 4 * 2 + e % 2;
                if (n < a.n && m < rows) store((Out *)a.y + (u64)(list ? list[m] : m) * a.n + n, sums[i][j][e]);
            }
}

// With few rows, blocks of few outputs: so that matrices with few of them keep every multiprocessor reading.
EARLY_KERNEL(linear_8_f32, Linear, 64) { linear<2, 32, 8, 8, float>(a); }
EARLY_KERNEL(linear_8_bf16, Linear, 64) { linear<2, 32, 8, 8, bf16>(a); }
EARLY_KERNEL(linear_32_f32, Linear, 128) { linear<4, 64, 32, 6, float>(a); }
EARLY_KERNEL(linear_32_bf16, Linear, 128) { linear<4, 64, 32, 6, bf16>(a); }
EARLY_KERNEL(linear_128_f32, Linear, 128) { linear<4, 128, 128, 4, float>(a); }
EARLY_KERNEL(linear_128_bf16, Linear, 128) { linear<4, 128, 128, 4, bf16>(a); }

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
