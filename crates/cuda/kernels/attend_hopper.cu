// The prompt kernel (`attend_prompt.cu`) on Hopper's warpgroup products: the same segments, the same order of every sum, the same bits.
//
// A block takes one (item, query head) at a time. Two warpgroups compute, 64 tokens each; a third one copies:
//
//   copying     two warps: Q, K 0, K 1, K 2, ...; two warps: V 0, V 1, ...; two slots each for queries, keys and values, across items.
//               Segments that are seen as a whole are left to TMA; threads copy the others, and queries
//   computing   scores 0 | weights 0 | left values 0, scores 1 | right values 0 | weights 1 | left values 1, scores 2 | ...
//
// The computing ones take turns: while one issues its products, the other turns scores into weights. Values are weighted in two panels of 64
// columns: the left one is merged into the total while the next scores are computed, and the right one while their maxima are found. With heads of
// 128 values, a thread has 64 sums of the total, 64 scores, 32 sums of a panel and 32 registers of packed weights, of 232 registers: a second
// panel does not fit. A turn ends when the right panel's products are issued; a segment that the mask cuts through is looked at after they are
// done, as there are no registers for both.
//
// By the rates of its units, a multiprocessor needs for 128 rows of a segment 2,048 clocks for products (heads of 128 values), 1,088 for
// exponentials, and about 1,450 to issue all instructions. Measured on an H200: 2,950. Products alone, back to back, take as long as 848 TFLOP/s
// allow, since the GPU lowers its clock under them; all of it together reaches 640.
//
// With KV8, quants pass through a staging area that has room for one tile of keys and one of values: a thread copies its part of the next
// tile there, and widens it into a slot when that is empty. Computing threads multiply by tokens' scales, as in `attend.cuh`.
//
// HEAD_DIM is 64 or 128. Keys, values and queries lie in panels of 64 columns and 128
// rows (`hopper.cuh`).

#define GROUP 128  // threads of a warpgroup
#define GROUP_ROWS 64
#define CONSUMER_GROUPS 2  // warpgroups
#define PANEL (SEGMENT * 128)
#define PANELS (HEAD_DIM / 64)
#define TILE_BYTES (PANELS * PANEL)  // keys or values of a segment, or queries of an item
#define EIGHT_ROWS 1024
#define BARRIERS (12 * 8)
#define SCALES (6 * TILE_BYTES + BARRIERS)  // where the scales of keys and values begin
#define SCALES_BYTES (SEGMENT * 4)
#define STAGING (SCALES + 4 * SCALES_BYTES)  // where the quants of the next keys and values begin
#define PIECES (HEAD_DIM / 8)
#define COPY_THREADS 64                       // threads that copy a tile
#define ROWS_AT_ONCE (COPY_THREADS / PIECES)  // that they copy a piece each of

struct MappedAttend {
    Attend attend;
    TensorMap kv;  // this layer's blocks as rows of HEAD_DIM values, in boxes of 64 columns and a block's rows; not read with KV8
};

// Two slots that are filled and emptied in turn.
struct Slots {
    char *bytes;
    u64 *full, *empty;  // a barrier for each slot
    char *scales;       // of the tokens in each slot, with KV8
    u32 turn;           // how often one was used
};
DEVICE char *slot_bytes(const Slots &s) { return s.bytes + s.turn % 2 * TILE_BYTES; }
DEVICE char *slot_scales(const Slots &s) { return s.scales + s.turn % 2 * SCALES_BYTES; }
DEVICE void await_full(const Slots &s) { mbarrier_wait(s.full + s.turn % 2, s.turn / 2 % 2); }
// A computing warp has read all that it needs of the slot.
DEVICE void release(const Slots &s) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(s.empty + s.turn % 2);
}
// Slots of queries (0), keys (1) or values (2).
DEVICE Slots slots_at(char *bytes, u32 kind, u32 turn) {
    u64 *barriers = (u64 *)(bytes + 6 * TILE_BYTES) + kind * 4;
    return {bytes + kind * 2 * TILE_BYTES, barriers, barriers + 2, bytes + SCALES + (kind - 1) * 2 * SCALES_BYTES, turn};
}
// What a computing thread knows of the slots.
struct PipelineState {
    char *bytes;
    u32 units;  // queries that were used
    u32 tiles;  // keys that were used; as many values, or one or two less
};
DEVICE Slots queries_of(const PipelineState &m) { return slots_at(m.bytes, 0, m.units); }
DEVICE Slots keys_of(const PipelineState &m) { return slots_at(m.bytes, 1, m.tiles); }
DEVICE Slots values_of(const PipelineState &m, u32 behind) { return slots_at(m.bytes, 2, m.tiles - behind); }
DEVICE void create_barriers(const Slots &s) {
    for (int slot = 0; slot < 2; slot++) mbarrier_init(s.full + slot, COPY_THREADS), mbarrier_init(s.empty + slot, CONSUMER_GROUPS * GROUP / 32);
}

