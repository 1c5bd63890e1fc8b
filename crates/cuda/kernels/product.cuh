// What all own products share: their arguments, what a block computes, rows in shared memory, and what becomes of the sums.
//
// Weights are the 16-row operand of the matrix instruction and rows its 8 columns, so that 1 and 1,000 rows run the same sums:
// k in steps of 16, cut into `slices` at fixed places between blocks of 64, slices added in ascending order. The block's shape
// changes who computes a sum, not its order.
//
//   block   BM outputs x BN rows x one slice; THREADS / 32 warps that share the outputs evenly
//   rows    64 inputs at a time: 128 bytes each, whose 16-byte pieces are swizzled by the row
//
// With experts, block z is an item of work, a tile of one expert's rows: they are a part of a list, and its weights follow those of the
// expert before. How many items there are is known on the device alone; the last blocks may have nothing to do.

struct Linear {
    const void *w;              // [experts][n][k] bf16, or packed records
    const float *strip_scales;  // [experts][strips]: what packed weights are multiples of, or null
    const bf16 *x;              // [rows][k]
    void *y;                    // [rows][n], bf16 or f32
    float *partial;             // [slices][tiles][BM * BN]: sums of slices, when there are several
    u32 *finished;              // [tiles], zero between launches
    const u32 *lists;           // [rows]: rows sorted by expert, or null: there are no experts
    const uint4 *work;          // [gridDim.z]: expert, first place in the lists, how many rows
    u32 n, rows, k;
    u32 slices;
    u32 rows_per_input;         // row r of y reads row r / rows_per_input of x
    u32 bf16_results;           // whether y is bf16
};

// What a block computes.
struct BlockTile {
    u32 expert, slice, slices;
    u32 n0, m0, rows;      // its first output and row, and where rows end: those of its expert's tile, or all
    u32 blocks;            // of 64 inputs, in all
    u32 first, count;      // those of the slice
};
template <int BM, int BN> DEVICE BlockTile block_tile(const Linear &a) {
    BlockTile s;
    s.expert = 0, s.slice = blockIdx.y, s.slices = a.slices;
    s.n0 = blockIdx.x * BM, s.m0 = blockIdx.z * BN, s.rows = a.rows;
    if (a.lists) {
        const uint4 item = a.work[blockIdx.z];
        s.expert = item.x, s.m0 = item.y, s.rows = item.y + item.z;
    }
    s.blocks = (a.k + 63) / 64;
    s.first = (u32)((u64)s.slice * s.blocks / s.slices), s.count = (u32)((s.slice + 1ull) * s.blocks / s.slices) - s.first;
    return s;
}

// Which rows of x a thread copies: thread t copies piece t % 8 of every 128 bytes of rows (t / 8 + AT_ONCE * i) % BN. `begin` is where such a row begins, in
// 16-byte pieces. Rows beyond the tile's end: tiles of at most 32 rows have zeros there, as reading them would be a good part of the traffic;
// wider tiles, which have no register to spare, copy row 0 instead. Their sums are never written.
constexpr u32 NO_ROW = 0xffffffffu;
template <int BN, int THREADS = 128> struct Sources {
    static constexpr int AT_ONCE = THREADS / 8, COUNT = (BN + AT_ONCE - 1) / AT_ONCE;
    static constexpr bool FEW = BN <= 32;
    u32 begin[COUNT];  // with few rows, several threads have the same one
};
template <int BN, int THREADS = 128> DEVICE Sources<BN, THREADS> find_rows(const Linear &a, const BlockTile &s) {
    typedef Sources<BN, THREADS> Own;
    Own sources;
#pragma unroll
    for (int i = 0; i < Own::COUNT; i++) {
        u32 m = s.m0 + (threadIdx.x / 8 + i * Own::AT_ONCE) % BN;
        sources.begin[i] = m < s.rows ? (a.lists ? a.lists[m] : m) / a.rows_per_input * (a.k / 8) : Own::FEW ? NO_ROW : 0;
    }
    return sources;
}

// Begins to copy the block's rows of BLOCKS times 64 inputs, from block kb on. With few rows, the threads copy several blocks at once.
template <int BN, int BLOCKS, int THREADS> DEVICE void copy_rows(char *to, const Linear &a, const Sources<BN, THREADS> &sources, u32 kb) {
    typedef Sources<BN, THREADS> Own;
    constexpr int AT_ONCE = BN < Own::AT_ONCE ? Own::AT_ONCE / BN : 1;
    static_assert(BLOCKS <= AT_ONCE || BLOCKS % AT_ONCE == 0, "threads copy whole blocks");
    const u32 r = threadIdx.x / 8, c = threadIdx.x % 8, own = AT_ONCE > 1 ? r / BN : 0, first = (kb + own) * 8 + c;
    to += r * 128 + (c ^ (r & 7)) * 16;
    if (AT_ONCE > BLOCKS && own >= BLOCKS) return;
#pragma unroll
    for (int i = 0; i < Own::COUNT; i++) {
        const u32 end = Own::FEW && sources.begin[i] == NO_ROW ? 0 : a.k / 8;
        const uint4 *from = (const uint4 *)a.x + (sources.begin[i] + first);
#pragma unroll
        for (int block = 0; block < BLOCKS; block += AT_ONCE) cp_async_16(to + (block * BN + i * Own::AT_ONCE) * 128, from + block * 8, first + block * 8 < end);
    }
}

