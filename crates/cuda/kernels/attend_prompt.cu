// Prompts: a block takes up to 128 tokens of a chunk and one query head, 16 tokens a warp.

#define PROMPT_WARPS 8

// Brings the keys or values of a segment, by all threads.
DEVICE void fetch_segment(char *to, const Attend &a, const PromptItem &item, u32 kv_head, u32 which, i32 segment, i32 lower, i32 end) {
#pragma unroll
    for (i32 t = 0; t < SEGMENT_BLOCKS; t++) {
        const i32 base = segment * SEGMENT + t * BLOCK;
        const bool used = base + BLOCK > lower && base < end;
        const u32 block = used ? a.tables[item.table + segment * SEGMENT_BLOCKS + t] : 0;
        fetch_kv<PROMPT_WARPS * 32>(to + t * HALF_BYTES, a, block, kv_head, which, used ? lower - base : 0, used ? end - base : 0, threadIdx.x);
    }
}

KERNEL(attend_prompt, Attend, PROMPT_WARPS * 32) {
    DYNAMIC_SHARED(bytes);
    constexpr u32 BUFFER = SEGMENT_BLOCKS * HALF_BYTES;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, work = a.counts[1] * a.heads;
#pragma unroll 1
    for (u32 unit = blockIdx.x; unit < work; unit += gridDim.x) {
        const PromptItem item = a.prompts[unit / a.heads];
        const u32 head = unit % a.heads, kv_head = head / (a.heads / a.kv_heads), own = warp * 16 + lane / 4;
        const u32 row[2] = {min(own, item.rows - 1), min(own + 8, item.rows - 1)};
        Span span;
        u32 q[FRAGMENTS][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            span.upper[h] = (i32)(item.position + row[h] + 1);
            span.lower[h] = first_visible_key((u32)span.upper[h], a.window);
        }
#pragma unroll
        for (int k = 0; k < FRAGMENTS; k++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 col = k * 16 + lane % 4 * 2 + e / 2 * 8;
                q[k][e] = *(const u32 *)(a.queries + ((u64)(item.token + row[e % 2]) * a.heads + head) * HEAD_DIM + col);
            }
        // What the first and the last row of the warp see.
        const i32 first_upper = (i32)(item.position + warp * 16 + 1), last_upper = first_upper + 15;
        const i32 first_lower = first_visible_key((u32)first_upper, a.window), last_lower = first_visible_key((u32)last_upper, a.window);
        // What any row of the block sees.
        const i32 lower = first_visible_key(item.position + 1, a.window), end = (i32)(item.position + item.rows);
        const i32 first = lower / SEGMENT, last = (end + SEGMENT - 1) / SEGMENT;
        auto keys_at = [&](i32 s) { return bytes + s % PROMPT_STAGES * BUFFER; };
        auto values_at = [&](i32 s) { return bytes + (PROMPT_STAGES + s % PROMPT_STAGES) * BUFFER; };
        auto fetch_keys = [&](i32 s) {
            if (s < last) fetch_segment(keys_at(s), a, item, kv_head, KEYS, s, lower, end);
            cp_async_commit_group();
        };
        auto fetch_values = [&](i32 s) {
            if (s < last) fetch_segment(values_at(s), a, item, kv_head, VALUES, s, lower, end);
            cp_async_commit_group();
        };
        fetch_keys(first), fetch_values(first);
        float most[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {0.0f, 0.0f}, total[HEAD_DIM / 8][4];
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) total[i][e] = 0.0f;
#pragma unroll 1
        for (i32 g = first; g < last; g++) {
            const i32 base = g * SEGMENT;
            const bool seen = base < last_upper && base + SEGMENT > first_lower;
            float s[SEGMENT_BLOCKS][4][4];
            SoftmaxState r;
            // With two stages one barrier a segment is enough: warps drift apart, and one's exponentials hide behind another's products.
            if (PROMPT_STAGES == 2) cp_async_wait_group<0>();
            else cp_async_wait_group<1>();
            __syncthreads();
            if (PROMPT_STAGES == 2) fetch_keys(g + 1), fetch_values(g + 1);
            if (seen) {
                const char *at[SEGMENT_BLOCKS];
                for (int t = 0; t < SEGMENT_BLOCKS; t++) at[t] = keys_at(g) + t * HALF_BYTES;
                multiply_keys(s, q, at);
                if (base >= last_lower && base + SEGMENT <= first_upper) softmax_segment<false>(s, r, base, span, a);
                else softmax_segment<true>(s, r, base, span, a);
            }
            if (PROMPT_STAGES == 1) {
                __syncthreads();
                fetch_keys(g + 1);
                cp_async_wait_group<1>();
                __syncthreads();
            }
            if (seen) {
                const char *at[SEGMENT_BLOCKS];
                for (int t = 0; t < SEGMENT_BLOCKS; t++) at[t] = values_at(g) + t * HALF_BYTES;
                begin_values(r);
                multiply_values(r, s, at);
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (r.most[h] != MINUS_INFINITY) {
                        Merge w = merge(most[h], r.most[h]);
                        sum[h] = merged(w, sum[h], r.sum[h]);
                        most[h] = w.most;
#pragma unroll
                        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
                            for (int e = 0; e < 2; e++) total[i][2 * h + e] = merged(w, total[i][2 * h + e], r.values[i][2 * h + e]);
                    }
            }
            if (PROMPT_STAGES == 1) {
                __syncthreads();
                fetch_values(g + 1);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (own + h * 8 < item.rows) {
                bf16 *y = a.out + ((u64)(item.token + own + h * 8) * a.heads + head) * HEAD_DIM + lane % 4 * 2;
                const float share = reciprocal_of(sum[h]);
#pragma unroll
                for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(y + i * 8) = result(make_float2(total[i][2 * h], total[i][2 * h + 1]), share);
            }
        cp_async_wait_group<0>();
        __syncthreads();
    }
}
