/* Forgetting attention of one block of queries, forward and backward, for one instruction set.

   `compiled_attention.c` includes this file once for each set, with NAME (what a name ends in), TARGET, LANES (numbers in
   a vector), VECTORS (of queries in a block), ROWS (of keys or channels in a product) and LARGER (the larger one, the
   second where one is NaN). Lanes are queries, so softmax needs no step across lanes. */

#define BLOCK (LANES * VECTORS)
#define TILE (BLOCK * TILE_BLOCKS)
#define INLINE static inline __attribute__((always_inline)) TARGET

typedef float NAME(Vector) __attribute__((vector_size(4 * LANES), may_alias));
typedef uint32_t NAME(Bits) __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t NAME(Places) __attribute__((vector_size(4 * LANES), may_alias));
#define Vector NAME(Vector)
#define Bits NAME(Bits)
#define Places NAME(Places)

/* What one direction needs for each query of the block. */
typedef struct {
    float faded[BLOCK], rest[BLOCK]; /* log2 of the gates from the block's edge, as two numbers */
    float top[BLOCK];                /* taken off every score; 0 unless scores may overflow */
    float sum[BLOCK];                /* of the weights so far */
    double edge;                     /* log2 of the gates up to the block's edge */
} NAME(Side) __attribute__((aligned(64)));
#define Side NAME(Side)

INLINE Vector NAME(all)(float value) { return value - (Vector){0}; }

INLINE Vector NAME(load)(const float *from) { return *(const Vector *)from; }

INLINE void NAME(store)(float *to, Vector values) { *(Vector *)to = values; }

/* 2^x with a relative error of 1e-7; exactly 0 from -127 down. */
INLINE Vector NAME(power)(Vector x) {
    x = LARGER(NAME(all)(-127.0f), x);
    const Vector magic = NAME(all)(12582912.0f); /* 1.5 * 2^23: what is added to it is rounded to a whole number */
    const Vector whole = x + magic, part = x - (whole - magic);
    Vector value = NAME(all)(0.00015345810970757157f);
    value = value * part + NAME(all)(0.0013399930903688073f);
    value = value * part + NAME(all)(0.009618489071726799f);
    value = value * part + NAME(all)(0.05550328642129898f);
    value = value * part + NAME(all)(0.24022646248340607f);
    value = value * part + NAME(all)(0.6931471824645996f);
    value = value * part + NAME(all)(1.0f);
    return (Vector)((Bits)value + ((Bits)whole << 23));
}

/* sums[row][column] += left(row, step) * right(step, column): the one matrix product behind all steps. */
INLINE void NAME(multiply)(Vector *sums, const int rows, const int columns, const float *left, int64_t left_row,
                           int64_t left_step, const float *right, int64_t right_step, int64_t steps) {
    for (int64_t step = 0; step < steps; step++) {
        Vector values[VECTORS > 2 ? VECTORS : 2];
        UNROLL for (int column = 0; column < columns; column++)
            values[column] = NAME(load)(right + step * right_step + column * LANES);
        UNROLL for (int row = 0; row < rows; row++) {
            const Vector factor = NAME(all)(left[row * left_row + step * left_step]);
            UNROLL for (int column = 0; column < columns; column++)
                sums[row * columns + column] += factor * values[column];
        }
    }
}

/* columns[channel][row] = rows[row][channel] * factors[row]; 0 from row `many` on. */
INLINE void NAME(turn_in)(float *columns, const float *rows, int64_t step, const float *factors, int64_t many,
                          const int64_t width) {
    static const float nothing[WIDEST];
    for (int64_t row = 0; row < BLOCK; row += 4) {
        const float *from[4];
        for (int i = 0; i < 4; i++) from[i] = row + i < many ? rows + (row + i) * step : nothing;
        for (int64_t channel = 0; channel < width; channel += 4) {
            Four block[4];
            UNROLL for (int i = 0; i < 4; i++) block[i] = *(const Four *)(from[i] + channel) * factors[row + i];
            TRANSPOSE(block);
            UNROLL for (int i = 0; i < 4; i++) *(Four *)(columns + (channel + i) * BLOCK + row) = block[i];
        }
    }
}

