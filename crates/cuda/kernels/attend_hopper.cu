// The prompt kernel of `attend.cu` on Hopper's warpgroup products: the same segments, the same order of every sum, the same bits.
//
// A block takes one (item, query head) at a time. Two warpgroups compute, 64 tokens each; a third one copies:
//
//   copying     Q, K 0, K 1, V 0, K 2, V 1, ...     two slots each for queries, keys and values, across items
//   computing   q . k 0 | weights 0 | values 0 left, q . k 1, values 0 right | weights 1 | values 1 left, q . k 2, ...
//
// While one of them turns scores into weights, the other one's products run: with PING_PONG they take turns at issuing products, without
// they drift apart by themselves. With OVERLAP a warpgroup has products of its own under way as well: the scores of the next segment are
// computed beside the weighted values of this one, in halves of 64 columns; the left half is merged into the total behind the scores, and the
// next segment's maxima are looked for beside the right half. A thread has 64 scores, 32 registers of packed weights, 32 sums of a half, and
// the total: 192 of its 240 registers, with heads of 128 values.
//
// Why so much must overlap: by the rates of its units, a multiprocessor needs for 128 rows of a segment 2,048 clocks for products (heads of
// 128 values), 1,088 for exponentials, and about 1,300 to issue all other instructions.
//
// HEAD_DIM is 64 or 128. PING_PONG and OVERLAP are set at compile time, too. Keys, values and queries lie in panels of 64 columns and 128
// rows (`hopper.cuh`).

#define GROUP 128  // threads of a warpgroup
#define GROUP_ROWS 64
#define COMPUTING 2  // warpgroups
#define PANEL (SEGMENT * 128)
#define PANELS (HEAD_DIM / 64)
#define TILE_BYTES (PANELS * PANEL)  // keys or values of a segment, or queries of an item
#define EIGHT_ROWS 1024
#define PIECES (HEAD_DIM / 8)
#define ROWS_AT_ONCE (GROUP / PIECES)  // that the copying warpgroup's threads copy a piece each of

// Two slots that are filled and emptied in turn.
struct Slots {
    char *bytes;
    u64 *full, *empty;  // a barrier for each slot
    u32 turn;           // how often one was used
};
DEVICE char *slot_bytes(const Slots &s) { return s.bytes + s.turn % 2 * TILE_BYTES; }
DEVICE void await_full(const Slots &s) { barrier_wait(s.full + s.turn % 2, s.turn / 2 % 2); }
// A computing warp has read all that it needs of the slot.
DEVICE void release(Slots &s) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(s.empty + s.turn % 2);
    s.turn++;
}
struct Memory {
    Slots queries, keys, values;
};
DEVICE Memory divide(char *bytes) {
    u64 *barriers = (u64 *)(bytes + 6 * TILE_BYTES);
    auto slots = [&](int n) { return Slots{bytes + n * 2 * TILE_BYTES, barriers + n * 4, barriers + n * 4 + 2, 0}; };
    return {slots(0), slots(1), slots(2)};
}
DEVICE void create_barriers(const Slots &s) {
    for (int slot = 0; slot < 2; slot++) barrier_create(s.full + slot, GROUP), barrier_create(s.empty + slot, COMPUTING * GROUP / 32);
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
    u.lower = lowest(u.item.position + 1, a.window), u.end = (i32)(u.item.position + u.item.rows);
    u.first = u.lower / SEGMENT, u.last = (u.end + SEGMENT - 1) / SEGMENT;
    return u;
}
// Calls `work` with the index of each of this block's units. They come longest first: taken to and fro, every block gets about as many
// segments, and neighbours, which share keys, run at the same time.
template <class Work> DEVICE void for_units(const Attend &a, Work work) {
    const u32 count = a.counts[1] * a.heads;
#pragma unroll 1
    for (u32 round = 0, begin = 0; begin < count; round++, begin += gridDim.x) {
        const u32 index = begin + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        if (index < count) work(index);
    }
}

// --- copying ---