// One (item, head), and the segments that any of its rows sees.
struct Unit {
    PromptItem item;
    u32 head;
    i32 lower, end, first, last;
};
DEVICE Unit unit_at(const Attend &a, u32 index) {
    Unit u;
    u.item = a.prompts[index / a.heads], u.head = index % a.heads;
    u.lower = first_visible_key(u.item.position + 1, a.window), u.end = (i32)(u.item.position + u.item.rows);
    u.first = u.lower / SEGMENT, u.last = (u.end + SEGMENT - 1) / SEGMENT;
    return u;
}
// Calls `work` with the index of each of this block's units. They come longest first: taken to and fro, every block gets about as many
// segments, and neighbours, which share keys, run at the same time.
template <class Work> DEVICE void for_units(const Attend &a, Work work) {
#pragma unroll 1
    for (u32 index = blockIdx.x, step = 2 * (gridDim.x - blockIdx.x) - 1; index < a.counts[1] * a.heads; index += step, step = 2 * gridDim.x - step)
        work(index);
}

// --- copying ---

// The next slot, as soon as it is empty.
DEVICE char *await_empty(const Slots &s) {
    mbarrier_wait(s.empty + s.turn % 2, (s.turn / 2 + 1) % 2);
    return slot_bytes(s);
}
// Waits for this thread's copies into the slot, and tells the computing warps.
DEVICE void announce(const Slots &s) {
    cp_async_commit_group();
    cp_async_wait_group<0>();
    fence_proxy_async();
    mbarrier_arrive(s.full + s.turn % 2);
}
// Where a thread's pieces lie in a tile: one in every ROWS_AT_ONCE rows.
struct Pieces {
    char *to;
    i32 flip;  // from the place of a piece in its row to that four rows further on
    u32 row, column;
};
DEVICE Pieces pieces_in(char *tile) {
    const u32 thread = (KV8 ? reread_thread_index() : threadIdx.x) % COPY_THREADS, row = thread / PIECES, piece = thread % PIECES, place = (piece ^ row) % 8;
    return {tile + piece / 8 * PANEL + row * 128 + place * 16, place & 4 ? -64 : 64, row, piece * 8};
}
DEVICE char *piece_at(const Pieces &p, u32 first) { return p.to + first * 128 + (first % 8 ? p.flip : 0); }
// Rows beyond the unit's own become zeros, and are never written.
DEVICE void fetch_queries(const Slots &s, const Attend &a, const Unit &unit) {
    const Pieces p = pieces_in(await_empty(s));
    const bf16 *from = a.queries + ((u64)(unit.item.token + p.row) * a.heads + unit.head) * HEAD_DIM + p.column;
    const u32 stride = ROWS_AT_ONCE * a.heads * HEAD_DIM;
#pragma unroll 2
    for (u32 first = 0; first < SEGMENT; first += ROWS_AT_ONCE, from += stride) cp_async_16(piece_at(p, first), from, first + p.row < unit.item.rows);
    announce(s);
}
// Values are copied by other warps than queries and keys: who waits for a copy does not delay the others.
DEVICE u32 copied_half() { return threadIdx.x % GROUP < COPY_THREADS ? KEYS : VALUES; }
// One of a segment's four blocks, which this lane remembers for its warp: the warpgroup has few registers.
DEVICE u32 known_block(const Attend &a, const Unit &unit, i32 segment, u32 thread) {
    const i32 tile = (i32)(thread % SEGMENT_BLOCKS), own = segment * SEGMENT + tile * BLOCK;
    const bool used = own + BLOCK > unit.lower && own < unit.end;
    return used ? a.tables[unit.item.table + segment * SEGMENT_BLOCKS + tile] : 0;
}
#if !KV8
// Keys or values of a segment, by threads: tokens outside of what the unit sees become zeros.
DEVICE void fetch_part(const Slots &s, const Attend &a, const Unit &unit, u32 which, i32 segment, u32 block) {
    Pieces p = pieces_in(await_empty(s));
    const bf16 *kv = a.kv + (unit.head / (a.heads / a.kv_heads) * 2 + which) * (BLOCK * HEAD_DIM) + p.row * HEAD_DIM + p.column;
    i32 key = segment * SEGMENT + (i32)p.row;
#pragma unroll 1
    for (u32 t = 0; t < SEGMENT_BLOCKS; t++, key += BLOCK, p.to += BLOCK * 128) {
        const bf16 *from = kv + (u64)__shfl_sync(LANES_ALL, block, t) * a.kv_heads * (2 * BLOCK * HEAD_DIM);
#pragma unroll
        for (i32 i = 0; i < BLOCK; i += ROWS_AT_ONCE) cp_async_16(piece_at(p, i), from + i * HEAD_DIM, key + i >= unit.lower && key + i < unit.end);
    }
    announce(s);
}
// The same of a segment that the unit sees all of, by TMA: a thread asks for each of the four blocks.
DEVICE void fetch_whole(const Slots &s, const MappedAttend &p, u32 head, u32 which, u32 block) {
    const Attend &a = p.attend;
    const u32 thread = threadIdx.x % COPY_THREADS;
    char *to = await_empty(s) + thread * (BLOCK * 128);
    u64 *full = s.full + s.turn % 2;
    if (thread >= SEGMENT_BLOCKS) return mbarrier_arrive(full);
    mbarrier_arrive_expect_tx(full, PANELS * BLOCK * 128);
    const u32 row = ((block * a.kv_heads + head) * 2 + which) * BLOCK;
#pragma unroll
    for (u32 panel = 0; panel < PANELS; panel++) tma_load(to + panel * PANEL, p.kv, panel * 64, row, full);
}
DEVICE void fetch_tiles(char *bytes, u32 &tiles, const MappedAttend &p, const Unit &unit) {
    const u32 which = copied_half(), head = unit.head / (p.attend.heads / p.attend.kv_heads);
#pragma unroll 1
    for (i32 g = unit.first; g * SEGMENT < unit.end; g++, tiles++) {
        const Slots slots = slots_at(bytes, 1 + which, tiles);
        const u32 block = known_block(p.attend, unit, g, threadIdx.x);
        if (g * SEGMENT >= unit.lower && (g + 1) * SEGMENT <= unit.end) fetch_whole(slots, p, head, which, block);
        else fetch_part(slots, p.attend, unit, which, g, block);
    }
}
#else
#define SIXTEENS (HEAD_DIM / 16)             // of a token's quants
#define TOKENS_AT_ONCE (COPY_THREADS / SIXTEENS)  // that threads take sixteen quants each of; a multiple of 8
#define STAGED (SEGMENT / TOKENS_AT_ONCE)    // sixteens of a thread
// Which thread this is of those that copy keys, or values. It is found out again and again: there are no registers to keep it in.
struct Copier {
    u32 which, thread;
};
DEVICE Copier this_copier() {
    const u32 thread = reread_thread_index() % GROUP;
    return {thread / COPY_THREADS, thread % COPY_THREADS};
}
// A thread's place for its n-th sixteen quants.
DEVICE char *staged(char *bytes, const Copier &c, u32 n) { return bytes + STAGING + c.which * (SEGMENT * HEAD_DIM) + (n * COPY_THREADS + c.thread) * 16; }
// Begins to copy a segment's quants, and gives the scales of two tokens, half a segment apart; tokens outside of what the unit sees become
// zeros.
DEVICE float2 stage_tile(char *bytes, const Attend &a, const Unit &unit, i32 segment) {
    const Copier c = this_copier();
    const u32 token = c.thread / SIXTEENS, block = known_block(a, unit, segment, c.thread);
    const Stored *kv = a.kv + (unit.head / (a.heads / a.kv_heads) * 2 + c.which) * STORED_HALF;
    auto stored = [&](u32 tile) { return kv + (u64)__shfl_sync(LANES_ALL, block, tile) * a.kv_heads * (2 * STORED_HALF); };
    auto seen = [&](u32 at) { return segment * SEGMENT + (i32)at >= unit.lower && segment * SEGMENT + (i32)at < unit.end; };
#pragma unroll 1
    for (u32 t = 0; t < SEGMENT_BLOCKS; t++) {
        const Stored *from = stored(t) + c.thread * 16;
#pragma unroll
        for (u32 i = 0; i < BLOCK / TOKENS_AT_ONCE; i++)
            cp_async_16(staged(bytes, c, t * (BLOCK / TOKENS_AT_ONCE) + i), from + i * (COPY_THREADS * 16), seen(t * BLOCK + i * TOKENS_AT_ONCE + token));
    }
    cp_async_commit_group();
    float scales[2];
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        const u32 at = half * COPY_THREADS + c.thread;
        const float *from = (const float *)(stored(at / BLOCK) + BLOCK * HEAD_DIM);
        scales[half] = seen(at) ? from[at % BLOCK] : 0.0f;
    }
    return make_float2(scales[0], scales[1]);
}
// Widens a part of sixteen quants into a piece of a panel.
DEVICE void widen_part(char *to, uint4 w, u32 pairs) {
    write_piece(to, make_uint4(widened(w.x, pairs), widened(w.y, pairs), widened(w.z, pairs), widened(w.w, pairs)));
}
// Widens what this thread has staged into a slot, and tells the computing warps.
DEVICE void widen_tile(const Slots &s, char *bytes, float2 scales) {
    const Copier c = this_copier();
    const u32 token = c.thread / SIXTEENS, piece = c.thread % SIXTEENS * 2, panel = piece / 8;
    // Threads of different panels begin with different parts: their pieces lie in different banks.
    const u32 part = panel, place = (piece ^ part ^ token) % 8, pairs = selector(c.which, part), others = selector(c.which, part ^ 1);
    cp_async_wait_group<0>();
    char *row = await_empty(s) + panel * PANEL + token * 128;
    float *to_scales = (float *)slot_scales(s) + c.thread;
    to_scales[0] = scales.x, to_scales[COPY_THREADS] = scales.y;
    uint4 next = *(const uint4 *)staged(bytes, c, 0);
#pragma unroll 1
    for (u32 n = 0; n < STAGED; n++, row += TOKENS_AT_ONCE * 128) {
        const uint4 quants = next;
        next = *(const uint4 *)staged(bytes, c, min(n + 1, STAGED - 1u));
        widen_part(row + place * 16, quants, pairs);
        widen_part(row + (place ^ 1) * 16, quants, others);
    }
    fence_proxy_async();
    mbarrier_arrive(s.full + s.turn % 2);
}
DEVICE void fetch_tiles(char *bytes, u32 &tiles, const MappedAttend &p, const Unit &unit) {
    float2 scales = make_float2(0.0f, 0.0f);
#pragma unroll 1
    for (i32 g = unit.first;; g++) {
        if (g > unit.first) widen_tile(slots_at(bytes, 1 + copied_half(), tiles++), bytes, scales);
        if (g * SEGMENT >= unit.end) return;
        scales = stage_tile(bytes, p.attend, unit, g);
    }
}
#endif
DEVICE void copy_units(char *bytes, const MappedAttend &p) {
    const Attend &a = p.attend;
    u32 units = 0, tiles = 0;
    for_units(a, [&](u32 index) {
        const Unit unit = unit_at(a, index);
        if (copied_half() == KEYS) fetch_queries(slots_at(bytes, 0, units), a, unit);
        fetch_tiles(bytes, tiles, p, unit);
        units++;
    });
}

