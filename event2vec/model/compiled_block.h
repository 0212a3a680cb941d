/* A Transformer block where no gradient is asked for: x = LN(x + attention(x)), then x = LN(x + FFN(x)) (`backbone.py`).

   Part of `compiled_attention.c`; `compiled_block.py` calls it. For a row of a few hundred events, a dozen calls from
   Python cost as much as what they compute. Products are our own: matrices lie in panels of 16 outputs, and six events
   (twelve, where a register holds 16 numbers) are multiplied by a panel at once, with all sums in registers. A few
   events pass through the feed-forward network together, so that what lies between its layers stays in the nearest
   cache. Each event's sums have one order, whatever is beside it. */

#define PANEL 16 /* outputs that lie next to each other in a packed matrix */
#define ABREAST 6 /* events that meet a panel at once */
#define TOGETHER 24 /* events that pass through the feed-forward network together */

/* All that a call is given; `compiled_block.py` has the same structure. Matrices are (outputs, inputs). */
typedef struct {
    int64_t batch, length, hidden, heads, key_heads, width, stops, variant, threads;
    Team *team;
    const int64_t *counts;
    const float *rotation; /* as in `Job`; may be NULL */
    const float *tokens;   /* (batch, length, dim) */
    const float *project, *query_norm, *key_norm, *forget_bias, *output;
    const float *attention_weight, *attention_bias, *widen, *narrow, *feed_weight, *feed_bias; /* norms: weight and bias */
    float *answer;
} Block;

typedef float Sixteen __attribute__((vector_size(64), aligned(4), may_alias));

typedef struct {
    int64_t inputs, outputs;
    float *panels; /* (outputs / PANEL, inputs, PANEL), filled up with zeros */
} Matrix;

/* What the tasks of a call share. */
typedef struct {
    const Block *block;
    Projection projection;
    Matrix project, output, widen, narrow;
    float *projected, *seen;
} Thought;

static size_t packed_size(const Matrix *matrix) {
    return sizeof(float) * (size_t)(divide_up(matrix->outputs, PANEL) * PANEL * matrix->inputs);
}

/* Four outputs by four inputs at a time; inputs are a multiple of four. */
static void pack_matrix(const float *rows, const Matrix *matrix) {
    for (int64_t first = 0; first < divide_up(matrix->outputs, PANEL) * PANEL; first += 4) {
        float *column = matrix->panels + first / PANEL * PANEL * matrix->inputs + first % PANEL;
        for (int64_t input = 0; input < matrix->inputs; input += 4) {
            Four square[4] = {{0}, {0}, {0}, {0}};
            for (int64_t i = 0; i < smaller(4, matrix->outputs - first); i++)
                square[i] = *(const Four *)(rows + (first + i) * matrix->inputs + input);
            TRANSPOSE(square);
            for (int i = 0; i < 4; i++) *(Four *)(column + (input + i) * PANEL) = square[i];
        }
    }
}

/* A few events times one panel, in vectors of 8 or of 16 numbers. `left` of its outputs are wanted. */
#define MULTIPLY_PANEL(name, Part, PARTS)                                                                        \
    static inline __attribute__((always_inline)) void multiply_panel_##name(                                     \
        const float *rows, const float *panel, float *products, int64_t inputs, int64_t step, int64_t left, const int events) { \
        const int lanes = PANEL / (PARTS);                                                                       \
        Part sums[2 * ABREAST][PARTS];                                                                           \
        UNROLL                                                                                                   \
        for (int event = 0; event < events; event++)                                                             \
            for (int part = 0; part < (PARTS); part++) sums[event][part] = (Part){0};                            \
        for (int64_t input = 0; input < inputs; input++) {                                                       \
            UNROLL                                                                                               \
            for (int event = 0; event < events; event++)                                                         \
                for (int part = 0; part < (PARTS); part++)                                                       \
                    sums[event][part] += *(const Part *)(panel + input * PANEL + part * lanes) * rows[event * inputs + input]; \
        }                                                                                                        \
        UNROLL                                                                                                   \
        for (int event = 0; event < events; event++) {                                                           \
            if (left < PANEL) {                                                                                  \
                memcpy(products + event * step, sums[event], sizeof(float) * (size_t)left);                      \
                continue;                                                                                        \
            }                                                                                                    \
            for (int part = 0; part < (PARTS); part++)                                                           \
                *(Part *)(products + event * step + part * lanes) = sums[event][part];                           \
        }                                                                                                        \
    }