// Slots that were filled but not announced: their copies may be under way.
struct Unannounced {
    u64 *full[2];
    u32 count;
};
DEVICE void announce(Unannounced &u) {
    copy_wait<0>();
    publish_writes();
    if (u.count > 0) barrier_arrive(u.full[0]);
    if (u.count > 1) barrier_arrive(u.full[1]);
    u.count = 0;
}
// The next slot, as soon as it is empty. A thread that has to wait for it announces what it brought before.
DEVICE char *await_empty(const Slots &s, Unannounced &u) {
    u64 *empty = s.empty + s.turn % 2;
    const u32 parity = (s.turn / 2 + 1) % 2;
    if (u.count == 2 || !barrier_passed(empty, parity)) announce(u);
    barrier_wait(empty, parity);
    return slot_bytes(s);
}
DEVICE void filled(Slots &s, Unannounced &u) {
    copy_commit();
    u.full[1] = u.count == 1 ? s.full + s.turn % 2 : u.full[1];
    u.full[0] = u.count == 0 ? s.full + s.turn % 2 : u.full[0];
    u.count++, s.turn++;
}
// Where a thread's piece of its first row lies in a tile; the next of its rows are ROWS_AT_ONCE * 128 bytes further on, in the same bank.
DEVICE char *first_piece(char *tile) {
    const u32 thread = threadIdx.x % GROUP, row = thread / PIECES, piece = thread % PIECES;
    return tile + piece / 8 * PANEL + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
}
DEVICE void bring_queries(Slots &s, Unannounced &u, const Attend &a, const Unit &unit) {
    const u32 thread = threadIdx.x % GROUP;
    const bf16 *from = a.queries + ((u64)unit.item.token * a.heads + unit.head) * HEAD_DIM + thread % PIECES * 8;
    char *to = first_piece(await_empty(s, u));
#pragma unroll
    for (u32 i = 0; i < SEGMENT / ROWS_AT_ONCE; i++) {
        const u32 row = min(i * ROWS_AT_ONCE + thread / PIECES, unit.item.rows - 1);
        copy16(to + i * ROWS_AT_ONCE * 128, from + (u64)row * a.heads * HEAD_DIM, true);
    }
    filled(s, u);
}
// Keys or values of a segment; tokens outside of what the unit sees become zeros.
DEVICE void bring_tile(Slots &s, Unannounced &u, const Attend &a, const Unit &unit, u32 which, i32 segment) {
    const u32 thread = threadIdx.x % GROUP, row = thread / PIECES, kv_head = unit.head / (a.heads / a.kv_heads);
    const i32 base = segment * SEGMENT;
    u32 blocks[TILES];
#pragma unroll
    for (i32 t = 0; t < TILES; t++) {
        const bool used = base + (t + 1) * BLOCK > unit.lower && base + t * BLOCK < unit.end;
        blocks[t] = used ? a.tables[unit.item.table + segment * TILES + t] : 0;
    }
    const bf16 *kv = a.kv + (kv_head * 2 + which) * (BLOCK * HEAD_DIM) + row * HEAD_DIM + thread % PIECES * 8;
    char *to = first_piece(await_empty(s, u));
#pragma unroll
    for (u32 i = 0; i < SEGMENT / ROWS_AT_ONCE; i++) {
        const u32 first = i * ROWS_AT_ONCE;
        const i32 key = base + (i32)(first + row);
        const bf16 *from = kv + (u64)blocks[first / BLOCK] * a.kv_heads * (2 * BLOCK * HEAD_DIM) + first % BLOCK * HEAD_DIM;
        copy16(to + first * 128, from, key >= unit.lower && key < unit.end);
    }
    filled(s, u);
}
DEVICE void copy_units(Memory memory, const Attend &a) {
    Unannounced u = {{nullptr, nullptr}, 0};
    for_units(a, [&](u32 index) {
        const Unit unit = unit_at(a, index);
        bring_queries(memory.queries, u, a, unit);
        bring_tile(memory.keys, u, a, unit, KEYS, unit.first);
#pragma unroll 1
        for (i32 g = unit.first; g < unit.last; g++) {
            if (g + 1 < unit.last) bring_tile(memory.keys, u, a, unit, KEYS, g + 1);
            bring_tile(memory.values, u, a, unit, VALUES, g);
        }
    });
    announce(u);
}

// --- computing ---

