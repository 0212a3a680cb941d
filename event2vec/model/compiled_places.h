/* The spatial embedding phi (Eq. 5) where no gradient is asked for: three products, each with LayerNorm (`embedding.py`).

   Part of `compiled_attention.c`; `compiled_rows.py` calls it. A few events pass through all layers at once, so that what
   lies between the layers never leaves the nearest cache; one call takes the place of six. */

#define GROUP 8 /* events at once: as many products as a CPU has under way */

/* All that a call is given; `compiled_rows.py` has the same structure. */
typedef struct {
    int64_t tokens, dim, variant, threads;
    Team *team;
    const float *where; /* (tokens, 3) */
    struct {
        const float *matrix, *weight, *bias; /* (width, inputs), and of the norm */
    } layers[LAYERS];
    float *places; /* (tokens, dim) */
} Places;

static int64_t place_width(const Places *job, int number) { return (job->dim >> (LAYERS - 1)) << number; }

static int64_t place_inputs(const Places *job, int number) { return number ? place_width(job, number - 1) : 3; }

static int64_t places_room(const Places *job) {
    int64_t room = 2 * GROUP * job->dim;
    for (int number = 0; number < LAYERS; number++) room += place_inputs(job, number) * place_width(job, number);
    return room;
}

/* Products of a group with a matrix that lies by inputs: each number of an event meets vectors of weights. */
static inline __attribute__((always_inline)) void multiply_group(const float *inputs, const float *matrix, float *outputs,
                                                                  int64_t many, int64_t width) {
    for (int64_t channel = 0; channel < width; channel += 8) {
        Eight sums[GROUP] = {{0}};
        for (int64_t input = 0; input < many; input++) {
            const Eight weights = *(const Eight *)(matrix + input * width + channel);
            for (int event = 0; event < GROUP; event++) sums[event] += weights * inputs[event * many + input];
        }
        for (int event = 0; event < GROUP; event++) *(Eight *)(outputs + event * width + channel) = sums[event];
    }
}

static inline __attribute__((always_inline)) void make_places(const Places *job, int64_t first, int64_t stop, float *room) {
    float *inputs = room, *outputs = inputs + GROUP * job->dim, *matrices[LAYERS], *next = outputs + GROUP * job->dim;
    for (int number = 0; number < LAYERS; number++) {
        const int64_t many = place_inputs(job, number), width = place_width(job, number);
        matrices[number] = next, next += many * width;
        for (int64_t channel = 0; channel < width; channel++)
            for (int64_t input = 0; input < many; input++)
                matrices[number][input * width + channel] = job->layers[number].matrix[channel * many + input];
    }
    for (int64_t token = first; token < stop; token += GROUP) {
        for (int64_t event = 0; event < GROUP; event++) /* the last group repeats its last event */
            memcpy(inputs + 3 * event, job->where + 3 * smaller(token + event, stop - 1), 3 * sizeof(float));
        for (int number = 0; number < LAYERS; number++) {
            const int64_t width = place_width(job, number), last = number == LAYERS - 1;
            multiply_group(inputs, matrices[number], outputs, place_inputs(job, number), width);
            for (int64_t event = 0; event < (last ? smaller(GROUP, stop - token) : GROUP); event++)
                normalise_row(outputs + event * width, job->layers[number].weight, job->layers[number].bias, !last,
                              last ? job->places + (token + event) * width : inputs + event * width, width);
        }
    }
}

/* Tasks for one instruction set. */
#define PLACES(name, target)                                                                                     \
    static target void make_places_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) {     \
        (void)share;                                                                                             \
        make_places(job, first, stop, room);                                                                     \
    }
PLACES(baseline, )
#if defined(__x86_64__)
PLACES(avx2, __attribute__((target("avx2,fma"))))
#else
PLACES(avx2, )
#endif

/* The spatial embedding of all events; returns -1 without memory, else 0. */
EXPORT int64_t embed_places(const Places *job) {
    Tokens tokens = {.job = job, .task = job->variant ? make_places_avx2 : make_places_baseline, .many = job->tokens};
    tokens.room = places_room(job);
    const int got = run_tokens(&tokens, job->team, job->threads);
    free_tokens(&tokens);
    return got - 1;
}