/* rows[row][channel] = columns[channel][row] * factors[row] for the first `many` rows. */
INLINE void NAME(turn_out)(float *rows, int64_t step, const float *columns, const float *factors, int64_t many,
                           const int64_t width) {
    for (int64_t row = 0; row < many; row += 4)
        for (int64_t channel = 0; channel < width; channel += 4) {
            Four block[4];
            UNROLL for (int i = 0; i < 4; i++) block[i] = *(const Four *)(columns + (channel + i) * BLOCK + row);
            TRANSPOSE(block);
            for (int i = 0; i < 4 && row + i < many; i++)
                *(Four *)(rows + (row + i) * step + channel) = block[i] * factors[row + i];
        }
}

/* Queries with their channels down, and the largest score that each can have. True where 2^score may overflow. */
INLINE int NAME(load_queries)(const Head *head, int64_t start, int64_t asked, float *queries, float *reach,
                              const int64_t width) {
    float factors[BLOCK];
    for (int i = 0; i < BLOCK; i++) factors[i] = 1;
    NAME(turn_in)(queries, head->q + start * head->q_step, head->q_step, factors, asked, width);
    int careful = 0;
    for (int vector = 0; vector < VECTORS; vector++) {
        Vector square = {0};
        for (int64_t channel = 0; channel < width; channel++) {
            const Vector values = NAME(load)(queries + channel * BLOCK + vector * LANES);
            square += values * values;
        }
        for (int lane = 0; lane < LANES; lane++) {
            const float most = sqrtf(square[lane]) * head->longest * head->scale2;
            reach[vector * LANES + lane] = most;
            careful |= !(most <= SAFE) && vector * LANES + lane < asked;
        }
    }
    return careful;
}

/* Products of ROWS keys with the queries, in two sums: one long sum is less exact. */
INLINE void NAME(multiply_halves)(Vector *sums, const float *queries, const float *keys, const int64_t width) {
    Vector others[ROWS * VECTORS] = {{0}};
    UNROLL for (int i = 0; i < ROWS * VECTORS; i++) sums[i] = (Vector){0};
    NAME(multiply)(sums, ROWS, VECTORS, keys, width, 1, queries, BLOCK, width / 2);
    NAME(multiply)(others, ROWS, VECTORS, keys + width / 2, width, 1, queries + width / 2 * BLOCK, BLOCK, width / 2);
    UNROLL for (int i = 0; i < ROWS * VECTORS; i++) sums[i] += others[i];
}

/* Products of ROWS keys with the queries, and what rounding took off each sum. */
INLINE void NAME(multiply_finely)(float *products, float *rests, const float *queries, const float *keys,
                                  const int64_t width) {
    for (int row = 0; row < ROWS; row += 2) {
        Vector sums[2 * VECTORS] = {{0}}, lost[2 * VECTORS] = {{0}};
        for (int64_t channel = 0; channel < width; channel++)
            UNROLL for (int i = 0; i < 2 * VECTORS; i++) {
                const Vector factor = NAME(all)(keys[(row + i / VECTORS) * width + channel]);
                const Vector value = NAME(load)(queries + channel * BLOCK + i % VECTORS * LANES);
                const Vector sum = sums[i] + factor * value;
                lost[i] += factor * value + (sums[i] - sum);
                sums[i] = sum;
            }
        for (int i = 0; i < 2 * VECTORS; i++) NAME(store)(products + row * BLOCK + i * LANES, sums[i]);
        for (int i = 0; i < 2 * VECTORS; i++) NAME(store)(rests + row * BLOCK + i * LANES, lost[i]);
    }
}

/* Scores of the block's own events among each other, without gates: both directions use them. With `fine` as two numbers. */
INLINE void NAME(score_block)(const float *queries, const float *keys, int64_t asked, float *scores, float *fine,
                              const int64_t width) {
    for (int64_t key = 0; key < asked; key += ROWS) {
        if (fine) {
            NAME(multiply_finely)(scores + key * BLOCK, fine + key * BLOCK, queries, keys + key * width, width);
            continue;
        }
        Vector sums[ROWS * VECTORS];
        NAME(multiply_halves)(sums, queries, keys + key * width, width);
        for (int i = 0; i < ROWS * VECTORS; i++) NAME(store)(scores + key * BLOCK + i * LANES, sums[i]);
    }
}

