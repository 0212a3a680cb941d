/* What a network does to each token by itself: heads for attention (RMS norm, rotation, the log of the forget gates), and
   LayerNorm of a token and what is added to it.

   Part of `compiled_attention.c`; `compiled_rows.py` calls it. One pass over the tokens instead of a dozen, and one back.
   Tokens are cut into tasks by their number alone and shares of the weights' gradients are added in the order of the
   tasks, so the result is the same to the bit for any number of threads. */

#define SHARE 128       /* tokens of a task */
#define EPSILON 1e-5f    /* of every norm */
#define CLOSEST 87.0f   /* e^-87 is the smallest number that float32 holds in full; a gate farther from 0 is as this one */

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t EightBits __attribute__((vector_size(32), aligned(4), may_alias));

/* All that a call is given; `compiled_rows.py` has the same structure. Rows of `projected` are q, k, v and gates. */
typedef struct {
    int64_t tokens, heads, key_heads, width, variant, threads;
    Team *team;
    const float *rotation; /* (tokens, 2, width / 2): cosines and sines by which q, k and v are rotated; or NULL */
    const float *projected, *query_norm, *key_norm, *forget_bias;
    float *q, *k, *v, *log_forget;
    const float *dq, *dk, *dv, *dlog_forget;
    float *dprojected, *dquery_norm, *dkey_norm, *dforget_bias;
} Projection;

/* What the tasks of a call share. Each thread has room for its numbers, and each task its share of the weights' gradients. */
typedef struct {
    const void *job;
    void (*task)(const void *job, int64_t first, int64_t stop, float *room, float *share);
    int64_t many, room, size, tasks, next, threads; /* tokens; numbers of a room and of a share */
    float *rooms, *shares;
} Tokens;

static inline __attribute__((always_inline)) float add_eight(const Eight *sums) {
    const Eight all = *sums;
    return ((all[0] + all[4]) + (all[1] + all[5])) + ((all[2] + all[6]) + (all[3] + all[7]));
}

static inline __attribute__((always_inline)) float inverse_size(const float *row, int64_t width) {
    Eight squares = {0};
    for (int64_t channel = 0; channel < width; channel += 8) {
        const Eight values = *(const Eight *)(row + channel);
        squares += values * values;
    }
    return 1 / sqrtf(add_eight(&squares) / (float)width + EPSILON);
}

/* Heads of one token that lie next to each other: each divided by its size, times a weight for each channel. */
static inline __attribute__((always_inline)) void scale_heads(const float *rows, const float *weights, float *scaled,
                                                               int64_t heads, int64_t width) {
    for (int64_t place = 0; place < heads * width; place += width) {
        const float inverse = inverse_size(rows + place, width);
        for (int64_t channel = place; channel < place + width; channel += 8)
            *(Eight *)(scaled + channel) = *(const Eight *)(rows + channel) * inverse * *(const Eight *)(weights + channel);
    }
}

static inline __attribute__((always_inline)) void scale_heads_back(const float *rows, const float *weights,
                                                                    const float *gradients, float *changes, float *share,
                                                                    int64_t heads, int64_t width) {
    for (int64_t place = 0; place < heads * width; place += width) {
        const float inverse = inverse_size(rows + place, width);
        Eight common = {0};
        for (int64_t channel = place; channel < place + width; channel += 8) {
            const Eight values = *(const Eight *)(rows + channel), gradient = *(const Eight *)(gradients + channel);
            common += gradient * *(const Eight *)(weights + channel) * values;
            *(Eight *)(share + channel) += gradient * (values * inverse);
        }
        const float agreement = add_eight(&common) * inverse * inverse / (float)width;
        for (int64_t channel = place; channel < place + width; channel += 8) {
            const Eight gradient = *(const Eight *)(gradients + channel) * *(const Eight *)(weights + channel);
            *(Eight *)(changes + channel) = (gradient - *(const Eight *)(rows + channel) * agreement) * inverse;
        }
    }
}

