// Prompts: a block takes up to 128 tokens of a chunk and one query head, 16 tokens a warp.

#define PROMPT_WARPS 8

// Brings the keys or values of a segment, by all threads.
DEVICE void bring_segment(char *to, const Attend &a, const PromptItem &item, u32 kv_head, u32 which, i32 segment, i32 lower, i32 end) {
#pragma unroll
    for (i32 t = 0; t < TILES; t++) {
        const i32 base = segment * SEGMENT + t * BLOCK;
        const bool used = base + BLOCK > lower && base < end;
        const u32 block = used ? a.tables[item.table + segment * TILES + t] : 0;
        bring<PROMPT_WARPS * 32>(to + t * HALF_BYTES, a, block, kv_head, which, used ? lower - base : 0, used ? end - base : 0, threadIdx.x);
    }
}

KERNEL(attend_prompt, Attend, PROMPT_WARPS * 32) {
    DYNAMIC_SHARED(bytes);
    constexpr u32 BUFFER = TILES * HALF_BYTES;
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
            span.lower[h] = lowest((u32)span.upper[h], a.window);
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
        const i32 first_lower = lowest((u32)first_upper, a.window), last_lower = lowest((u32)last_upper, a.window);
        // What any row of the block sees.
        const i32 lower = lowest(item.position + 1, a.window), end = (i32)(item.position + item.rows);
        const i32 first = lower / SEGMENT, last = (end + SEGMENT - 1) / SEGMENT;
        auto keys_at = [&](i32 s) { return bytes + s % PROMPT_STAGES * BUFFER; };
        auto values_at = [&](i32 s) { return bytes + (PROMPT_STAGES + s % PROMPT_STAGES) * BUFFER; };
        auto bring_keys = [&](i32 s) {
            if (s < last) bring_segment(keys_at(s), a, item, kv_head, KEYS, s, lower, end);
            copy_commit();
        };
        auto bring_values = [&](i32 s) {
            if (s < last) bring_segment(values_at(s), a, item, kv_head, VALUES, s, lower, end);
            copy_commit();
        };
        bring_keys(first), bring_values(first);
        float most[2] = {NONE, NONE}, sum[2] = {0.0f, 0.0f}, total[HEAD_DIM / 8][4];
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) total[i][e] = 0.0f;
#pragma unroll 1
        for (i32 g = first; g < last; g++) {
            const i32 base = g * SEGMENT;
            const bool seen = base < last_upper && base + SEGMENT > first_lower;
            float s[TILES][4][4];
            Rows r;
            // With two stages one barrier a segment is enough: warps drift apart, and one's exponentials hide behind another's products.
            if (PROMPT_STAGES == 2) copy_wait<0>();
            else copy_wait<1>();
            __syncthreads();
            if (PROMPT_STAGES == 2) bring_keys(g + 1), bring_values(g + 1);
            if (seen) {
                const char *at[TILES];
                for (int t = 0; t < TILES; t++) at[t] = keys_at(g) + t * HALF_BYTES;
                multiply_keys(s, q, at);
                if (base >= last_lower && base + SEGMENT <= first_upper) soften<false>(s, r, base, span, a);
                else soften<true>(s, r, base, span, a);
            }
            if (PROMPT_STAGES == 1) {
                __syncthreads();
                bring_keys(g + 1);
                copy_wait<1>();
                __syncthreads();
            }
            if (seen) {
                const char *at[TILES];
                for (int t = 0; t < TILES; t++) at[t] = values_at(g) + t * HALF_BYTES;
                begin_values(r);
                multiply_values(r, s, at);
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (r.most[h] != NONE) {
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
                bring_values(g + 1);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (own + h * 8 < item.rows) {
                bf16 *y = a.out + ((u64)(item.token + own + h * 8) * a.heads + head) * HEAD_DIM + lane % 4 * 2;
                const float share = share_of(sum[h]);
#pragma unroll
                for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(y + i * 8) = result(make_float2(total[i][2 * h], total[i][2 * h + 1]), share);
            }
        copy_wait<0>();
        __syncthreads();
    }
}
