/* What a network does to each token by itself before attention: heads with RMS norm, and the log of the forget gates.

   Part of `compiled_attention.c`; `compiled_rows.py` calls it. One pass over the tokens instead of a dozen, and one back.
   Tokens are cut into tasks by their number alone and shares of the weights' gradients are added in the order of the
   tasks, so the result is the same to the bit for any number of threads. */

#define SHARE 128       /* tokens of a task */
#define RMS_EPSILON 1e-5f

#define CLOSEST 87.0f   /* e^-87 is the smallest number that float32 holds in full; a gate farther from 0 is as this one */

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t EightBits __attribute__((vector_size(32), aligned(4), may_alias));

/* All that a call is given; `compiled_rows.py` has the same structure. Rows of `projected` are q, k, v and gates. */
typedef struct {
    int64_t tokens, heads, key_heads, width, variant, threads;
    Team *team;
    const float *projected, *query_norm, *key_norm, *forget_bias;
    float *q, *k, *v, *log_forget;
    const float *dq, *dk, *dv, *dlog_forget;
    float *dprojected, *dquery_norm, *dkey_norm, *dforget_bias;
} Projection;

/* What the tasks of a call share. */
typedef struct {
    const Projection *job;
    void (*task)(const Projection *, int64_t first, int64_t stop, float *gates, float *share);
    float *gates, *shares; /* each task's gates, and its share of the gradients of both norms and the bias */
    int64_t room, size, tasks, next;
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
    return 1 / sqrtf(add_eight(&squares) / (float)width + RMS_EPSILON);
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

static inline __attribute__((always_inline)) void make_heads(const Projection *job, int64_t first, int64_t stop, float *gates) {
    const int64_t width = job->width, dim = job->heads * width, narrow = job->key_heads * width;
    const int64_t whole = dim + 2 * narrow + job->heads, many = take_gates(job, first, stop, gates);
    for (int64_t token = first; token < stop; token++) {
        const float *row = job->projected + token * whole;
        scale_heads(row, job->query_norm, job->q + token * dim, job->heads, width);
        scale_heads(row + dim, job->key_norm, job->k + token * narrow, job->key_heads, width);
        memcpy(job->v + token * narrow, row + dim + narrow, sizeof(float) * (size_t)narrow);
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
        scale_heads_back(row, job->query_norm, job->dq + token * dim, changes, share, job->heads, width);
        scale_heads_back(row + dim, job->key_norm, job->dk + token * narrow, changes + dim, share + dim, job->key_heads, width);
        memcpy(changes + dim + narrow, job->dv + token * narrow, sizeof(float) * (size_t)narrow);
        for (int64_t head = 0; head < job->heads; head++) {
            const float change = gates[(token - first) * job->heads + head] * job->dlog_forget[token * job->heads + head];
            changes[dim + 2 * narrow + head] = change;
            share[dim + narrow + head] += change;
        }
    }
}

#define VARIANT(name, target)                                                                                          \
    static target void make_heads_##name(const Projection *job, int64_t first, int64_t stop, float *gates, float *share) { \
        (void)share;                                                                                                   \
        make_heads(job, first, stop, gates);                                                                           \
    }                                                                                                                  \
    static target void make_heads_back_##name(const Projection *job, int64_t first, int64_t stop, float *gates, float *share) { \
        make_heads_back(job, first, stop, gates, share);                                                               \
    }
VARIANT(baseline, )
#if defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2,fma"))))
#else
VARIANT(avx2, )
#endif

static void take_tokens(void *data) {
    Tokens *tokens = data;
    const Projection *job = tokens->job;
    for (int64_t task; (task = __atomic_fetch_add(&tokens->next, 1, __ATOMIC_RELAXED)) < tokens->tasks;) {
        float *gates = tokens->gates + task * tokens->room;
        tokens->task(job, task * SHARE, smaller((task + 1) * SHARE, job->tokens), gates, tokens->shares + task * tokens->size);
    }
}

/* Runs all tasks; returns 0 without memory. */
static int run_tokens(Tokens *tokens, const Projection *job) {
    tokens->job = job, tokens->tasks = divide_up(job->tokens, SHARE), tokens->room = SHARE * job->heads + 8;
    void **places[] = {(void **)&tokens->gates, (void **)&tokens->shares};
    const size_t sizes[] = {sizeof(float) * (size_t)(tokens->tasks * tokens->room),
                            sizeof(float) * (size_t)(tokens->tasks * tokens->size)};
    const int got = allocate(places, sizes, 2);
    if (got) start_threads(job->team, take_tokens, tokens, smaller(tokens->tasks / 2, smaller(job->threads, MOST_THREADS)));
    return got;
}

static void free_tokens(Tokens *tokens) {
    void **places[] = {(void **)&tokens->gates, (void **)&tokens->shares};
    release(places, 2);
}

/* q and k with their norms, v, and the log of the gates, each on its own; returns -1 without memory, else 0. */
EXPORT int64_t project(const Projection *job) {
    Tokens tokens = {.task = job->variant ? make_heads_avx2 : make_heads_baseline};
    const int got = run_tokens(&tokens, job);
    free_tokens(&tokens);
    return got - 1;
}

/* Gradients of what was projected, of both norms and of the bias; returns -1 without memory, else 0. */
EXPORT int64_t project_back(const Projection *job) {
    const int64_t dim = job->heads * job->width, narrow = job->key_heads * job->width;
    Tokens tokens = {.task = job->variant ? make_heads_back_avx2 : make_heads_back_baseline, .size = dim + narrow + job->heads};
    const int got = run_tokens(&tokens, job);
    for (int64_t place = 0; got && place < tokens.size; place++) {
        double sum = 0;
        for (int64_t task = 0; task < tokens.tasks; task++) sum += tokens.shares[task * tokens.size + place];
        if (place < dim) job->dquery_norm[place] = (float)sum;
        else if (place < dim + narrow) job->dkey_norm[place - dim] = (float)sum;
        else job->dforget_bias[place - dim - narrow] = (float)sum;
    }
    free_tokens(&tokens);
    return got - 1;
}
