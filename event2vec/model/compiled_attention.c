/* Forgetting attention on a CPU, both directions in one call, forward and backward; `compiled_attention.py` calls it.

   score(i, j) = q_i k_j / sqrt(width) + the sum of the log gates between them, softmax over the events before i and over
   those after i. Everything is in base 2. The gates' sums are taken in float64; between a block of queries and a tile of
   keys they are split at the block's edge, (C_i - C_edge) + (C_edge - C_j), so that float32 holds both parts, and within
   a block they are pairs of float32. As long as no score can overflow, weights are 2^score with nothing taken off; in other
   blocks the largest score is, and scores are kept as two numbers, since the last digit of one is too coarse. Tiles come
   nearest first, and a block stops where all that is left is below rounding.

   With rotations (`relative.py`), what each event sees is rotated back by its own angles where it is written.

   Work is cut into tasks by the shape alone and each task's sums have one order, so the result is the same to the bit
   for any number of threads. Rows end at their count: padding is not read, and answers and gradients there are 0. */

#if !defined(WITHOUT_PYTHON)
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#endif
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LOG2_E 1.4426950408889634
#define SAFE 60.0f      /* log2 of a weight that cannot overflow a sum, nor its inverse */
#define HIDDEN -1e30f   /* the score of a pair that does not count */
#define NOTHING 26.0f   /* log2 of sum over rest where the rest is below rounding */
#define CLOSED -1e5f    /* the log of a gate below which it makes no difference; sums of -infinity have none */
#define CHUNK 512       /* rows that a task packs */
#define WIDEST 128      /* channels of a head */
#define ENOUGH 8        /* tasks of the backward pass that keep a computer busy */
#define SMALL 2e5       /* multiplications for which waking another thread does not pay */
#define MOST_THREADS 256

/* A tensor (batch, length, heads, width): where it begins, and the steps along the first three axes, in numbers. */
typedef struct {
    float *first;
    int64_t row, event, head;
} Tensor;

typedef void Team(void (*work)(void *), void *data, unsigned threads, unsigned flags);

/* All that a call is given; `compiled_attention.py` has the same structure. */
typedef struct {
    int64_t batch, length, heads, key_heads, width;
    int64_t directions; /* 1: what was before, 2: what comes after, 3: both */
    int64_t stops;      /* whether blocks stop where the rest is below rounding */
    int64_t variant, threads;
    Team *team;            /* runs work on several threads; NULL: threads of our own */
    const int64_t *counts; /* valid events of each row; NULL: all */
    const float *rotation; /* (batch, length, 2, width / 2): cosines and sines by which answers are rotated back; or NULL */
    Tensor q, k, v, gates;
    Tensor seen[2]; /* the answer of each direction */
    float *norms;   /* (direction, batch, heads, 2, length): what the backward pass needs of softmax, or NULL */
    Tensor gradients[2];
    Tensor dq, dk, dv, dgates;
} Job;

/* One head of one row. */
typedef struct {
    int64_t width, count, stops;
    float scale, scale2, longest; /* the largest norm of a key; infinite where bounds on scores do not hold */
    const float *q, *keys, *values;
    int64_t q_step, seen_step, gradient_step, query_step;
    const float *rotation; /* of the row's first event, or NULL */
    const double *faded;   /* log2 of the gates, summed over all events before each; one more than events */
    float *seen[2], *tops[2], *sums[2];
    const float *gradients[2];
    float *query_changes, *key_changes, *value_changes;
    double *gate_changes;
} Head;

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t FourPlaces __attribute__((vector_size(16)));
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define MIX(one, other, ...) __builtin_shufflevector(one, other, __VA_ARGS__)
#else
#define UNROLL _Pragma("GCC unroll 16")
#define MIX(one, other, ...) __builtin_shuffle(one, other, (FourPlaces){__VA_ARGS__})
#endif
#define TRANSPOSE(rows)                                                                          \
    do {                                                                                         \
        const Four a = MIX(rows[0], rows[1], 0, 4, 1, 5), b = MIX(rows[0], rows[1], 2, 6, 3, 7); \
        const Four c = MIX(rows[2], rows[3], 0, 4, 1, 5), d = MIX(rows[2], rows[3], 2, 6, 3, 7); \
        rows[0] = MIX(a, c, 0, 1, 4, 5), rows[1] = MIX(a, c, 2, 3, 6, 7);                        \
        rows[2] = MIX(b, d, 0, 1, 4, 5), rows[3] = MIX(b, d, 2, 3, 6, 7);                        \
    } while (0)