// Turns at issuing products: one for every segment of a unit, seen or not.
DEVICE void await_turn(u32 group) {
    if (PING_PONG) numbered_wait(1 + group, COMPUTING * GROUP);
}
DEVICE void pass_turn(u32 group) {
    if (PING_PONG) numbered_arrive(1 + (group ^ 1), COMPUTING * GROUP);
}
// The first of a thread's two rows among its warpgroup's.
DEVICE u32 first_row() { return threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4; }
// What a warpgroup sees of a unit.
struct Sight {
    i32 first, last;                // segments
    i32 every_lower, every_upper;   // keys that all of its rows see
    u32 after;                      // keys up to a thread's first row; its second row is eight further on
};
DEVICE Sight sight_of(const Attend &a, const Unit &unit, u32 group) {
    const u32 begin = group * GROUP_ROWS, rows = unit.item.rows;
    const u32 after_first = unit.item.position + begin + 1, after_last = unit.item.position + min(begin + GROUP_ROWS, rows);
    Sight s = {unit.last, unit.last, lowest(after_last, a.window), (i32)after_first, after_first + first_row()};
    if (begin < rows) s.first = lowest(after_first, a.window) / SEGMENT, s.last = ((i32)after_last + SEGMENT - 1) / SEGMENT;
    return s;
}
// What a thread's rows see. Rows beyond the unit's own see zeros, and are never written.
DEVICE Span span_of(const Sight &sight, const Attend &a) {
    return {{lowest(sight.after, a.window), lowest(sight.after + 8, a.window)}, {(i32)sight.after, (i32)sight.after + 8}};
}
// Rows so far: maximum and sum of each of a thread's two rows, and the weighted values.
typedef Rows Total;
DEVICE void issue_scores(float (&s)[TILES][4][4], u64 queries, const char *keys) {
    const u64 k = panel_descriptor(keys, 0, EIGHT_ROWS);
    product_begin();
#pragma unroll
    for (int n = 0; n < FRAGMENTS; n++) {
        const u32 at = n / 4 * PANEL + n % 4 * 32;
        multiply_panels(s, further(queries, at), further(k, at), n > 0);
    }
    product_commit();
}
DEVICE void scores_ready(float (&s)[TILES][4][4]) {
#pragma unroll
    for (int t = 0; t < TILES; t++) product_results(s[t]);
}
DEVICE void issue_values(float (&v)[8][4], const u32 (&p)[TILES * 2][4], const char *panel) {
    const u64 b = panel_descriptor(panel, PANEL, EIGHT_ROWS);
    product_begin();
#pragma unroll
    for (int n = 0; n < TILES * 2; n++) multiply_panel(v, p[n], further(b, n * 2 * EIGHT_ROWS), n > 0);
    product_commit();
}
// How a segment is merged into the total; rows that see nothing of it stay as they are.
struct Merges {
    Merge row[2];
    bool some[2];
};
DEVICE Merges merge_scales(Total &total, const Rows &r) {
    Merges m;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        m.some[h] = r.most[h] != NONE;
        m.row[h] = merge(total.most[h], r.most[h]);
        if (m.some[h]) total.sum[h] = merged(m.row[h], total.sum[h], r.sum[h]), total.most[h] = m.row[h].most;
    }
    return m;
}
DEVICE void merge_panel(Total &total, int panel, const Merges &m, const float (&v)[8][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (m.some[h])
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &t = total.values[panel * 8 + i][2 * h + e];
                    t = merged(m.row[h], t, v[i][2 * h + e]);
                }
}
// The weighted values of a segment, merged into the total panel by panel.
DEVICE void add_segment(Total &total, const u32 (&p)[TILES * 2][4], const Merges &m, Memory &memory, u32 group) {
    float v[8][4];
    await_turn(group);
    await_full(memory.values);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
        issue_values(v, p, slot_bytes(memory.values) + panel * PANEL);
        if (panel == PANELS - 1) pass_turn(group);
        product_wait<0>();
        product_results(v);
        merge_panel(total, panel, m, v);
    }
    release(memory.values);
}
// The same, with the scores of the next segment on the way. The last panel's products are left running, for `finish_segment`.
DEVICE void begin_segment(float (&v)[8][4], Total &total, float (&s)[TILES][4][4], const u32 (&p)[TILES * 2][4], const Merges &m, Memory &memory, u64 queries, u32 group) {
    await_turn(group);
    await_full(memory.values);
    const char *values = slot_bytes(memory.values);
    if (PANELS == 2) issue_values(v, p, values);
    await_full(memory.keys);
    issue_scores(s, queries, slot_bytes(memory.keys));
    if (PANELS == 2) {
        product_wait<1>();
        product_results(v);
        merge_panel(total, 0, m, v);
    }
    issue_values(v, p, values + (PANELS - 1) * PANEL);
    pass_turn(group);
    product_wait<1>();
    scores_ready(s);
    release(memory.keys);
}
DEVICE void finish_segment(float (&v)[8][4], Total &total, const Merges &m, Memory &memory) {
    product_wait<0>();
    product_results(v);
    release(memory.values);
    merge_panel(total, PANELS - 1, m, v);
}
DEVICE void compute_scores(float (&s)[TILES][4][4], Memory &memory, u64 queries) {
    await_full(memory.keys);
    issue_scores(s, queries, slot_bytes(memory.keys));
    product_wait<0>();
    scores_ready(s);
    release(memory.keys);
}
// Segments that nobody in the warpgroup sees.
DEVICE void skip_segments(i32 count, Memory &memory, u32 group) {
#pragma unroll 1
    for (; count > 0; count--) {
        await_turn(group);
        pass_turn(group);
        await_full(memory.keys);
        release(memory.keys);
        await_full(memory.values);
        release(memory.values);
    }
}
DEVICE void score_segment(float (&s)[TILES][4][4], Rows &r, i32 segment, const Sight &sight, const Attend &a) {
    const i32 base = segment * SEGMENT;
    const bool all = base >= sight.every_lower && base + SEGMENT <= sight.every_upper;
    const Span span = span_of(sight, a);
    if (all) score_row<false>(s, r, 0, base, span, a), score_row<false>(s, r, 1, base, span, a);
    else score_row<true>(s, r, 0, base, span, a), score_row<true>(s, r, 1, base, span, a);
}
DEVICE Merges weigh_segment(u32 (&p)[TILES * 2][4], float (&s)[TILES][4][4], Rows &r, Total &total) {
    weigh_row(s, r, 0), weigh_row(s, r, 1);
#pragma unroll
    for (int n = 0; n < TILES * 2; n++) pack_weights(p[n], s[n / 2], n % 2);
    return merge_scales(total, r);
}
DEVICE void attend_segments(Total &total, const Sight &sight, Memory &memory, u64 queries, u32 group, const Attend &a) {
    float s[TILES][4][4], v[8][4];
    u32 p[TILES * 2][4];
    Rows r;
    compute_scores(s, memory, queries);
    score_segment(s, r, sight.first, sight, a);
#pragma unroll 1
    for (i32 g = sight.first + 1; g < sight.last; g++) {
        const Merges m = weigh_segment(p, s, r, total);
        if (OVERLAP) begin_segment(v, total, s, p, m, memory, queries, group);
        else add_segment(total, p, m, memory, group), compute_scores(s, memory, queries);
        if (OVERLAP && CAPPED) finish_segment(v, total, m, memory);  // caps need the registers
        score_segment(s, r, g, sight, a);
        if (OVERLAP && !CAPPED) finish_segment(v, total, m, memory);
    }
    const Merges m = weigh_segment(p, s, r, total);
    add_segment(total, p, m, memory, group);
}
DEVICE void write_total(const Total &total, const Attend &a, const Unit &unit, u32 group) {
    const u32 own = group * GROUP_ROWS + first_row();
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (own + h * 8 < unit.item.rows) write_row(a.out + ((u64)(unit.item.token + own + h * 8) * a.heads + unit.head) * HEAD_DIM, total, h);
}
DEVICE void compute_units(Memory memory, u32 group, const Attend &a) {
    if (group == 1) pass_turn(group);
    for_units(a, [&](u32 index) {
        const Unit unit = unit_at(a, index);
        const Sight sight = sight_of(a, unit, group);
        Total total;
#pragma unroll
        for (int h = 0; h < 2; h++) total.most[h] = NONE, total.sum[h] = 0.0f;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) total.values[i][e] = 0.0f;
        await_full(memory.queries);
        const u64 queries = panel_descriptor(slot_bytes(memory.queries) + group * (GROUP_ROWS * 128), 0, EIGHT_ROWS);
        skip_segments(sight.first - unit.first, memory, group);
        if (sight.first < sight.last) attend_segments(total, sight, memory, queries, group, a);
        skip_segments(unit.last - sight.last, memory, group);
        release(memory.queries);
        write_total(total, a, unit_at(a, index), group);
    });
    if (group == 0) await_turn(group);
}

KERNEL(attend_prompt_hopper, Attend, (COMPUTING + 1) * GROUP) {
    DYNAMIC_PANELS(bytes);
    const Memory memory = divide(bytes);
    const u32 group = __shfl_sync(LANES_ALL, threadIdx.x / GROUP, 0);
    if (threadIdx.x == 0) create_barriers(memory.queries), create_barriers(memory.keys), create_barriers(memory.values);
    __syncthreads();
    if (group == COMPUTING) {
        fewer_registers<24>();
        copy_units(memory, a);
    } else {
        more_registers<240>();
        compute_units(memory, group, a);
    }
}