// One step of 16 inputs: all outputs of a warp times all rows, two times 8 of them at once.
template <int MT, int NT> DEVICE void multiply_rows(float (*sums)[NT][4], const u32 (*weights)[4], const char *rows, int step) {
    const int lane = threadIdx.x % 32, c = step * 2 + lane / 8 % 2;
    if (NT == 1) {
        u32 x[2];
        ldmatrix_x2(x, rows + lane % 8 * 128 + (c ^ lane % 8) * 16);
#pragma unroll
        for (int i = 0; i < MT; i++) mma_m16n8k16(sums[i][0], weights[i], x);
    }
#pragma unroll
    for (int j = 0; j + 1 < NT; j += 2) {
        u32 x[4];
        ldmatrix_x4(x, rows + (j * 8 + lane % 8 + lane / 16 * 8) * 128 + (c ^ lane % 8) * 16);
#pragma unroll
        for (int i = 0; i < MT; i++) {
            mma_m16n8k16(sums[i][j], weights[i], x);
            mma_m16n8k16(sums[i][j + 1], weights[i], x + 2);
        }
    }
}

// Four sums of every slice, `stride` apart, added in the slices' order. All are read before the first is added: the time of one read.
constexpr int MOST_SLICES = 4;  // as in `src/plan/slices.rs`
DEVICE float4 add_slices(const float4 *at, u64 stride, u32 slices) {
    float4 parts[MOST_SLICES];
#pragma unroll
    for (u32 i = 0; i < MOST_SLICES; i++)
        if (i < slices) parts[i] = __ldcg(at + i * stride);
    float4 sum = parts[0];
#pragma unroll
    for (u32 i = 1; i < MOST_SLICES; i++) {
        if (i >= slices) break;
        sum.x = __fadd_rn(sum.x, parts[i].x), sum.y = __fadd_rn(sum.y, parts[i].y);
        sum.z = __fadd_rn(sum.z, parts[i].z), sum.w = __fadd_rn(sum.w, parts[i].w);
    }
    return sum;
}

// Writes the block's sums for others; whether all slices of its tile are written now. `before` lies in shared memory that nothing else uses.
template <int MT, int NT, int THREADS> DEVICE bool is_last_slice(const Linear &a, const BlockTile &s, float (*sums)[NT][4], u64 tile, u64 tiles, u32 *before) {
    float4 *mine = (float4 *)a.partial + (s.slice * tiles + tile) * (MT * NT * THREADS) + threadIdx.x;
#pragma unroll
    for (int v = 0; v < MT * NT; v++) {
        const float *own = sums[v / NT][v % NT];
        mine[v * THREADS] = make_float4(own[0], own[1], own[2], own[3]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {  // a fence covers what its thread has seen of others by the barrier
        __threadfence();
        *before = atomicAdd(&a.finished[tile], 1u);
        __threadfence();
        if (*before == s.slices - 1) a.finished[tile] = 0;
    }
    __syncthreads();
    return *before == s.slices - 1;
}

// Adds the slices up where there are several, and writes the results: as bf16 where `bf16_results`, else as they are. `before` lies in shared
// memory that no copy or product uses any more.
template <int BM, int MT, int NT, int THREADS = 128> DEVICE void finish(const Linear &a, const BlockTile &s, float (*sums)[NT][4], bool bf16_results, u32 *before) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (s.slices > 1) {  // the block that comes last adds all of them
        const u64 tiles = (u64)gridDim.x * gridDim.z, tile = blockIdx.z * (u64)gridDim.x + blockIdx.x;
        if (!is_last_slice<MT, NT, THREADS>(a, s, sums, tile, tiles, before)) return;
        const float4 *first = (const float4 *)a.partial + tile * (MT * NT * THREADS) + threadIdx.x;
#pragma unroll
        for (int v = 0; v < MT * NT; v++) {
            const float4 sum = add_slices(first + v * THREADS, tiles * (MT * NT * THREADS), s.slices);
            float *own = sums[v / NT][v % NT];
            own[0] = sum.x, own[1] = sum.y, own[2] = sum.z, own[3] = sum.w;
        }
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 n = s.n0 + warp * (BM / (THREADS / 32)) + i * 16 + lane / 4 + e / 2 * 8, m = s.m0 + j * 8 + lane % 4 * 2 + e % 2;
                if (n >= a.n || m >= s.rows) continue;
                u64 at = (u64)(a.lists ? a.lists[m] : m) * a.n + n;
                if (bf16_results) ((bf16 *)a.y)[at] = narrow(sums[i][j][e]);
                else ((float *)a.y)[at] = sums[i][j][e];
            }
}