/* Pairs of channels half a head apart, rotated by the cosines and sines of an event; with a sign of -1 rotated back. */
static inline __attribute__((always_inline)) void rotate_head(const float *from, float *to, const float *rotation, float sign,
                                                               int64_t width) {
    const int64_t half = width / 2;
    for (int64_t channel = 0; channel < half; channel += 4) {
        const Four cosine = *(const Four *)(rotation + channel), sine = *(const Four *)(rotation + half + channel) * sign;
        const Four first = *(const Four *)(from + channel), second = *(const Four *)(from + half + channel);
        *(Four *)(to + channel) = first * cosine - second * sine;
        *(Four *)(to + half + channel) = second * cosine + first * sine;
    }
}

#define JOIN_(one, other) one##_##other
#define JOIN(one, other) JOIN_(one, other)
#define NAME(name) JOIN(name, SET)

#if defined(__x86_64__)
#include <immintrin.h>
#define SET avx512
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#define LANES 16
#define VECTORS 2
#define ROWS 8
#define TILE_BLOCKS 3
#define LARGER(one, other) ((Vector)_mm512_max_ps((__m512)(one), (__m512)(other)))
#include "compiled_attention_kernel.h"
#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define VECTORS 3
#define ROWS 4
#define TILE_BLOCKS 3
#define LARGER(one, other) ((Vector)_mm256_max_ps((__m256)(one), (__m256)(other)))
#include "compiled_attention_kernel.h"
#endif
#define SET baseline
#define TARGET
#define LANES 4
#define VECTORS 3
#define ROWS 4
#define TILE_BLOCKS 6
#if defined(__x86_64__)
#define LARGER(one, other) ((Vector)_mm_max_ps((__m128)(one), (__m128)(other)))
#else
#define LARGER(one, other) \
    ((Vector)(((Bits)(one) & (Bits)((one) > (other))) | ((Bits)(other) & ~(Bits)((one) > (other)))))
#endif
#include "compiled_attention_kernel.h"

typedef struct {
    int64_t block, lanes, tile;
    void (*forward)(const Head *, int64_t, float *), (*backward)(const Head *, int64_t, float *);
} Variant;

static const Variant VARIANTS[] = {
    {12, 4, 72, forward_baseline, backward_baseline},
#if defined(__x86_64__)
    {24, 8, 72, forward_avx2, backward_avx2},
    {32, 16, 96, forward_avx512, backward_avx512},
#endif
};

/* How many of the variants this machine can run, from the plainest on. */
EXPORT int64_t variants(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return 3;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 2;
#endif
    return 1;
}

/* What the tasks of a call share. */
typedef struct Work {
    const Job *job;
    const Variant *variant;
    int64_t chunks, blocks, padded, filled, parts, segments, shared; /* `shared` heads of a task of the backward pass */
    float *keys, *values, *longest, *scratch, *changes;
    double *faded, *gate_changes;
    size_t scratch_size;
    void (*task)(const struct Work *, int64_t, float *);
    int64_t tasks, next, threads;
} Work;

static int64_t smaller(int64_t one, int64_t other) { return one < other ? one : other; }

static int64_t divide_up(int64_t many, int64_t by) { return (many + by - 1) / by; }

static float *at(Tensor tensor, int64_t row, int64_t event, int64_t head) {
    return tensor.first + row * tensor.row + event * tensor.event + head * tensor.head;
}

static int64_t count_of(const Job *job, int64_t row) {
    const int64_t count = job->counts ? job->counts[row] : job->length;
    return count < 0 ? 0 : smaller(count, job->length);
}