#define CHOOSE(mask, one, other) ((Eight)(((EightBits)(one) & (mask)) | ((EightBits)(other) & ~(mask))))

/* e^-|gate| of eight gates, with a relative error of 1e-7. */
static inline __attribute__((always_inline)) void fade_gates(const float *gates, Eight *faded) {
    const Eight gate = *(const Eight *)gates, all = {0};
    const Eight size = CHOOSE(gate < 0, -gate, gate), near = CHOOSE(size < CLOSEST, size, CLOSEST - all);
    const Eight shifted = near * -1.44269504f + 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded */
    const Eight whole = shifted - 12582912.0f;
    const Eight part = ((-near - whole * 0.693359375f) + whole * 2.12194440e-4f) * 1.44269504f;
    Eight value = part * 0.00015345810970757157f + 0.0013399930903688073f;
    value = value * part + 0.009618489071726799f;
    value = value * part + 0.05550328642129898f;
    value = value * part + 0.24022646248340607f;
    value = value * part + 0.6931471824645996f;
    value = value * part + 1.0f;
    value = (Eight)((EightBits)value + ((EightBits)shifted << 23));
    *faded = CHOOSE(gate == gate, value, gate);
}

/* ln sigmoid of eight gates: min(gate, 0) - ln(1 + e), with ln(1 + e) = 2 artanh(e / (2 + e)). */
static inline __attribute__((always_inline)) void log_gates(float *gates) {
    Eight faded, gate = *(const Eight *)gates;
    fade_gates(gates, &faded);
    const Eight ratio = faded / (faded + 2), square = ratio * ratio;
    Eight sum = square * (1 / 15.0f) + 1 / 13.0f;
    sum = sum * square + 1 / 11.0f;
    sum = sum * square + 1 / 9.0f;
    sum = sum * square + 1 / 7.0f;
    sum = sum * square + 1 / 5.0f;
    sum = sum * square + 1 / 3.0f;
    sum = sum * square + 1.0f;
    *(Eight *)gates = CHOOSE(gate < 0, gate, (Eight){0}) - 2 * ratio * sum;
}

/* Their derivative, 1 - sigmoid. */
static inline __attribute__((always_inline)) void slope_gates(float *gates) {
    Eight faded, gate = *(const Eight *)gates, one = {0};
    fade_gates(gates, &faded);
    *(Eight *)gates = CHOOSE(gate < 0, one + 1, faded) / (faded + 1);
}

/* The gates of a task's tokens next to each other, with their biases; filled up to a whole vector. */
static inline __attribute__((always_inline)) int64_t take_gates(const Projection *job, int64_t first, int64_t stop, float *gates) {
    const int64_t before = (job->heads + 2 * job->key_heads) * job->width, heads = job->heads;
    for (int64_t token = first; token < stop; token++)
        for (int64_t head = 0; head < heads; head++)
            gates[(token - first) * heads + head] = job->projected[token * (before + heads) + before + head] + job->forget_bias[head];
    const int64_t many = (stop - first) * heads;
    for (int64_t place = many; place % 8; place++) gates[place] = 0;
    return many;
}

/* Heads of one token that lie next to each other, rotated by the token's angles or back. */
static inline __attribute__((always_inline)) void rotate_heads(const float *from, float *to, const Projection *job, int64_t token,
                                                                float sign, int64_t heads) {
    for (int64_t place = 0; place < heads * job->width; place += job->width)
        rotate_head(from + place, to + place, job->rotation + token * job->width, sign, job->width);
}

