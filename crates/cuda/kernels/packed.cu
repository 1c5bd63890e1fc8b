// Products of packed matrices by the matrix instruction of one warp, and what else reads such matrices. `packed.cuh` draws their layout.

// A stage is RECORDS records of the block's strips, and as many inputs of its rows; SHARED bytes hold as many as fit.
template <int BM, int BN, int RECORDS, int SHARED> DEVICE void packed(const Linear &a) {
    DYNAMIC_SHARED(bytes);
    constexpr int MT = BM / 64, NT = BN / 8, WEIGHTS = BM / 16 * RECORDS * RECORD;
    constexpr int STAGE = WEIGHTS + RECORDS * BN * 128, STAGES = SHARED / STAGE, PIECES = RECORDS * RECORD / 16;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (a.lists) grid_dependency_wait();  // which wrote the lists
    const BlockTile s = block_tile<BM, BN>(a);
    if (s.m0 >= s.rows) return;
    const Sources<BN> sources = find_rows<BN>(a, s);
    const u32 strips = (a.n + 15) / 16, strip = s.n0 / 16 + warp * MT, last = s.first + s.count;
    const char *w = (const char *)a.w + ((u64)s.expert * strips + strip) * s.blocks * RECORD + lane * 16;

    auto copy_weights = [&](u32 slot, u32 kb) {
        char *to = bytes + slot * STAGE;
        const u32 pieces = min(last - kb, (u32)RECORDS) * (RECORD / 16);  // what the slice has left
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const char *from = w + (u64)(i * s.blocks + kb) * RECORD;
            char *to_strip = to + (warp * MT + i) * RECORDS * RECORD + lane * 16;
#pragma unroll
            for (u32 at = 0; at < PIECES; at += 32) cp_async_16_if(to_strip + at * 16, from + at * 16, at + lane < pieces && strip + i < strips);
        }
    };
    auto copy_own_rows = [&](u32 slot, u32 kb) { copy_rows<BN, RECORDS>(bytes + slot * STAGE + WEIGHTS, a, sources, kb); };
    const u32 base = held_base(a.slices);
    float sums[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
    constexpr u32 AHEAD = STAGES - 1;
    // Weights are on their way before the kernel that makes the rows is done.
#pragma unroll 1
    for (u32 at = 0; at < AHEAD && s.first + at * RECORDS < last; at++) copy_weights(at, s.first + at * RECORDS);
    grid_dependency_wait();
#pragma unroll 1
    for (u32 at = 0; at < AHEAD; at++) {
        if (s.first + at * RECORDS < last) copy_own_rows(at, s.first + at * RECORDS);
        cp_async_commit_group();
    }
    u32 slot = 0;
#pragma unroll 1
    for (u32 kb = s.first; kb < last; kb += RECORDS) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (kb + AHEAD * RECORDS < last) {
            const u32 free = slot == 0 ? AHEAD : slot - 1;
            copy_weights(free, kb + AHEAD * RECORDS), copy_own_rows(free, kb + AHEAD * RECORDS);
        }
        cp_async_commit_group();
        const char *stage = bytes + slot * STAGE;
        slot = slot == AHEAD ? 0 : slot + 1;
        Piece pieces[RECORDS][MT];
#pragma unroll
        for (int r = 0; r < RECORDS; r++)
#pragma unroll
            for (int i = 0; i < MT; i++) load_piece(pieces[r][i], stage + ((warp * MT + i) * RECORDS + r) * RECORD, lane);
#pragma unroll
        for (int r = 0; r < RECORDS; r++) {
            if (r > 0 && kb + r >= last) break;
#pragma unroll
            for (int step = 0; step < 4; step++) {
                u32 fw[MT][4];
#pragma unroll
                for (int i = 0; i < MT; i++) load_weights(fw[i], pieces[r][i], step, base);
                multiply_rows<MT, NT>(sums, fw, stage + WEIGHTS + r * BN * 128, step);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < MT; i++) {  // a power of two: no bit is lost
        const float strip_scale = strip + i < strips ? a.strip_scales[(u64)s.expert * strips + strip + i] : 0.0f;
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = __fmul_rn(sums[i][j][e], strip_scale);
    }
    finish<BM, MT, NT>(a, s, sums, a.bf16_results, (u32 *)bytes);
}

EARLY_KERNEL(packed_8, Linear, 128) { packed<64, 8, 2, 52 << 10>(a); }
EARLY_KERNEL(packed_32, Linear, 128) { packed<64, 32, 2, 72 << 10>(a); }
EARLY_KERNEL(packed_64, Linear, 128) { packed<64, 64, 1, 72 << 10>(a); }
EARLY_KERNEL(packed_128, Linear, 128) { packed<128, 128, 1, WIDE_SHARED>(a); }

// out = w as plain bf16. Block (x, y): strip x, four records; a warp each, through shared memory for whole lines.
struct Unpack {
    const char *w;
    const float *strip_scales;
    bf16 *out;             // [n][k]
    u32 n, k;
};
KERNEL(unpack, Unpack, 128) {
    constexpr int PITCH = 144;
    __shared__ __align__(16) char tiles[4][16 * PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 blocks = (a.k + 63) / 64, kb = blockIdx.y * 4 + warp, strip = blockIdx.x;
    if (kb >= blocks) return;
    const float strip_scale = a.strip_scales[strip];
    char *tile = tiles[warp];
    Piece piece;
    load_piece(piece, a.w + ((u64)strip * blocks + kb) * RECORD, lane);
#pragma unroll
    for (int step = 0; step < 4; step++) {
        u32 f[4];
        load_weights(f, piece, step, BASE);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 pair = pack_bf16x2(__fmul_rn(low_bf16(f[i]), strip_scale), __fmul_rn(high_bf16(f[i]), strip_scale));
            *(u32 *)(tile + (lane / 4 + i % 2 * 8) * PITCH + (step * 16 + i / 2 * 8 + lane % 4 * 2) * 2) = pair;
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 row = i * 4 + lane / 8, c = lane % 8, n = strip * 16 + row, k = kb * 64 + c * 8;
        if (n < a.n && k < a.k) *(uint4 *)(a.out + (u64)n * a.k + k) = *(const uint4 *)(tile + row * PITCH + c * 16);
    }
}

// As `embed` of `rows.cu`, from a packed table.
#define SAMPLED_LAST_STEP 0x80000000u
struct EmbedPacked {
    const u32 *tokens;
    const u32 *chosen;
    const char *table;
    const float *strip_scales;
    float *hidden;
    u32 width, vocab;
    float scale;
};
KERNEL(embed_packed, EmbedPacked, 128) {
    u32 row = blockIdx.x, token = a.tokens[row];
    if (token & SAMPLED_LAST_STEP) token = a.chosen[token & ~SAMPLED_LAST_STEP];
    token = token < a.vocab ? token : 0;
    const u32 strip = token / 16, high = token % 16 / 8, blocks = (a.width + 63) / 64;
    const float strip_scale = a.strip_scales[strip];
    float *to = a.hidden + (u64)row * a.width;
    for (u32 i = threadIdx.x; i < blocks * 4; i += blockDim.x) {
        const u32 kb = i / 4, t = i % 4;
        Piece piece;
        load_piece(piece, a.table + ((u64)strip * blocks + kb) * RECORD, token % 8 * 4 + t);
#pragma unroll
        for (int step = 0; step < 4; step++) {
            u32 f[4];
            load_weights(f, piece, step, BASE);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 pair = high ? f[2 * half + 1] : f[2 * half], k = kb * 64 + step * 16 + half * 8 + t * 2;
                if (k >= a.width) continue;
                to[k] = __fmul_rn(__fmul_rn(low_bf16(pair), strip_scale), a.scale);
                to[k + 1] = __fmul_rn(__fmul_rn(high_bf16(pair), strip_scale), a.scale);
            }
        }
    }
}

// Random quants under given factors, for measurements.
struct RandomisePacked {
    u32 *w;
    float *strip_scales;
    u64 words;             // of all records
    u32 strips;
    u32 low, high;         // factors of low and high outputs
    float strip_scale;
    u32 seed;
};
KERNEL(randomise_packed, RandomisePacked, 256) {
    const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = first; i < a.strips; i += step) a.strip_scales[i] = a.strip_scale;
    for (u64 i = first; i < a.words; i += step) {
        u64 z = (i + 1) * 0x9E3779B97F4A7C15ull + a.seed * 0xD1B54A32D192ED03ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        u32 within = (u32)(i % (RECORD / 4));
        a.w[i] = within < QUANT_BYTES / 4 ? (u32)(z >> 32) : within % 2 ? a.high : a.low;
    }
}