/* Tasks one after the other, for whoever has none. */
static void take_tasks(void *data) {
    Work *work = data;
    const int64_t thread = __atomic_fetch_add(&work->threads, 1, __ATOMIC_RELAXED);
    float *scratch = work->scratch + (size_t)thread * work->scratch_size;
    for (int64_t task; (task = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->tasks;)
        work->task(work, task, scratch);
}

typedef struct {
    void (*take)(void *);
    void *work;
} Take;

/* On every thread, denormal numbers are taken as 0: they would cost time, and since torch's threads may keep them or not
   (`tune_cpu`), the result would depend on which thread took a task. The thread's own mode is restored afterwards. */
static void take_without_denormals(void *data) {
    const Take *own = data;
#if defined(__x86_64__)
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | (uint64_t)1 << 24));
#endif
    own->take(own->work);
#if defined(__x86_64__)
    _mm_setcsr(mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#endif
}

static void *run_thread(void *data) {
    take_without_denormals(data);
    return NULL;
}

/* The same work on several threads, which share its tasks among themselves. */
static void start_threads(Team *team, void (*take)(void *), void *work, int64_t threads) {
    Take own = {take, work};
    if (threads > 1 && team) {
        team(take_without_denormals, &own, (unsigned)threads, 0);
        return;
    }
    pthread_t started[MOST_THREADS];
    int64_t many = 0;
    while (many + 1 < threads && pthread_create(started + many, NULL, run_thread, &own) == 0) many++;
    take_without_denormals(&own);
    while (many) pthread_join(started[--many], NULL);
}

/* All threads or one: OpenMP ends and starts threads wherever a team has another size than the last one. */
static void run(Work *work, void (*task)(const Work *, int64_t, float *), int64_t tasks, int64_t threads) {
    work->task = task, work->tasks = tasks, work->next = work->threads = 0;
    start_threads(work->job->team, take_tasks, work, tasks > 1 ? threads : 1);
}

/* Rows of one key head next to each other, and the largest norm among the keys; infinity where a number is not finite. */
static void pack_rows(const Work *work, int64_t row, int64_t head, int64_t chunk) {
    const Job *job = work->job;
    const int64_t width = job->width, count = count_of(job, row), stop = smaller((chunk + 1) * CHUNK, work->padded);
    const int64_t place = row * job->key_heads + head;
    float *keys = work->keys + place * work->padded * width, *values = work->values + place * work->padded * width;
    float most = 0;
    for (int64_t event = chunk * CHUNK; event < stop; event++) {
        if (event >= count) {
            if (event >= divide_up(count, work->variant->block) * work->variant->block) break;
            memset(keys + event * width, 0, sizeof(float) * (size_t)width);
            memset(values + event * width, 0, sizeof(float) * (size_t)width);
            continue;
        }
        const float *k = at(job->k, row, event, head), *v = at(job->v, row, event, head);
        Four squares = {0}, others = {0};
        for (int64_t channel = 0; channel < width; channel += 4) {
            const Four one = *(const Four *)(k + channel), two = *(const Four *)(v + channel);
            *(Four *)(keys + event * width + channel) = one;
            *(Four *)(values + event * width + channel) = two;
            squares += one * one, others += two * two;
        }
        const float square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
        const float other = (others[0] + others[1]) + (others[2] + others[3]);
        if (!(square + other < INFINITY)) most = INFINITY;
        most = square > most ? square : most;
    }
    work->longest[place * work->chunks + chunk] = sqrtf(most) * 1.000001f;
}

/* Log2 of the gates, summed over the events before each; 0 comes first where a gate is NaN or above 1, else 1. */
static void sum_gates(const Work *work, int64_t row, int64_t head) {
    const Job *job = work->job;
    const int64_t count = count_of(job, row);
    double *faded = work->faded + (row * job->heads + head) * (job->length + 2), sum = 0;
    int usual = 1;
    faded[1] = 0;
    for (int64_t event = 0; event < count; event++) {
        const float gate = *at(job->gates, row, event, head);
        usual &= gate <= 0;
        sum += (gate < CLOSED ? CLOSED : (double)gate) * LOG2_E;
        faded[event + 2] = sum;
    }
    faded[0] = usual;
}