INLINE void NAME(open_side)(Side *side, const Head *head, int64_t start, int64_t asked, int after) {
    const double *faded = head->faded;
    side->edge = after ? faded[start + asked] : faded[start];
    for (int64_t i = 0; i < BLOCK; i++) {
        const int64_t event = start + (i < asked ? i : asked - 1);
        const double value = after ? side->edge - faded[event] : faded[event + 1] - side->edge;
        side->faded[i] = (float)value;
        side->rest[i] = (float)(value - side->faded[i]);
        side->top[i] = side->sum[i] = 0;
    }
}

/* Log2 of the gates between the block's edge and each key; far below 0 for what fills the last ROWS. */
INLINE void NAME(fade_keys)(float *biases, const Head *head, const Side *side, int64_t first, int64_t many, int after) {
    const double *faded = head->faded + first;
    if (after)
        for (int64_t key = 0; key < many; key++) biases[key] = (float)(faded[key] - side->edge);
    else
        for (int64_t key = 0; key < many; key++) biases[key] = (float)(side->edge - faded[key + 1]);
    for (int64_t key = many; key % ROWS; key++) biases[key] = HIDDEN;
}

/* Where a score is two numbers, they are the product without scale and gates, and all the rest. */
typedef struct {
    float *scores, *fine; /* `fine` is NULL where a score is one number */
} NAME(Scores);
#define Scores NAME(Scores)

/* From scores without gates to scores with them, for the events of the block itself. */
INLINE void NAME(fade_block)(const Head *head, const Side *side, Scores own, Scores tile, int64_t asked, int after) {
    Places lanes;
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane;
    const Bits hidden = (Bits)NAME(all)(HIDDEN);
    for (int64_t key = 0; key < asked; key++)
        for (int vector = 0; vector < VECTORS; vector++) {
            const int64_t place = vector * LANES, to = key * BLOCK + place;
            const Vector bias = (NAME(load)(side->faded + place) - NAME(all)(side->faded[key])) +
                                (NAME(load)(side->rest + place) - NAME(all)(side->rest[key]));
            const Vector part = NAME(load)((tile.fine ? own.fine : own.scores) + to) * NAME(all)(head->scale2) + bias;
            const int32_t self = (int32_t)(key - place);
            const Bits seen = (Bits)(after ? lanes <= self : lanes >= self);
            NAME(store)((tile.fine ? tile.fine : tile.scores) + to, (Vector)(((Bits)part & seen) | (hidden & ~seen)));
            if (tile.fine) NAME(store)(tile.scores + to, (Vector)((Bits)NAME(load)(own.scores + to) & seen));
        }
    for (int64_t key = asked; key % ROWS; key++)
        for (int vector = 0; vector < VECTORS; vector++) {
            const int64_t to = key * BLOCK + vector * LANES;
            NAME(store)(tile.scores + to, tile.fine ? (Vector){0} : NAME(all)(HIDDEN));
            if (tile.fine) NAME(store)(tile.fine + to, NAME(all)(HIDDEN));
        }
}

/* Scores of ROWS keys, gates included, into registers. */
INLINE void NAME(score_rows)(Vector *scores, const Side *side, float scale, const float *queries, const float *keys,
                             const float *biases, const int64_t width) {
    NAME(multiply_halves)(scores, queries, keys, width);
    UNROLL for (int row = 0; row < ROWS; row++)
        UNROLL for (int vector = 0; vector < VECTORS; vector++)
            scores[row * VECTORS + vector] = scores[row * VECTORS + vector] * NAME(all)(scale) +
                                             (NAME(all)(biases[row]) + NAME(load)(side->faded + vector * LANES));
}

/* A score with `top` taken off: of two numbers the first is off by no rounding. */
INLINE Vector NAME(score_above)(Scores tile, int64_t place, float scale, Vector top) {
    if (tile.fine)
        return (NAME(load)(tile.scores + place) * NAME(all)(scale) - top) + NAME(load)(tile.fine + place);
    return NAME(load)(tile.scores + place) - top;
}