MULTIPLY_PANEL(8, Eight, 2)
MULTIPLY_PANEL(16, Sixteen, 1)

/* Rows of events times a matrix: (events, inputs) to (events, outputs). `wide`: vectors of 16 instead of 8. */
static inline __attribute__((always_inline)) void multiply(const float *rows, const Matrix *matrix, float *products,
                                                            int64_t events, const int wide) {
    const int64_t inputs = matrix->inputs, step = matrix->outputs, abreast = wide ? 2 * ABREAST : ABREAST;
    for (int64_t first = 0; first < step; first += PANEL) {
        const float *panel = matrix->panels + first * inputs;
        int64_t event = 0;
        for (; event + abreast <= events; event += abreast)
            if (wide)
                multiply_panel_16(rows + event * inputs, panel, products + event * step + first, inputs, step, step - first, 2 * ABREAST);
            else
                multiply_panel_8(rows + event * inputs, panel, products + event * step + first, inputs, step, step - first, ABREAST);
        for (; event < events; event++)
            multiply_panel_8(rows + event * inputs, panel, products + event * step + first, inputs, step, step - first, 1);
    }
}

/* ReLU. */
static inline __attribute__((always_inline)) void rectify(float *values, int64_t many) {
    for (int64_t place = 0; place < many; place += 8) {
        const Eight value = *(const Eight *)(values + place);
        *(Eight *)(values + place) = CHOOSE(value < 0, (Eight){0}, value);
    }
}

static inline __attribute__((always_inline)) void add_and_normalise(const float *rows, float *added, const float *weight,
                                                                     const float *bias, float *normed, int64_t events,
                                                                     int64_t dim) {
    for (int64_t place = 0; place < events * dim; place += 8)
        *(Eight *)(added + place) += *(const Eight *)(rows + place);
    for (int64_t place = 0; place < events * dim; place += dim)
        normalise_row(added + place, weight, bias, 0, normed + place, dim);
}

/* q, k, v and log gates of some events. */
static inline __attribute__((always_inline)) void ask(const Thought *thought, int64_t first, int64_t stop, float *gates,
                                                       const int wide) {
    multiply(thought->block->tokens + first * thought->project.inputs, &thought->project,
             thought->projected + first * thought->project.outputs, stop - first, wide);
    make_heads(&thought->projection, first, stop, gates);
}

/* The block's output for some events, from what attention gave them. */
static inline __attribute__((always_inline)) void think_over(const Thought *thought, int64_t start, int64_t stop, float *room,
                                                              const int wide) {
    const Block *block = thought->block;
    const int64_t dim = thought->output.outputs;
    float *sums = room, *normed = sums + TOGETHER * dim, *hidden = normed + TOGETHER * dim;
    for (int64_t first = start; first < stop; first += TOGETHER) {
        const int64_t events = smaller(TOGETHER, stop - first);
        multiply(thought->seen + first * 2 * dim, &thought->output, sums, events, wide);
        add_and_normalise(block->tokens + first * dim, sums, block->attention_weight, block->attention_bias, normed, events, dim);
        multiply(normed, &thought->widen, hidden, events, wide);
        rectify(hidden, events * block->hidden);
        multiply(hidden, &thought->narrow, sums, events, wide);
        add_and_normalise(normed, sums, block->feed_weight, block->feed_bias, block->answer + first * dim, events, dim);
    }
}

/* Tasks for one instruction set. */
#define BLOCK(name, wide, target)                                                                                \
    static target void ask_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) {     \
        (void)share;                                                                                             \
        ask(job, first, stop, room, wide);                                                                       \
    }                                                                                                            \
    static target void think_over_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) { \
        (void)share;                                                                                             \
        think_over(job, first, stop, room, wide);                                                                \
    }
