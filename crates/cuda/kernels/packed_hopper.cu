// Products of packed matrices by warpgroups, for Hopper alone: the sums of `packed.cu`, bit for bit.
//
// A warpgroup has 64 outputs, one strip for each of its warps. Unpacked weights are the A operand in registers, rows of x in panels of
// 64 inputs the B operand. Products run behind the unpacking: while those of one part of a record run, the next part is unpacked into
// other registers.
//
//   block     GROUPS warpgroups, 64 outputs each, that share BN rows
//   stage     RECORDS records of every strip, and as many panels of rows
//   part      STEPS steps of 16 inputs: what is unpacked and multiplied at a time
//   memory    [STAGES][RECORDS] panels of [BN][128 bytes] | [STAGES][strips][RECORDS] records
//
// A warp unpacks the first part of a stage before it waits for the others. With few rows a stage's memory is free one stage later; with many
// rows its last products still run then, and it is free two stages later.

// What a warp reads of its strip.
struct Records {
    const char *from;  // this lane's piece of the first record
    u32 end;           // of the slice
};
// Begins to copy COUNT records from kb on, as far as the slice goes; `to` is this lane's place.
template <int COUNT> DEVICE void copy_records(char *to, const Records &records, u32 kb) {
    constexpr u32 PIECES = COUNT * RECORD / 16;
    const u32 lane = threadIdx.x % 32, pieces = records.end > kb ? (records.end - kb) * (RECORD / 16) : 0;
    const char *from = records.from + (u64)kb * RECORD;
    if (PIECES % 32 == 0 && pieces >= PIECES) {
#pragma unroll
        for (u32 at = 0; at < PIECES; at += 32) cp_async_16_if(to + at * 16, from + at * 16, true);
        return;
    }
#pragma unroll
    for (u32 at = 0; at < PIECES; at += 32) cp_async_16_if(to + at * 16, from + at * 16, at + lane < min(pieces, PIECES));
}

// Unpacks a part into registers that products before the last ones have read.
template <int STEPS> DEVICE void unpack_part(u32 (&weights)[STEPS][4], const Piece &piece, int first, u32 base) {
    wgmma_wait_group<1>();
    wgmma_hold_operands(weights);
#pragma unroll
    for (int step = 0; step < STEPS; step++) load_weights(weights[step], piece, first + step, base);
}
// Adds the products of a part to the sums; `rows` describes its first step.
template <int STEPS, int NT> DEVICE void multiply_part(float (&sums)[NT][4], const u32 (&weights)[STEPS][4], u64 rows) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; step++) wgmma_rs_add(sums, weights[step], advance_descriptor(rows, step * 32));
    wgmma_commit_group();
}

// Adds the products of N records whose weights were loaded, and the first part unpacked. Parts take turns at two sets of registers; the last
// part's products still run.
template <int N, int STEPS, int NT> DEVICE void multiply_records(float (&sums)[NT][4], u32 (&weights)[2][STEPS][4], const Piece (&pieces)[N], u64 rows, u32 base) {
    constexpr int PARTS_OF_RECORD = 4 / STEPS;
#pragma unroll
    for (int part = 0; part < N * PARTS_OF_RECORD; part++) {
        const int record = part / PARTS_OF_RECORD, step = part % PARTS_OF_RECORD * STEPS;
        if (part > 0) unpack_part(weights[part % 2], pieces[record], step, base);
        multiply_part(sums, weights[part % 2], advance_descriptor(rows, record * NT * 1024 + step * 32));
    }
}