/* From scores to weights, in place. */
INLINE void NAME(weigh_scores)(Side *side, float scale, Scores tile, int64_t many, int after) {
    for (int vector = 0; vector < VECTORS; vector++) {
        const Vector top = NAME(load)(side->top + vector * LANES);
        Vector sum = {0};
        for (int64_t step = 0; step < many; step++) { /* the smallest first */
            const int64_t place = (after ? many - 1 - step : step) * BLOCK + vector * LANES;
            const Vector score = NAME(score_above)(tile, place, scale, top);
            const Vector weight = NAME(power)(score) + (score - score); /* NaN stays NaN */
            NAME(store)(tile.scores + place, weight);
            sum += weight;
        }
        NAME(store)(side->sum + vector * LANES, NAME(load)(side->sum + vector * LANES) + sum);
    }
}

/* Raise `top` to the largest score so far and bring what was summed below it. */
INLINE void NAME(raise_top)(Side *side, float scale, Scores tile, int64_t many, float *seen, const int64_t width) {
    for (int vector = 0; vector < VECTORS; vector++) {
        const int64_t place = vector * LANES;
        const Vector before = NAME(load)(side->top + place);
        Vector top = before;
        for (int64_t key = 0; key < many; key++)
            top = LARGER(top, NAME(score_above)(tile, key * BLOCK + place, scale, (Vector){0}));
        const Vector factor = NAME(power)(before - top);
        NAME(store)(side->top + place, top);
        NAME(store)(side->sum + place, NAME(load)(side->sum + place) * factor);
        for (int64_t channel = 0; channel < width; channel++) {
            float *values = seen + channel * BLOCK + place;
            NAME(store)(values, NAME(load)(values) * factor);
        }
    }
}

/* Weights of a tile of keys, for scores that cannot overflow. */
INLINE void NAME(weigh)(Side *side, float scale, const float *queries, const float *keys, const float *biases, float *tile,
                        int64_t many, const int64_t width) {
    Vector sum[VECTORS] = {{0}};
    for (int64_t key = 0; key < many; key += ROWS) {
        Vector scores[ROWS * VECTORS];
        NAME(score_rows)(scores, side, scale, queries, keys + key * width, biases + key, width);
        UNROLL for (int row = 0; row < ROWS; row++)
            UNROLL for (int vector = 0; vector < VECTORS; vector++) {
                const Vector weight = NAME(power)(scores[row * VECTORS + vector] - NAME(load)(side->top + vector * LANES));
                sum[vector] += weight;
                NAME(store)(tile + (key + row) * BLOCK + vector * LANES, weight);
            }
    }
    for (int vector = 0; vector < VECTORS; vector++)
        NAME(store)(side->sum + vector * LANES, NAME(load)(side->sum + vector * LANES) + sum[vector]);
}

/* Scores of a tile of keys as two numbers, where they may be large. */
INLINE void NAME(score_finely)(const Side *side, float scale, const float *queries, const float *keys, const float *biases,
                               Scores tile, int64_t many, const int64_t width) {
    for (int64_t key = 0; key < many; key += ROWS)
        NAME(multiply_finely)(tile.scores + key * BLOCK, tile.fine + key * BLOCK, queries, keys + key * width, width);
    for (int64_t key = 0; key < many; key++)
        for (int vector = 0; vector < VECTORS; vector++) {
            float *fine = tile.fine + key * BLOCK + vector * LANES;
            const Vector gates = NAME(all)(biases[key]) + NAME(load)(side->faded + vector * LANES);
            NAME(store)(fine, NAME(load)(fine) * NAME(all)(scale) + gates);
        }
}

/* sums[channel][query] += values(key, channel) * tile[key][query], summed within the tile first, far keys before near
   ones: one long sum is less exact, and so is one that begins with the largest. */
INLINE void NAME(gather)(float *sums, const float *values, const float *tile, int64_t many, int after,
                         const int64_t width) {
    const int64_t step = after ? -1 : 1, first = after ? many - 1 : 0;
    values += first * width, tile += first * BLOCK;
    for (int64_t channel = 0; channel < width; channel += ROWS) {
        Vector added[ROWS * VECTORS] = {{0}};
        NAME(multiply)(added, ROWS, VECTORS, values + channel, 1, step * width, tile, step * BLOCK, many);
        for (int i = 0; i < ROWS * VECTORS; i++) {
            float *place = sums + channel * BLOCK + i * LANES;
            NAME(store)(place, NAME(load)(place) + added[i]);
        }
    }
}