// --- computing ---

// Turns at issuing products: one for every segment of a unit, seen or not. Scores of a unit's first segment are issued outside of them.
DEVICE void await_turn(u32 group) { named_barrier_sync(1 + group, CONSUMER_GROUPS * GROUP); }
DEVICE void pass_turn(u32 group) { named_barrier_arrive(1 + (group ^ 1), CONSUMER_GROUPS * GROUP); }
// The first of a thread's two rows among its warpgroup's.
DEVICE u32 first_row() { return threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4; }
// What a warpgroup sees of a unit.
struct VisibleSegments {
    i32 first, last;  // segments
    u32 after;        // keys up to its first row
};
DEVICE VisibleSegments visible_segments(const Attend &a, const Unit &unit, u32 group) {
    const u32 begin = group * GROUP_ROWS, rows = unit.item.rows, after = unit.item.position + begin + 1;
    const i32 end = (i32)(unit.item.position + min(begin + GROUP_ROWS, rows));
    if (begin >= rows) return {unit.last, unit.last, after};
    return {first_visible_key(after, a.window) / SEGMENT, (end + SEGMENT - 1) / SEGMENT, after};
}
// What a thread's rows see. Rows beyond the unit's own have no queries, and are never written.
DEVICE Span span_of(const VisibleSegments &visible, const Attend &a) {
    const u32 after = visible.after + first_row();
    return {{first_visible_key(after, a.window), first_visible_key(after + 8, a.window)}, {(i32)after, (i32)after + 8}};
}
// Rows so far: maximum and sum of each of a thread's two rows, and the weighted values.
typedef SoftmaxState Total;
DEVICE void issue_scores(float (&s)[SEGMENT_BLOCKS][4][4], u64 queries, const char *keys) {
    const u64 k = wgmma_descriptor(keys, 0, EIGHT_ROWS);
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < FRAGMENTS; n++) {
        const u32 at = n / 4 * PANEL + n % 4 * 32;
        wgmma_ss(s, advance_descriptor(queries, at), advance_descriptor(k, at), n > 0);
    }
    wgmma_commit_group();
}
// Multiplies what there is for a segment's tokens by their scales.
DEVICE void scale_segment(float (&s)[SEGMENT_BLOCKS][4][4], const Slots &tokens) {
#pragma unroll
    for (int t = 0; t < SEGMENT_BLOCKS; t++) scale_tokens(s[t], slot_scales(tokens) + t * BLOCK * 4);
}
// Takes the scores whose products are done; their keys are no longer needed.
DEVICE void take_scores(float (&s)[SEGMENT_BLOCKS][4][4], PipelineState &state) {
#pragma unroll
    for (int t = 0; t < SEGMENT_BLOCKS; t++) wgmma_hold_results(s[t]);
    scale_segment(s, keys_of(state));
    release(keys_of(state));
    state.tiles++;
}
// The weighted values of a segment's tokens, 64 columns.
DEVICE void issue_values(float (&v)[8][4], const u32 (&p)[SEGMENT_BLOCKS * 2][4], const char *panel) {
    const u64 b = wgmma_descriptor(panel, PANEL, EIGHT_ROWS);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < SEGMENT_BLOCKS * 2; i++) wgmma_rs_transposed(v, p[i], advance_descriptor(b, i * 2 * EIGHT_ROWS), i > 0);
    wgmma_commit_group();
}
// How a segment is merged into the total. Rows that see nothing of it stay as they are.
struct Merges {
    Merge row[2];
    bool some[2];
};
DEVICE Merges merge_scales(Total &total, const SoftmaxState &r) {
    Merges m;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        m.some[h] = r.most[h] != MINUS_INFINITY;
        m.row[h] = merge(total.most[h], r.most[h]);
        if (m.some[h]) total.sum[h] = merged(m.row[h], total.sum[h], r.sum[h]), total.most[h] = m.row[h].most;
        else m.row[h].keep = 1.0f;
    }
    return m;
}
// The first half of `merged`: what is kept of the total. Mostly that is all of it, in every row of a warp.
DEVICE void keep_total(Total &total, const Merges &m) {
    if (!__ballot_sync(LANES_ALL, m.row[0].keep != 1.0f || m.row[1].keep != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) total.values[i][e] = __fmul_rn(total.values[i][e], m.row[e / 2].keep);
}
// The other half: what is taken of a segment.
DEVICE void take_panel(Total &total, int panel, const Merges &m, float (&v)[8][4]) {
    wgmma_hold_results(v);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float &t = total.values[panel * 8 + i][e];
            if (m.some[e / 2]) t = __fmaf_rn(v[i][e], m.row[e / 2].take, t);
        }
}
// Segments that nobody in the warpgroup sees.
DEVICE void skip_segments(i32 count, PipelineState &state, u32 group) {
#pragma unroll 1
    for (; count > 0; count--) {
        await_turn(group);
        pass_turn(group);
        await_full(keys_of(state));
        release(keys_of(state));
        await_full(values_of(state, 0));
        release(values_of(state, 0));
        state.tiles++;
    }
}
// Whether every row of the warpgroup sees all of a segment.
DEVICE bool sees_all(const VisibleSegments &visible, i32 segment, const Attend &a) {
    const i32 base = segment * SEGMENT;
    return base >= first_visible_key(visible.after + GROUP_ROWS - 1, a.window) && base + SEGMENT <= (i32)visible.after;
}
// Products to scores, and both rows' maxima.
template <bool MASKED> DEVICE void find_maxima(float (&s)[SEGMENT_BLOCKS][4][4], SoftmaxState &r, i32 segment, const VisibleSegments &visible, const Attend &a) {
    const Span span = MASKED ? span_of(visible, a) : Span();
#pragma unroll
    for (int h = 0; h < 2; h++) score_row<MASKED>(s, r, h, segment * SEGMENT, span, a);
}
// Scores to weights, in place, and their sums.
DEVICE void weigh_rows(float (&s)[SEGMENT_BLOCKS][4][4], SoftmaxState &r, const Attend &a) {
#pragma unroll
    for (int h = 0; h < 2; h++) r.sum[h] = 0.0f;
#pragma unroll
    for (int n = 0; n < THREAD_KEYS; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float &v = key_of_row(s, h, n);
            v = exponent(v, finite_max(r.most[h]), a);
            weigh_key(v, r.sum[h]);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) r.sum[h] = row_sum(r.sum[h]);
}
// Weights as the matrix instruction takes them.
DEVICE void pack_rows(u32 (&p)[SEGMENT_BLOCKS * 2][4], float (&s)[SEGMENT_BLOCKS][4][4], const Slots &values) {
    if (KV8) await_full(values);
#pragma unroll
    for (int t = 0; t < SEGMENT_BLOCKS; t++) {
        scale_tokens(s[t], slot_scales(values) + t * BLOCK * 4);
#pragma unroll
        for (int j = 0; j < 2; j++) pack_weights(p[t * 2 + j], s[t], j);
    }
}
// The last segment's values, behind which no scores are computed.
DEVICE void end_segments(Total &total, const SoftmaxState &rows, const u32 (&p)[SEGMENT_BLOCKS * 2][4], PipelineState &state, u32 group) {
    const Merges m = merge_scales(total, rows);
    keep_total(total, m);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
        float v[8][4];
        issue_values(v, p, slot_bytes(values_of(state, 1)) + panel * PANEL);
        if (panel == PANELS - 1) pass_turn(group);
        wgmma_wait_group<0>();
        take_panel(total, panel, m, v);
    }
}
DEVICE void attend_segments(Total &total, const VisibleSegments &visible, PipelineState &state, u64 queries, u32 group, const Attend &a) {
    float s[SEGMENT_BLOCKS][4][4], v[8][4];
    u32 p[SEGMENT_BLOCKS * 2][4];
    SoftmaxState rows;
    await_full(keys_of(state));
    issue_scores(s, queries, slot_bytes(keys_of(state)));
    wgmma_wait_group<0>();
    take_scores(s, state);
    if (sees_all(visible, visible.first, a)) find_maxima<false>(s, rows, visible.first, visible, a);
    else find_maxima<true>(s, rows, visible.first, visible, a);
    weigh_rows(s, rows, a);
#pragma unroll 1
    for (i32 next = visible.first + 1; next < visible.last; next++) {
        pack_rows(p, s, values_of(state, 1));
        await_turn(group);
        if (!KV8) await_full(values_of(state, 1));
        const char *values = slot_bytes(values_of(state, 1));
        issue_values(v, p, values);
        await_full(keys_of(state));
        issue_scores(s, queries, slot_bytes(keys_of(state)));
        if (PANELS == 1) pass_turn(group);
        const Merges m = merge_scales(total, rows);
        keep_total(total, m);
        wgmma_wait_group<1>();
        take_panel(total, 0, m, v);
        if (PANELS == 2) issue_values(v, p, values + PANEL), pass_turn(group);
        wgmma_wait_group<PANELS - 1>();
        take_scores(s, state);
        const bool all = sees_all(visible, next, a);
        if (all) find_maxima<false>(s, rows, next, visible, a);
        wgmma_wait_group<0>();
        wgmma_hold_operands(p);
        release(values_of(state, 2));
        if (PANELS == 2) take_panel(total, 1, m, v);
        if (!all) find_maxima<true>(s, rows, next, visible, a);
        weigh_rows(s, rows, a);
    }
    pack_rows(p, s, values_of(state, 1));
    await_turn(group);
    if (!KV8) await_full(values_of(state, 1));
    end_segments(total, rows, p, state, group);
    wgmma_hold_operands(p);
    release(values_of(state, 1));
}
DEVICE void write_total(const Total &total, const Attend &a, const Unit &unit, u32 group) {
    const u32 own = group * GROUP_ROWS + first_row();
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (own + h * 8 < unit.item.rows) write_row(a.out + ((u64)(unit.item.token + own + h * 8) * a.heads + unit.head) * HEAD_DIM, total, h);
}
DEVICE void compute_units(PipelineState state, u32 group, const Attend &a) {
    if (group == 1) pass_turn(group);
    for_units(a, [&](u32 index) {
        const Unit unit = unit_at(a, index);
        const VisibleSegments visible = visible_segments(a, unit, group);
        Total total;
#pragma unroll
        for (int h = 0; h < 2; h++) total.most[h] = MINUS_INFINITY, total.sum[h] = 0.0f;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) total.values[i][e] = 0.0f;
        await_full(queries_of(state));
        const u64 queries = wgmma_descriptor(slot_bytes(queries_of(state)) + group * (GROUP_ROWS * 128), 0, EIGHT_ROWS);
        skip_segments(visible.first - unit.first, state, group);
        if (visible.first < visible.last) attend_segments(total, visible, state, queries, group, a);
        skip_segments(unit.last - visible.last, state, group);
        release(queries_of(state));
        state.units++;
        write_total(total, a, unit_at(a, index), group);
    });
    if (group == 0) await_turn(group);
}

KERNEL(attend_prompt_hopper, MappedAttend, (CONSUMER_GROUPS + 1) * GROUP) {
    DYNAMIC_PANELS(bytes);
    const PipelineState state = {bytes, 0, 0};
    const u32 group = __shfl_sync(LANES_ALL, threadIdx.x / GROUP, 0);
    if (threadIdx.x == 0) create_barriers(queries_of(state)), create_barriers(keys_of(state)), create_barriers(values_of(state, 0));
    __syncthreads();
    if (group == CONSUMER_GROUPS) {
        setmaxnreg_dec<40>();
        copy_units(bytes, a);
    } else {
        setmaxnreg_inc<232>();
        compute_units(state, group, a.attend);
    }
}