static inline __attribute__((always_inline)) void make_heads(const Projection *job, int64_t first, int64_t stop, float *gates) {
    const int64_t width = job->width, dim = job->heads * width, narrow = job->key_heads * width;
    const int64_t whole = dim + 2 * narrow + job->heads, many = take_gates(job, first, stop, gates);
    for (int64_t token = first; token < stop; token++) {
        const float *row = job->projected + token * whole;
        scale_heads(row, job->query_norm, job->q + token * dim, job->heads, width);
        scale_heads(row + dim, job->key_norm, job->k + token * narrow, job->key_heads, width);
        memcpy(job->v + token * narrow, row + dim + narrow, sizeof(float) * (size_t)narrow);
        if (job->rotation) {
            rotate_heads(job->q + token * dim, job->q + token * dim, job, token, 1, job->heads);
            rotate_heads(job->k + token * narrow, job->k + token * narrow, job, token, 1, job->key_heads);
            rotate_heads(job->v + token * narrow, job->v + token * narrow, job, token, 1, job->key_heads);
        }
    }
    for (int64_t place = 0; place < many; place += 8) log_gates(gates + place);
    memcpy(job->log_forget + first * job->heads, gates, sizeof(float) * (size_t)many);
}

static inline __attribute__((always_inline)) void make_heads_back(const Projection *job, int64_t first, int64_t stop,
                                                                   float *gates, float *share) {
    const int64_t width = job->width, dim = job->heads * width, narrow = job->key_heads * width;
    const int64_t whole = dim + 2 * narrow + job->heads, many = take_gates(job, first, stop, gates);
    memset(share, 0, sizeof(float) * (size_t)(dim + narrow + job->heads));
    for (int64_t place = 0; place < many; place += 8) slope_gates(gates + place);
    for (int64_t token = first; token < stop; token++) {
        const float *row = job->projected + token * whole;
        float *changes = job->dprojected + token * whole;
        const float *dq = job->dq + token * dim, *dk = job->dk + token * narrow, *dv = job->dv + token * narrow;
        if (job->rotation) {
            rotate_heads(dq, changes, job, token, -1, job->heads);
            rotate_heads(dk, changes + dim, job, token, -1, job->key_heads);
            rotate_heads(dv, changes + dim + narrow, job, token, -1, job->key_heads);
            dq = changes, dk = changes + dim;
        } else {
            memcpy(changes + dim + narrow, dv, sizeof(float) * (size_t)narrow);
        }
        scale_heads_back(row, job->query_norm, dq, changes, share, job->heads, width);
        scale_heads_back(row + dim, job->key_norm, dk, changes + dim, share + dim, job->key_heads, width);
        for (int64_t head = 0; head < job->heads; head++) {
            const float change = gates[(token - first) * job->heads + head] * job->dlog_forget[token * job->heads + head];
            changes[dim + 2 * narrow + head] = change;
            share[dim + narrow + head] += change;
        }
    }
}

/* All that a call of LayerNorm is given; `compiled_rows.py` has the same structure. */
typedef struct {
    int64_t tokens, width, relu, variant, threads; /* `relu`: whether what is below 0 becomes 0 afterwards */
    Team *team;
    const float *rows, *added; /* what is normalised: rows, or the sum of both; `added` may be NULL */
    const float *weight, *bias;
    float *sums, *normed; /* `sums` may be NULL; the backward pass has the sums as rows */
    const float *dnormed;
    float *drows, *dweight, *dbias;
} Norm;

/* The mean of a row, and 1 over its deviation. */
static inline __attribute__((always_inline)) float centre(const float *row, int64_t width, float *inverse) {
    Eight sums = {0}, squares = {0};
    for (int64_t channel = 0; channel < width; channel += 8) sums += *(const Eight *)(row + channel);
    const float mean = add_eight(&sums) / (float)width;
    for (int64_t channel = 0; channel < width; channel += 8) {
        const Eight apart = *(const Eight *)(row + channel) - mean;
        squares += apart * apart;
    }
    *inverse = 1 / sqrtf(add_eight(&squares) / (float)width + EPSILON);
    return mean;
}

static inline __attribute__((always_inline)) void normalise_row(const float *row, const float *weight, const float *bias, int relu,
                                                                 float *normed, int64_t width) {
    float inverse;
    const float mean = centre(row, width, &inverse);
    for (int64_t channel = 0; channel < width; channel += 8) {
        const Eight apart = (*(const Eight *)(row + channel) - mean) * inverse;
        const Eight value = apart * *(const Eight *)(weight + channel) + *(const Eight *)(bias + channel);
        *(Eight *)(normed + channel) = relu ? CHOOSE(value < 0, (Eight){0}, value) : value;
    }
}