/* True where all keys from `nearest` on weigh too little to change the sum of any query. */
INLINE int NAME(rest_is_nothing)(const Head *head, const Side *side, const float *reach, int64_t asked, double nearest,
                                 int64_t left) {
    if (!head->stops) return 0;
    const float margin = (float)nearest + log2f((float)left) + NOTHING;
    for (int64_t i = 0; i < asked; i++) {
        int exponent;
        frexpf(side->sum[i], &exponent);
        if (!(side->faded[i] + reach[i] - side->top[i] + margin < (float)(exponent - 1))) return 0;
    }
    return 1;
}

/* Keys of the next tile, nearest first, where `done` of `all` are done. */
INLINE int64_t NAME(next_tile)(const Head *head, const Side *side, int64_t start, int64_t asked, int after, int64_t done,
                               int64_t all, int64_t *many, double *nearest) {
    *many = all - done < TILE ? all - done : TILE;
    const int64_t first = after ? start + asked + done : start - done - *many;
    *nearest = after ? head->faded[first] - side->edge : side->edge - head->faded[first + *many];
    return first;
}

INLINE int64_t NAME(round_up)(int64_t many) { return (many + ROWS - 1) / ROWS * ROWS; }

/* What the queries of a block see of the events before them, or after. */
INLINE void NAME(see)(const Head *head, Side *side, int64_t start, int64_t asked, int after, const float *queries,
                      Scores own, const float *reach, Scores tile, float *seen, const int64_t width) {
    float biases[TILE + ROWS];
    memset(seen, 0, sizeof(float) * BLOCK * (size_t)width);
    NAME(open_side)(side, head, start, asked, after);
    NAME(fade_block)(head, side, own, tile, asked, after);
    if (tile.fine) {
        for (int i = 0; i < BLOCK; i++) side->top[i] = HIDDEN;
        NAME(raise_top)(side, head->scale2, tile, asked, seen, width);
    }
    NAME(weigh_scores)(side, head->scale2, tile, asked, after);
    NAME(gather)(seen, head->values + start * width, tile.scores, asked, after, width);
    const int64_t all = after ? head->count - start - asked : start;
    for (int64_t done = 0, many; done < all; done += many) {
        double nearest;
        const int64_t first = NAME(next_tile)(head, side, start, asked, after, done, all, &many, &nearest);
        if (NAME(rest_is_nothing)(head, side, reach, asked, nearest, all - done)) break;
        NAME(fade_keys)(biases, head, side, first, many, after);
        const float *keys = head->keys + first * width;
        if (tile.fine) {
            NAME(score_finely)(side, head->scale2, queries, keys, biases, tile, NAME(round_up)(many), width);
            NAME(raise_top)(side, head->scale2, tile, many, seen, width);
            NAME(weigh_scores)(side, head->scale2, tile, many, after);
        } else {
            NAME(weigh)(side, head->scale2, queries, keys, biases, tile.scores, NAME(round_up)(many), width);
        }
        NAME(gather)(seen, head->values + first * width, tile.scores, many, after, width);
    }
}

/* Both directions of a block. */
INLINE void NAME(attend_both)(const Head *head, int64_t start, int64_t asked, const float *queries, const float *reach,
                              Scores own, Scores tile, float *seen, const int64_t width) {
    NAME(score_block)(queries, head->keys + start * width, asked, own.scores, own.fine, width);
    for (int after = 0; after < 2; after++) {
        if (!head->seen[after]) continue;
        Side side;
        float inverse[BLOCK];
        NAME(see)(head, &side, start, asked, after, queries, own, reach, tile, seen, width);
        for (int i = 0; i < BLOCK; i++) inverse[i] = 1 / side.sum[i];
        float *rows = head->seen[after] + start * head->seen_step;
        NAME(turn_out)(rows, head->seen_step, seen, inverse, asked, width);
        for (int64_t i = 0; head->rotation && i < asked; i++)
            rotate_head(rows + i * head->seen_step, rows + i * head->seen_step, head->rotation + (start + i) * width, -1, width);
        if (head->tops[after]) {
            memcpy(head->tops[after] + start, side.top, sizeof(float) * (size_t)asked);
            memcpy(head->sums[after] + start, side.sum, sizeof(float) * (size_t)asked);
        }
    }
}