static void prepare(const Work *work, int64_t task, float *scratch) {
    const Job *job = work->job;
    const int64_t packing = job->batch * job->key_heads * work->chunks;
    (void)scratch;
    if (task < packing) {
        const int64_t place = task / work->chunks;
        pack_rows(work, place / job->key_heads, place % job->key_heads, task % work->chunks);
    } else {
        sum_gates(work, (task - packing) / job->heads, (task - packing) % job->heads);
    }
}

/* The tops of one head's rows, and after them the sums. */
static float *norms_of(const Job *job, int64_t after, int64_t row, int64_t head) {
    if (!job->norms) return NULL;
    return job->norms + ((after * job->batch + row) * job->heads + head) * 2 * job->length;
}

static Head describe(const Work *work, int64_t row, int64_t number) {
    const Job *job = work->job;
    const int64_t shared = row * job->key_heads + number / (job->heads / job->key_heads);
    const double *faded = work->faded + (row * job->heads + number) * (job->length + 2);
    Head head = {.width = job->width, .count = count_of(job, row), .stops = job->stops};
    head.scale = (float)(1 / sqrt((double)job->width));
    head.scale2 = (float)(LOG2_E / sqrt((double)job->width));
    for (int64_t chunk = 0; chunk < work->chunks; chunk++)
        head.longest = fmaxf(head.longest, work->longest[shared * work->chunks + chunk]);
    if (faded[0] == 0) head.longest = INFINITY;
    head.q = at(job->q, row, 0, number), head.q_step = job->q.event;
    head.keys = work->keys + shared * work->padded * job->width;
    head.values = work->values + shared * work->padded * job->width;
    head.faded = faded + 1;
    if (job->rotation) head.rotation = job->rotation + row * job->length * job->width;
    for (int after = 0; after < 2; after++) {
        if (!(job->directions >> after & 1)) continue;
        head.seen[after] = at(job->seen[after], row, 0, number);
        head.tops[after] = norms_of(job, after, row, number);
        if (head.tops[after]) head.sums[after] = head.tops[after] + job->length;
    }
    head.seen_step = job->seen[0].event;
    return head;
}

static void clear(Tensor tensor, int64_t row, int64_t first, int64_t stop, int64_t head, int64_t width) {
    for (int64_t event = first; event < stop; event++)
        memset(at(tensor, row, event, head), 0, sizeof(float) * (size_t)width);
}

static void attend_task(const Work *work, int64_t task, float *scratch) {
    const Job *job = work->job;
    const int64_t start = task % work->blocks * work->variant->block, place = task / work->blocks;
    const int64_t row = place / job->heads, number = place % job->heads, count = count_of(job, row);
    if (start < count) {
        const Head head = describe(work, row, number);
        work->variant->forward(&head, start, scratch);
    }
    const int64_t stop = smaller(start + work->variant->block, job->length);
    const int64_t end = start < count ? smaller(count, stop) : start;
    for (int after = 0; after < 2; after++) {
        if (!(job->directions >> after & 1)) continue;
        clear(job->seen[after], row, end, stop, number, job->width);
        float *norms = norms_of(job, after, row, number);
        if (norms) memset(norms + end, 0, sizeof(float) * (size_t)(stop - end));
        if (norms) memset(norms + job->length + end, 0, sizeof(float) * (size_t)(stop - end));
    }
}

/* Memory for a call, in places of their own so that sanitizers see where each ends; 0 where there is not enough. */
static int allocate(void **places[], const size_t sizes[], int many) {
    int got = 1;
    for (int i = 0; i < many; i++) got &= (*places[i] = aligned_alloc(64, (sizes[i] + 64) / 64 * 64)) != NULL;
    return got;
}

static void release(void **places[], int many) {
    for (int i = 0; i < many; i++) free(*places[i]);
}