/* The gradient of a row, and added to `share` those of weights and biases. */
static inline __attribute__((always_inline)) void normalise_row_back(const float *row, const float *gradients, const float *weight,
                                                                      float *share, float *changes, int64_t width) {
    float inverse;
    const float mean = centre(row, width, &inverse);
    Eight sums = {0}, agreements = {0};
    for (int64_t channel = 0; channel < width; channel += 8) {
        const Eight apart = (*(const Eight *)(row + channel) - mean) * inverse;
        Eight gradient = *(const Eight *)(gradients + channel);
        *(Eight *)(share + channel) += gradient * apart;
        *(Eight *)(share + width + channel) += gradient;
        gradient *= *(const Eight *)(weight + channel);
        sums += gradient, agreements += gradient * apart;
        *(Eight *)(changes + channel) = gradient;
    }
    const float common = add_eight(&sums) / (float)width, agreement = add_eight(&agreements) / (float)width;
    for (int64_t channel = 0; channel < width; channel += 8) {
        const Eight apart = (*(const Eight *)(row + channel) - mean) * inverse;
        *(Eight *)(changes + channel) = (*(const Eight *)(changes + channel) - common - apart * agreement) * inverse;
    }
}

static inline __attribute__((always_inline)) void normalise(const Norm *job, int64_t first, int64_t stop) {
    const int64_t width = job->width;
    for (int64_t place = first * width; place < stop * width; place += width) {
        const float *row = job->rows + place;
        float *normed = job->normed + place, *sums = job->sums ? job->sums + place : normed;
        if (job->added) {
            for (int64_t channel = 0; channel < width; channel += 8)
                *(Eight *)(sums + channel) = *(const Eight *)(row + channel) + *(const Eight *)(job->added + place + channel);
            row = sums;
        }
        normalise_row(row, job->weight, job->bias, (int)job->relu, normed, width);
    }
}

static inline __attribute__((always_inline)) void normalise_back(const Norm *job, int64_t first, int64_t stop, float *share) {
    const int64_t width = job->width;
    memset(share, 0, sizeof(float) * (size_t)(2 * width));
    for (int64_t place = first * width; place < stop * width; place += width) {
        const float *gradients = job->dnormed + place;
        float *changes = job->drows + place;
        if (job->relu) {
            for (int64_t channel = 0; channel < width; channel += 8)
                *(Eight *)(changes + channel) =
                    CHOOSE(*(const Eight *)(job->normed + place + channel) <= 0, (Eight){0}, *(const Eight *)(gradients + channel));
            gradients = changes;
        }
        normalise_row_back(job->rows + place, gradients, job->weight, share, changes, width);
    }
}

/* Tasks of each kind, for one instruction set. */
#define VARIANT(name, target)                                                                                    \
    static target void make_heads_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) {      \
        (void)share;                                                                                             \
        make_heads(job, first, stop, room);                                                                      \
    }                                                                                                            \
    static target void make_heads_back_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) { \
        make_heads_back(job, first, stop, room, share);                                                          \
    }                                                                                                            \
    static target void normalise_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) {       \
        (void)room, (void)share;                                                                                 \
        normalise(job, first, stop);                                                                             \
    }                                                                                                            \
    static target void normalise_back_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) {  \
        (void)room;                                                                                              \
        normalise_back(job, first, stop, share);                                                                 \
    }
VARIANT(baseline, )
#if defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2,fma"))))
#else
VARIANT(avx2, )
#endif