INLINE void NAME(attend_block)(const Head *head, int64_t start, float *scratch, const int64_t width) {
    float *queries = scratch, *seen = queries + width * BLOCK, reach[BLOCK];
    float *own = seen + width * BLOCK, *tile = own + 2 * BLOCK * BLOCK;
    const int64_t asked = head->count - start < BLOCK ? head->count - start : BLOCK;
    if (NAME(load_queries)(head, start, asked, queries, reach, width))
        NAME(attend_both)(head, start, asked, queries, reach, (Scores){own, own + BLOCK * BLOCK}, (Scores){tile, tile + TILE * BLOCK},
                          seen, width);
    else /* written out, so that the compiler leaves out what is for two numbers */
        NAME(attend_both)(head, start, asked, queries, reach, (Scores){own, NULL}, (Scores){tile, NULL}, seen, width);
}

static TARGET void NAME(forward)(const Head *head, int64_t start, float *scratch) {
    if (head->width == 32) NAME(attend_block)(head, start, scratch, 32);
    else if (head->width == 64) NAME(attend_block)(head, start, scratch, 64);
    else NAME(attend_block)(head, start, scratch, head->width);
}

/* Rows of a block as they are, times a factor for each, and filled up with 0 to whole vectors. */
INLINE void NAME(copy_rows)(float *to, const float *rows, int64_t step, const float *factors, int64_t many,
                            const int64_t width, const int64_t filled) {
    for (int64_t row = 0; row < BLOCK; row++)
        for (int64_t channel = 0; channel < filled; channel++)
            to[row * filled + channel] = row < many && channel < width ? rows[row * step + channel] * factors[row] : 0;
}

/* What each query's gradient and answer have in common: the part of the gradient that softmax takes off. */
INLINE float NAME(agreement)(const float *one, const float *other, const int64_t width) {
    double sums[8] = {0};
    for (int64_t channel = 0; channel < width; channel += 8)
        for (int i = 0; i < 8; i++) sums[i] += (double)one[channel + i] * other[channel + i];
    return (float)(((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])));
}