static Work plan(const Job *job) {
    const Variant *variant = VARIANTS + job->variant;
    Work work = {.job = job, .variant = variant, .segments = 1, .shared = 1};
    work.chunks = divide_up(job->length, CHUNK);
    work.blocks = divide_up(job->length, variant->block);
    work.padded = work.blocks * variant->block;
    work.filled = divide_up(job->width, variant->lanes) * variant->lanes;
    work.scratch_size =
        (size_t)(variant->block * (5 * work.filled + 2 * variant->block + 2 * variant->tile) + 63) / 64 * 64 + 16;
    return work;
}

static int64_t choose_threads(const Job *job) {
    const double size = (double)job->batch * (double)job->heads * (double)job->length * (double)job->length * (double)job->width;
    return size < SMALL ? 1 : smaller(job->threads, MOST_THREADS);
}

/* Answers of the directions asked for; returns -1 without memory, else 0. */
EXPORT int64_t attend(const Job *job) {
    Work work = plan(job);
    const int64_t threads = choose_threads(job);
    const size_t rows = (size_t)(job->batch * job->key_heads), packed = rows * (size_t)(work.padded * job->width);
    void **places[] = {(void **)&work.keys, (void **)&work.values, (void **)&work.longest, (void **)&work.faded,
                       (void **)&work.scratch};
    const size_t sizes[] = {sizeof(float) * packed, sizeof(float) * packed, sizeof(float) * rows * (size_t)work.chunks,
                            sizeof(double) * (size_t)(job->batch * job->heads * (job->length + 2)),
                            sizeof(float) * work.scratch_size * (size_t)threads};
    const int got = allocate(places, sizes, 5);
    if (got) {
        run(&work, prepare, job->batch * (job->key_heads * work.chunks + job->heads), threads);
        run(&work, attend_task, job->batch * job->heads * work.blocks, threads);
    }
    release(places, 5);
    return got - 1;
}

/* Where a task of the backward pass leaves its share: keys, then values; and the gates' beside. */
static float *share_of(const Work *work, int64_t task) { return work->changes + task * 2 * work->padded * work->filled; }

static void learn_task(const Work *work, int64_t task, float *scratch) {
    const Job *job = work->job;
    const int64_t segment = task % work->segments, place = task / work->segments * work->shared;
    const int64_t row = place / job->heads, first_head = place % job->heads, count = count_of(job, row);
    const int64_t size = divide_up(work->blocks, work->segments) * work->variant->block;
    const int64_t rows = divide_up(count, work->variant->block) * work->variant->block;
    float *keys = share_of(work, task), *values = keys + work->padded * work->filled;
    memset(keys, 0, sizeof(float) * (size_t)(rows * work->filled));
    memset(values, 0, sizeof(float) * (size_t)(rows * work->filled));
    for (int64_t number = first_head; number < first_head + work->shared; number++) {
        Head head = describe(work, row, number);
        head.key_changes = keys, head.value_changes = values;
        head.gate_changes =
            work->gate_changes + ((row * job->heads + number) * work->segments + segment) * (job->length + 1);
        memset(head.gate_changes, 0, sizeof(double) * (size_t)(count + 1));
        head.query_changes = at(job->dq, row, 0, number), head.query_step = job->dq.event;
        for (int after = 0; after < 2; after++)
            if (head.seen[after]) head.gradients[after] = at(job->gradients[after], row, 0, number);
        head.gradient_step = job->gradients[0].event;
        for (int64_t start = segment * size; start < smaller(segment * size + size, count); start += work->variant->block)
            work->variant->backward(&head, start, scratch);
        if (segment == 0) clear(job->dq, row, count, job->length, number, job->width);
    }
}