static void take_tokens(void *data) {
    Tokens *tokens = data;
    float *room = tokens->rooms + __atomic_fetch_add(&tokens->threads, 1, __ATOMIC_RELAXED) * tokens->room;
    for (int64_t task; (task = __atomic_fetch_add(&tokens->next, 1, __ATOMIC_RELAXED)) < tokens->tasks;)
        tokens->task(tokens->job, task * SHARE, smaller((task + 1) * SHARE, tokens->many), room,
                     tokens->shares + task * tokens->size);
}

/* Runs all tasks; returns 0 without memory. */
static int run_tokens(Tokens *tokens, Team *team, int64_t threads) {
    tokens->tasks = divide_up(tokens->many, SHARE);
    tokens->room = divide_up(tokens->room, 16) * 16; /* threads write to cache lines of their own */
    threads = tokens->tasks < 4 ? 1 : smaller(threads, MOST_THREADS); /* all or one, as in `run` */
    void **places[] = {(void **)&tokens->rooms, (void **)&tokens->shares};
    const size_t sizes[] = {sizeof(float) * (size_t)(threads * tokens->room),
                            sizeof(float) * (size_t)(tokens->tasks * tokens->size)};
    const int got = allocate(places, sizes, 2);
    if (got) start_threads(team, take_tokens, tokens, threads);
    return got;
}

/* `many` of the shares' numbers from the first on, each added up over the tasks in their order. */
static void add_shares(const Tokens *tokens, int64_t first, int64_t many, float *totals) {
    for (int64_t place = 0; place < many; place++) {
        double sum = 0;
        for (int64_t task = 0; task < tokens->tasks; task++) sum += tokens->shares[task * tokens->size + first + place];
        totals[place] = (float)sum;
    }
}

static void free_tokens(Tokens *tokens) {
    void **places[] = {(void **)&tokens->rooms, (void **)&tokens->shares};
    release(places, 2);
}

/* q and k with their norms, v, and the log of the gates, each on its own; returns -1 without memory, else 0. */
EXPORT int64_t project(const Projection *job) {
    Tokens tokens = {.job = job, .task = job->variant ? make_heads_avx2 : make_heads_baseline, .many = job->tokens};
    tokens.room = SHARE * job->heads + 8;
    const int got = run_tokens(&tokens, job->team, job->threads);
    free_tokens(&tokens);
    return got - 1;
}

/* Gradients of what was projected, of both norms and of the bias; returns -1 without memory, else 0. */
EXPORT int64_t project_back(const Projection *job) {
    const int64_t dim = job->heads * job->width, narrow = job->key_heads * job->width;
    Tokens tokens = {.job = job, .task = job->variant ? make_heads_back_avx2 : make_heads_back_baseline, .many = job->tokens};
    tokens.room = SHARE * job->heads + 8, tokens.size = dim + narrow + job->heads;
    const int got = run_tokens(&tokens, job->team, job->threads);
    if (got) {
        add_shares(&tokens, 0, dim, job->dquery_norm);
        add_shares(&tokens, dim, narrow, job->dkey_norm);
        add_shares(&tokens, dim + narrow, job->heads, job->dforget_bias);
    }
    free_tokens(&tokens);
    return got - 1;
}

/* LayerNorm; returns -1 without memory, else 0. */
EXPORT int64_t norm(const Norm *job) {
    Tokens tokens = {.job = job, .task = job->variant ? normalise_avx2 : normalise_baseline, .many = job->tokens};
    const int got = run_tokens(&tokens, job->team, job->threads);
    free_tokens(&tokens);
    return got - 1;
}

/* Gradients of the rows, which are also those of what was added, and of the weights; returns -1 without memory, else 0. */
EXPORT int64_t norm_back(const Norm *job) {
    Tokens tokens = {.job = job, .task = job->variant ? normalise_back_avx2 : normalise_back_baseline, .many = job->tokens};
    tokens.size = 2 * job->width;
    const int got = run_tokens(&tokens, job->team, job->threads);
    if (got) add_shares(&tokens, 0, job->width, job->dweight), add_shares(&tokens, job->width, job->width, job->dbias);
    free_tokens(&tokens);
    return got - 1;
}