/* The sums of four vectors, next to each other. */
INLINE void NAME(add_lanes)(float *totals, const Vector *vectors) {
    Four sums[4];
    for (int i = 0; i < 4; i++) {
        float numbers[LANES] __attribute__((aligned(64)));
        NAME(store)(numbers, vectors[i]);
        sums[i] = *(const Four *)numbers;
        UNROLL for (int lane = 4; lane < LANES; lane += 4) sums[i] += *(const Four *)(numbers + lane);
    }
    TRANSPOSE(sums);
    *(Four *)totals = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* slopes = weights * (values . gradient - agreement), and their sums over queries and over keys. */
INLINE void NAME(slope)(const float *gradients, const float *values, const float *agreements, const float *tile,
                        float *slopes, float *over_queries, Vector *over_keys, int64_t many, const int64_t width) {
    for (int64_t key = 0; key < many; key += ROWS) {
        Vector sums[ROWS * VECTORS];
        UNROLL for (int row = 0; row < ROWS; row++)
            UNROLL for (int vector = 0; vector < VECTORS; vector++)
                sums[row * VECTORS + vector] = -NAME(load)(agreements + vector * LANES);
        NAME(multiply)(sums, ROWS, VECTORS, values + key * width, width, 1, gradients, BLOCK, width);
        Vector totals[ROWS] = {{0}};
        UNROLL for (int row = 0; row < ROWS; row++)
            UNROLL for (int vector = 0; vector < VECTORS; vector++) {
                const int64_t place = (key + row) * BLOCK + vector * LANES;
                const Vector slope = sums[row * VECTORS + vector] * NAME(load)(tile + place);
                NAME(store)(slopes + place, slope);
                over_keys[vector] += slope;
                totals[row] += slope;
            }
        UNROLL for (int row = 0; row < ROWS; row += 4) NAME(add_lanes)(over_queries + key + row, totals + row);
    }
}

/* sums[key][channel] += tile[key][query] * rows[query][channel] */
INLINE void NAME(scatter)(float *sums, const float *rows, const float *tile, int64_t many, int64_t asked,
                          const int64_t filled, const int columns) {
    for (int64_t channel = 0; channel < filled; channel += columns * LANES)
        for (int64_t key = 0; key < many; key += ROWS) {
            Vector added[ROWS * 2] = {{0}};
            NAME(multiply)(added, ROWS, columns, tile + key * BLOCK, BLOCK, 1, rows + channel, filled, asked);
            UNROLL for (int row = 0; row < ROWS; row++)
                UNROLL for (int column = 0; column < columns; column++) {
                    float *place = sums + (key + row) * filled + channel + column * LANES;
                    NAME(store)(place, NAME(load)(place) + added[row * columns + column]);
                }
        }
}

/* Room that the backward pass works in. Vectors come first, which need their alignment. */
typedef struct {
    float reach[BLOCK], agreements[BLOCK];
    float *queries, *query_rows, *gradients, *gradient_rows, *changes, *slopes;
    Scores own, tile; /* finer numbers of a tile are in the slopes' place until these are known */
} NAME(Room) __attribute__((aligned(64)));
#define Room NAME(Room)

/* Gradients that a tile of keys hands to its keys and values, to the queries, and to the gates between them. */
INLINE void NAME(pass_back)(const Head *head, Room *room, int64_t start, int64_t asked, int64_t first, int64_t many,
                            int after, const int64_t width, const int64_t filled) {
    float over_queries[TILE + ROWS];
    Vector over_keys[VECTORS] = {{0}};
    const int64_t rows = NAME(round_up)(many);
    NAME(slope)(room->gradients, head->values + first * width, room->agreements, room->tile.scores, room->slopes, over_queries,
                over_keys, rows, width);
    if (filled % (2 * LANES) == 0) {
        NAME(scatter)(head->value_changes + first * filled, room->gradient_rows, room->tile.scores, rows, asked, filled, 2);
        NAME(scatter)(head->key_changes + first * filled, room->query_rows, room->slopes, rows, asked, filled, 2);
    } else {
        NAME(scatter)(head->value_changes + first * filled, room->gradient_rows, room->tile.scores, rows, asked, filled, 1);
        NAME(scatter)(head->key_changes + first * filled, room->query_rows, room->slopes, rows, asked, filled, 1);
    }
    NAME(gather)(room->changes, head->keys + first * width, room->slopes, many, after, width);
    double *keys = head->gate_changes + first + !after, *queries = head->gate_changes + start + !after;
    for (int64_t key = 0; key < many; key++) keys[key] += after ? over_queries[key] : -over_queries[key];
    for (int64_t i = 0; i < asked; i++) {
        const float change = ((const float *)over_keys)[i];
        queries[i] += after ? -change : change;
    }
}

/* The gradient of one direction for a block of queries. Weights come back divided by nothing: the gradient is divided by
   their sum instead, which is less work and loses no digits of large sums. */
INLINE void NAME(look_back)(const Head *head, Room *room, int64_t start, int64_t asked, int after, const int64_t width,
                            const int64_t filled) {
    float biases[TILE + ROWS], inverse[BLOCK];
    Side side;
    NAME(open_side)(&side, head, start, asked, after);
    const float *gradients = head->gradients[after] + start * head->gradient_step;
    const float *seen = head->seen[after] + start * head->seen_step;
    for (int64_t i = 0; i < BLOCK; i++) {
        const int real = i < asked;
        inverse[i] = real ? 1 / head->sums[after][start + i] : 0;
        side.top[i] = real ? head->tops[after][start + i] : 0;
        room->agreements[i] = 0;
        if (real)
            room->agreements[i] =
                inverse[i] * NAME(agreement)(gradients + i * head->gradient_step, seen + i * head->seen_step, width);
    }
    int64_t step = head->gradient_step;
    if (head->rotation) { /* both rotated, gradient and answer agree as before */
        for (int64_t i = 0; i < asked; i++)
            rotate_head(gradients + i * step, room->gradient_rows + i * filled, head->rotation + (start + i) * width, 1, width);
        gradients = room->gradient_rows, step = filled;
    }
    NAME(turn_in)(room->gradients, gradients, step, inverse, asked, width);
    NAME(copy_rows)(room->gradient_rows, gradients, step, inverse, asked, width, filled);
    NAME(fade_block)(head, &side, room->own, room->tile, asked, after);
    NAME(weigh_scores)(&side, head->scale2, room->tile, NAME(round_up)(asked), after);
    for (int64_t i = 0; i < asked; i++) side.sum[i] = head->sums[after][start + i];
    NAME(pass_back)(head, room, start, asked, start, asked, after, width, filled);
    const int64_t all = after ? head->count - start - asked : start;
    for (int64_t done = 0, many; done < all; done += many) {
        double nearest;
        const int64_t first = NAME(next_tile)(head, &side, start, asked, after, done, all, &many, &nearest);
        Side whole = side; /* the sums, which `weigh` adds to, are known already */
        if (NAME(rest_is_nothing)(head, &side, room->reach, asked, nearest, all - done)) break;
        NAME(fade_keys)(biases, head, &side, first, many, after);
        const float *keys = head->keys + first * width;
        if (room->tile.fine) {
            NAME(score_finely)(&side, head->scale2, room->queries, keys, biases, room->tile, NAME(round_up)(many), width);
            NAME(weigh_scores)(&whole, head->scale2, room->tile, NAME(round_up)(many), after);
        } else {
            NAME(weigh)(&whole, head->scale2, room->queries, keys, biases, room->tile.scores, NAME(round_up)(many), width);
        }
        NAME(pass_back)(head, room, start, asked, first, many, after, width, filled);
    }
}

INLINE void NAME(learn_block)(const Head *head, int64_t start, float *scratch, const int64_t width) {
    const int64_t filled = (width + LANES - 1) / LANES * LANES;
    Room room;
    room.queries = scratch;
    room.gradients = room.queries + width * BLOCK;
    room.changes = room.gradients + width * BLOCK;
    room.query_rows = room.changes + width * BLOCK;
    room.gradient_rows = room.query_rows + filled * BLOCK;
    room.own = (Scores){.scores = room.gradient_rows + filled * BLOCK};
    room.tile = (Scores){.scores = room.own.scores + 2 * BLOCK * BLOCK};
    room.slopes = room.tile.scores + TILE * BLOCK;
    const int64_t asked = head->count - start < BLOCK ? head->count - start : BLOCK;
    float factors[BLOCK];
    for (int i = 0; i < BLOCK; i++) factors[i] = head->scale;
    if (NAME(load_queries)(head, start, asked, room.queries, room.reach, width))
        room.own.fine = room.own.scores + BLOCK * BLOCK, room.tile.fine = room.slopes;
    NAME(copy_rows)(room.query_rows, head->q + start * head->q_step, head->q_step, factors, asked, width, filled);
    NAME(score_block)(room.queries, head->keys + start * width, asked, room.own.scores, room.own.fine, width);
    memset(room.changes, 0, sizeof(float) * BLOCK * (size_t)width);
    for (int after = 0; after < 2; after++)
        if (head->seen[after]) NAME(look_back)(head, &room, start, asked, after, width, filled);
    NAME(turn_out)(head->query_changes + start * head->query_step, head->query_step, room.changes, factors, asked, width);
}

static TARGET void NAME(backward)(const Head *head, int64_t start, float *scratch) {
    if (head->width == 32) NAME(learn_block)(head, start, scratch, 32);
    else if (head->width == 64) NAME(learn_block)(head, start, scratch, 64);
    else NAME(learn_block)(head, start, scratch, head->width);
}

#undef Vector
#undef Bits
#undef Places
#undef Side
#undef Scores
#undef Room
#undef INLINE
#undef BLOCK
#undef TILE
#undef SET
#undef TARGET
#undef LANES
#undef VECTORS
#undef ROWS
#undef TILE_BLOCKS
#undef LARGER