template <int GROUPS, int BN, int RECORDS, int STAGES, int STEPS> DEVICE void packed_by_warpgroups(const Linear &a) {
    DYNAMIC_PANELS(bytes);
    constexpr int THREADS = GROUPS * 128, BM = GROUPS * 64, NT = BN / 8, PANEL = BN * 128;
    constexpr int WEIGHTS = BM / 16 * RECORDS * RECORD, ROWS = RECORDS * PANEL;
    constexpr int RUNNING = BN > 32 ? 1 : 0, AHEAD = STAGES - 1 - RUNNING;  // products that run when a stage begins, in groups
    static_assert(RECORDS * 4 / STEPS % 2 == 0, "every stage begins with the same registers");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (a.lists) grid_dependency_wait();  // which wrote the lists
    const BlockTile s = block_tile<BM, BN>(a);
    if (s.m0 >= s.rows) return;
    const u32 strips = (a.n + 15) / 16, strip = s.n0 / 16 + warp, last = s.first + s.count;
    const u64 index = (u64)s.expert * strips + min(strip, strips - 1);
    const float strip_scale = a.strip_scales[index];
    // Nothing is copied of a strip that the matrix does not have, and its sums are never looked at.
    const Records records = {(const char *)a.w + index * s.blocks * RECORD + lane * 16, strip < strips ? last : 0};
    char *own = bytes + STAGES * ROWS + warp * RECORDS * RECORD, *to = own + opaque(lane * 16);

    // Weights are on their way before the kernel that makes the rows is done.
    auto copy_weights = [&](u32 slot, u32 kb) { copy_records<RECORDS>(to + slot * WEIGHTS, records, kb); };
#pragma unroll 1
    for (u32 at = 0; at < AHEAD && s.first + at * RECORDS < last; at++) copy_weights(at, s.first + at * RECORDS);
    const Sources<BN, THREADS> sources = find_rows<BN, THREADS>(a, s);
    auto copy_own_rows = [&](u32 slot, u32 kb) { copy_rows<BN, RECORDS>(bytes + slot * ROWS, a, sources, kb); };
    const u32 base = held_base(a.slices);
    u32 weights[2][STEPS][4];
    float sums[NT][4];
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[j][e] = 0.0f;
    grid_dependency_wait();
#pragma unroll 1
    for (u32 at = 0; at < AHEAD; at++) {
        if (s.first + at * RECORDS < last) copy_own_rows(at, s.first + at * RECORDS);
        cp_async_commit_group();
    }
    u32 kb = s.first, slot = 0, free = AHEAD;
#pragma unroll 1
    for (; kb + RECORDS <= last; kb += RECORDS) {
        cp_async_wait_group<AHEAD - 1>();
        fence_proxy_async();
        __syncwarp();  // the warp has copied its weights itself
        Piece pieces[RECORDS];
#pragma unroll
        for (int r = 0; r < RECORDS; r++) load_piece(pieces[r], own + slot * WEIGHTS + r * RECORD, lane);
        unpack_part(weights[0], pieces[0], 0, base);
        wgmma_wait_group<RUNNING>();
        __syncthreads();
        if (kb + AHEAD * RECORDS < last) copy_weights(free, kb + AHEAD * RECORDS), copy_own_rows(free, kb + AHEAD * RECORDS);
        cp_async_commit_group();
        multiply_records(sums, weights, pieces, wgmma_descriptor(bytes + slot * ROWS, 0, 1024), base);
        slot = slot == STAGES - 1 ? 0 : slot + 1, free = free == STAGES - 1 ? 0 : free + 1;
    }
    wgmma_wait_group<0>();
    if (RECORDS > 1 && kb < last) {  // less than a stage is left
        cp_async_wait_group<0>();
        fence_proxy_async();
        __syncthreads();
#pragma unroll 1
        for (u32 r = 0; kb + r < last; r++) {
            Piece piece[1];
            load_piece(piece[0], own + slot * WEIGHTS + r * RECORD, lane);
            unpack_part(weights[0], piece[0], 0, base);
            multiply_records(sums, weights, piece, wgmma_descriptor(bytes + slot * ROWS + r * PANEL, 0, 1024), base);
            wgmma_wait_group<0>();
        }
    }
    wgmma_hold_results(sums), wgmma_hold_operands(weights[0]), wgmma_hold_operands(weights[1]);
#pragma unroll
    for (int j = 0; j < NT; j++)  // a power of two: no bit is lost
#pragma unroll
        for (int e = 0; e < 4; e++) sums[j][e] = __fmul_rn(sums[j][e], strip_scale);
    finish<BM, 1, NT, THREADS>(a, s, &sums, a.bf16_results, (u32 *)bytes);
}

#define TILE(name, groups, rows, records, stages, steps) \
    EARLY_KERNEL(name, Linear, groups * 128) { packed_by_warpgroups<groups, rows, records, stages, steps>(a); }
// `src/packed/warpgroups.rs` adds the tiles.