/* Adds up the shares of keys and values of one key head, in the order of their tasks. */
static void add_rows(const Work *work, int64_t row, int64_t head, int64_t chunk) {
    const Job *job = work->job;
    const int64_t count = count_of(job, row), stop = smaller((chunk + 1) * CHUNK, job->length);
    const int64_t first_share = (row * job->key_heads + head) * work->parts;
    for (int64_t event = chunk * CHUNK; event < smaller(stop, count); event++) {
        float *dk = at(job->dk, row, event, head), *dv = at(job->dv, row, event, head);
        for (int64_t part = 0; part < work->parts; part++) {
            const float *keys = share_of(work, first_share + part) + event * work->filled;
            const float *values = keys + work->padded * work->filled;
            for (int64_t channel = 0; channel < job->width; channel++) {
                dk[channel] = part ? dk[channel] + keys[channel] : keys[channel];
                dv[channel] = part ? dv[channel] + values[channel] : values[channel];
            }
        }
    }
    const int64_t first = count > chunk * CHUNK ? count : chunk * CHUNK;
    clear(job->dk, row, first, stop, head, job->width);
    clear(job->dv, row, first, stop, head, job->width);
}

/* A gate is in the sums of all events after it. */
static void add_gates(const Work *work, int64_t row, int64_t head) {
    const Job *job = work->job;
    const int64_t count = count_of(job, row);
    const double *changes = work->gate_changes + (row * job->heads + head) * work->segments * (job->length + 1);
    double sum = 0;
    for (int64_t event = count; event-- > 0;) {
        for (int64_t segment = 0; segment < work->segments; segment++)
            sum += changes[segment * (job->length + 1) + event + 1];
        *at(job->dgates, row, event, head) = (float)sum;
    }
    clear(job->dgates, row, count, job->length, head, 1);
}

static void add_up(const Work *work, int64_t task, float *scratch) {
    const Job *job = work->job;
    const int64_t adding = job->batch * job->key_heads * work->chunks;
    (void)scratch;
    if (task < adding) {
        const int64_t place = task / work->chunks;
        add_rows(work, place / job->key_heads, place % job->key_heads, task % work->chunks);
    } else {
        add_gates(work, (task - adding) / job->heads, (task - adding) % job->heads);
    }
}

/* Gradients of q, k, v and the gates; returns -1 without memory, else 0. A task takes all queries that share a key head
   where that makes enough tasks; else those of one head, or of a segment of it. */
EXPORT int64_t learn(const Job *job) {
    Work work = plan(job);
    const int64_t threads = choose_threads(job), group = job->heads / job->key_heads;
    const int64_t rows = job->batch * job->key_heads;
    if (rows >= ENOUGH) work.shared = group;
    else work.segments = smaller(smaller(divide_up(ENOUGH, rows * group), 4), divide_up(job->length, CHUNK));
    work.parts = group / work.shared * work.segments;
    const size_t packed = (size_t)(rows * work.padded * job->width), tasks = (size_t)(rows * work.parts);
    void **places[] = {(void **)&work.keys,    (void **)&work.values,  (void **)&work.longest,     (void **)&work.faded,
                       (void **)&work.scratch, (void **)&work.changes, (void **)&work.gate_changes};
    const size_t sizes[] = {sizeof(float) * packed,
                            sizeof(float) * packed,
                            sizeof(float) * (size_t)(rows * work.chunks),
                            sizeof(double) * (size_t)(job->batch * job->heads * (job->length + 2)),
                            sizeof(float) * work.scratch_size * (size_t)threads,
                            sizeof(float) * tasks * (size_t)(2 * work.padded * work.filled),
                            sizeof(double) * (size_t)(job->batch * job->heads * work.segments * (job->length + 1))};
    const int got = allocate(places, sizes, 7);
    if (got) {
        run(&work, prepare, job->batch * (job->key_heads * work.chunks + job->heads), threads);
        run(&work, learn_task, (int64_t)tasks, threads);
        run(&work, add_up, job->batch * (job->key_heads * work.chunks + job->heads), threads);
    }
    release(places, 7);
    return got - 1;
}

#include "compiled_rows.h"
#include "compiled_times.h"
#include "compiled_places.h"
#include "compiled_neighbourhood.h"
#include "compiled_block.h"

/* What `compiled_attention.py` compares with its own: raise both when the arguments of a function change. */
EXPORT int64_t interface(void) { return 6; }

#if !defined(WITHOUT_PYTHON)
/* Python builds and finds the library as a module; its functions are called through ctypes, which releases the GIL. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "event2vec.model._compiled_attention", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled_attention(void) { return PyModule_Create(&module); }
#endif