BLOCK(baseline, 0, )
#if defined(__x86_64__)
BLOCK(avx2, 0, __attribute__((target("avx2,fma"))))
BLOCK(avx512, 1, __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))))
#else
BLOCK(avx2, 0, )
BLOCK(avx512, 0, )
#endif

/* For each instruction set, in the order of `VARIANTS`. */
typedef void Task(const void *job, int64_t first, int64_t stop, float *room, float *share);
static Task *const ASK[] = {ask_baseline, ask_avx2, ask_avx512};
static Task *const THINK_OVER[] = {think_over_baseline, think_over_avx2, think_over_avx512};

/* (batch, length, heads, width) inside rows of `step` numbers. */
static Tensor heads_of(float *first, int64_t length, int64_t step, int64_t width) {
    return (Tensor){first, length * step, step, width};
}

static int attend_both(const Thought *thought, const Projection *heads) {
    const Block *block = thought->block;
    const int64_t length = block->length, width = block->width, dim = block->heads * width;
    Job job = {.batch = block->batch, .length = length, .heads = block->heads, .key_heads = block->key_heads, .width = width};
    job.directions = 3, job.stops = block->stops, job.variant = block->variant, job.threads = block->threads;
    job.team = block->team, job.counts = block->counts, job.rotation = block->rotation;
    job.q = heads_of(heads->q, length, dim, width);
    job.k = heads_of(heads->k, length, block->key_heads * width, width);
    job.v = heads_of(heads->v, length, block->key_heads * width, width);
    job.gates = heads_of(heads->log_forget, length, block->heads, 1);
    job.seen[0] = heads_of(thought->seen, length, 2 * dim, width);
    job.seen[1] = heads_of(thought->seen + dim, length, 2 * dim, width);
    return attend(&job) == 0;
}

static int run_share(const Thought *thought, Task *task, int64_t room) {
    Tokens tokens = {.job = thought, .task = task, .many = thought->projection.tokens, .room = room};
    const int got = run_tokens(&tokens, thought->block->team, thought->block->threads);
    free_tokens(&tokens);
    return got;
}

/* A block on rows of tokens; returns -1 without memory, else 0. */
EXPORT int64_t think(const Block *block) {
    const int64_t tokens = block->batch * block->length, dim = block->heads * block->width;
    const int64_t narrow = block->key_heads * block->width, all = dim + 2 * narrow + block->heads;
    Thought thought = {.block = block,
                       .project = {dim, all, NULL},
                       .output = {2 * dim, dim, NULL},
                       .widen = {dim, block->hidden, NULL},
                       .narrow = {block->hidden, dim, NULL}};
    Projection *heads = &thought.projection;
    *heads = (Projection){.tokens = tokens, .heads = block->heads, .key_heads = block->key_heads, .width = block->width};
    heads->rotation = block->rotation, heads->query_norm = block->query_norm, heads->key_norm = block->key_norm;
    heads->forget_bias = block->forget_bias;
    void **places[] = {(void **)&thought.project.panels, (void **)&thought.output.panels, (void **)&thought.widen.panels,
                       (void **)&thought.narrow.panels,  (void **)&thought.projected,     (void **)&thought.seen,
                       (void **)&heads->q,               (void **)&heads->k,              (void **)&heads->v,
                       (void **)&heads->log_forget};
    const size_t event = sizeof(float) * (size_t)tokens;
    const size_t sizes[] = {packed_size(&thought.project), packed_size(&thought.output), packed_size(&thought.widen),
                            packed_size(&thought.narrow),  event * (size_t)all,          event * (size_t)(2 * dim),
                            event * (size_t)dim,           event * (size_t)narrow,       event * (size_t)narrow,
                            event * (size_t)block->heads};
    int got = allocate(places, sizes, 10);
    if (got) {
        pack_matrix(block->project, &thought.project), pack_matrix(block->output, &thought.output);
        pack_matrix(block->widen, &thought.widen), pack_matrix(block->narrow, &thought.narrow);
        heads->projected = thought.projected;
        got = run_share(&thought, ASK[block->variant], SHARE * block->heads + 8) &&
              attend_both(&thought, heads) &&
              run_share(&thought, THINK_OVER[block->variant], TOGETHER * (2 * dim + block->hidden));
    }
    release(places, 10);
    return got - 1;
}
