/* The temporal embedding: three convolutions over the intervals between events, each with LayerNorm (`embedding.py`).

   Part of `compiled_attention.c`; `compiled_rows.py` calls it. A task makes SHARE events of one row from the intervals
   alone, with EDGE more on both sides, which its neighbours make too: nothing is handed from task to task, and nothing but
   the intervals is kept for the backward pass. Each channel of a layer feeds two of the next, so rows are spread to two
   equal numbers for each channel, and then a convolution is a product channel by channel. */

#define LAYERS 3
#define EDGE LAYERS

/* All that a call is given; `compiled_rows.py` has the same structure. */
typedef struct {
    int64_t batch, length, dim, variant, threads;
    Team *team;
    const uint8_t *valid;   /* (batch, length) */
    const float *intervals; /* (batch, length) */
    struct {
        const float *kernel, *weight, *bias; /* (width, 3), and of the norm */
    } layers[LAYERS];
    float *times; /* (batch, length, dim) */
    const float *dtimes;
    struct {
        float *kernel, *weight, *bias;
    } dlayers[LAYERS];
} Convolutions;

/* Where the numbers of a layer lie in a thread's room: rows from EDGE before its first event to EDGE after its last. */
typedef struct {
    int64_t width;
    float *taps[3];          /* the kernel's, one after the other */
    float *inputs, *outputs; /* of the convolution */
    float *changes;          /* gradients of the outputs, 0 where there is none; with a row more on each side */
    float *dtaps[3];
} Layer;

static int64_t layer_width(const Convolutions *job, int number) { return (job->dim >> (LAYERS - 1)) << number; }

/* The widths of all layers before this one: each is as wide as those before it and the first together. */
static int64_t widths_before(const Convolutions *job, int number) { return layer_width(job, number) - layer_width(job, 0); }

static int64_t times_room(const Convolutions *job) {
    return job->dim + widths_before(job, LAYERS) * (6 + 3 * (SHARE + 2 * EDGE) + 2);
}

/* A share has each layer's kernel, weights and biases. */
static int64_t times_share(const Convolutions *job, int number) { return 5 * widths_before(job, number); }

static inline __attribute__((always_inline)) void lay_out(const Convolutions *job, Layer *layers, float *room) {
    for (int number = 0; number < LAYERS; number++) {
        Layer *layer = layers + number;
        layer->width = layer_width(job, number);
        for (int tap = 0; tap < 3; tap++, room += 2 * layer->width) {
            layer->taps[tap] = room, layer->dtaps[tap] = room + layer->width;
            for (int64_t channel = 0; channel < layer->width; channel++)
                room[channel] = job->layers[number].kernel[3 * channel + tap];
        }
        const int64_t size = layer->width * (SHARE + 2 * EDGE);
        layer->inputs = room, layer->outputs = room + size, layer->changes = room + 2 * size + layer->width;
        room += 3 * size + 2 * layer->width;
    }
}

/* Whether a row has an event at this place. */
static inline __attribute__((always_inline)) int is_real(const Convolutions *job, int64_t row, int64_t event) {
    return event >= 0 && event < job->length && job->valid[row * job->length + event];
}

static inline __attribute__((always_inline)) void convolve_row(const Layer *layer, int64_t place) {
    const int64_t width = layer->width;
    const float *before = layer->inputs + (place - 1) * width, *own = before + width, *after = own + width;
    for (int64_t channel = 0; channel < width; channel += 8)
        *(Eight *)(layer->outputs + place * width + channel) =
            *(const Eight *)(before + channel) * *(const Eight *)(layer->taps[0] + channel) +
            *(const Eight *)(own + channel) * *(const Eight *)(layer->taps[1] + channel) +
            *(const Eight *)(after + channel) * *(const Eight *)(layer->taps[2] + channel);
}

/* All layers for the events from `first` to `stop` of a row; the last one's norm is left out. */
static inline __attribute__((always_inline)) void run_layers(const Convolutions *job, Layer *layers, int64_t row, int64_t first,
                                                              int64_t stop, float *normed) {
    const int64_t rows = stop - first + 2 * EDGE;
    for (int64_t place = 0; place < rows; place++) {
        const int64_t event = first - EDGE + place;
        const int inside = event >= 0 && event < job->length;
        const float interval = inside ? job->intervals[row * job->length + event] : 0;
        for (int64_t channel = 0; channel < layers->width; channel++) layers->inputs[place * layers->width + channel] = interval;
    }
    for (int number = 0; number < LAYERS; number++) {
        const Layer *layer = layers + number;
        for (int64_t place = number + 1; place < rows - number - 1; place++) {
            convolve_row(layer, place);
            if (number == LAYERS - 1) continue;
            float *spread = layer[1].inputs + place * layer[1].width;
            if (!is_real(job, row, first - EDGE + place)) {
                memset(spread, 0, sizeof(float) * (size_t)layer[1].width);
                continue;
            }
            normalise_row(layer->outputs + place * layer->width, job->layers[number].weight, job->layers[number].bias, 1, normed,
                          layer->width);
            for (int64_t channel = 0; channel < layer->width; channel += 4) {
                const Four values = *(const Four *)(normed + channel);
                *(Four *)(spread + 2 * channel) = MIX(values, values, 0, 0, 1, 1);
                *(Four *)(spread + 2 * channel + 4) = MIX(values, values, 2, 2, 3, 3);
            }
        }
    }
}

/* The row and the first event of a task: tasks do not reach from row to row. */
static inline __attribute__((always_inline)) int64_t place_task(const Convolutions *job, int64_t token, int64_t *row, int64_t *first) {
    const int64_t padded = divide_up(job->length, SHARE) * SHARE;
    *row = token / padded, *first = token % padded;
    return smaller(*first + SHARE, job->length);
}

static inline __attribute__((always_inline)) void make_times(const Convolutions *job, int64_t token, float *room) {
    Layer layers[LAYERS];
    int64_t row, first;
    const int64_t stop = place_task(job, token, &row, &first);
    lay_out(job, layers, room + job->dim);
    run_layers(job, layers, row, first, stop, room);
    const Layer *last = layers + LAYERS - 1;
    for (int64_t event = first; event < stop; event++)
        normalise_row(last->outputs + (event - first + EDGE) * last->width, job->layers[LAYERS - 1].weight,
                      job->layers[LAYERS - 1].bias, 0, job->times + (row * job->length + event) * job->dim, last->width);
}

/* From the gradients of a layer's outputs to those of its kernel, and to those of what its input was spread from. */
static inline __attribute__((always_inline)) void convolve_row_back(const Layer *layer, int64_t place, float *gradient) {
    const int64_t width = layer->width;
    const float *before = layer->changes + (place - 1) * width, *own = before + width, *after = own + width;
    for (int64_t channel = 0; channel < width; channel += 8) {
        const Eight input = *(const Eight *)(layer->inputs + place * width + channel);
        const Eight changes[3] = {*(const Eight *)(after + channel), *(const Eight *)(own + channel), *(const Eight *)(before + channel)};
        Eight sum = {0};
        for (int tap = 0; tap < 3; tap++) {
            *(Eight *)(layer->dtaps[tap] + channel) += changes[tap] * input;
            sum += changes[tap] * *(const Eight *)(layer->taps[tap] + channel);
        }
        *(Eight *)(gradient + channel) = sum;
    }
}

static inline __attribute__((always_inline)) void make_times_back(const Convolutions *job, int64_t token, float *room, float *share) {
    Layer layers[LAYERS];
    int64_t row, first;
    float *gradient = room;
    const int64_t stop = place_task(job, token, &row, &first), rows = stop - first + 2 * EDGE;
    lay_out(job, layers, room + job->dim);
    run_layers(job, layers, row, first, stop, room);
    memset(share, 0, sizeof(float) * (size_t)times_share(job, LAYERS));
    for (int number = LAYERS - 1; number >= 0; number--) {
        const Layer *layer = layers + number;
        const int64_t width = layer->width;
        float *weights = share + times_share(job, number) + 3 * width;
        memset(layer->changes - width, 0, sizeof(float) * (size_t)(width * (rows + 2)));
        for (int tap = 0; tap < 3; tap++) memset(layer->dtaps[tap], 0, sizeof(float) * (size_t)width);
        for (int64_t place = number + 1; place < rows - number - 1; place++) {
            const int64_t event = first - EDGE + place;
            float *changes = layer->changes + place * width;
            const float *upstream = changes;
            if (number == LAYERS - 1) {
                upstream = job->dtimes + (row * job->length + event) * width;
            } else {
                const float *inputs = layer[1].inputs + place * layer[1].width;
                convolve_row_back(layer + 1, place, gradient);
                if (!is_real(job, row, event)) continue;
                for (int64_t channel = 0; channel < width; channel += 4) {
                    const Four one = *(const Four *)(gradient + 2 * channel), two = *(const Four *)(gradient + 2 * channel + 4);
                    const Four input = MIX(*(const Four *)(inputs + 2 * channel), *(const Four *)(inputs + 2 * channel + 4), 0, 2, 4, 6);
                    const Four sums = MIX(one, two, 0, 2, 4, 6) + MIX(one, two, 1, 3, 5, 7);
                    *(Four *)(changes + channel) = (Four)((FourPlaces)sums & ~(FourPlaces)(input <= 0)); /* NaN stays */
                }
            }
            normalise_row_back(layer->outputs + place * width, upstream, job->layers[number].weight, weights, changes, width);
        }
    }
    for (int64_t place = 0; place < rows; place++) convolve_row_back(layers, place, gradient);
    for (int number = 0; number < LAYERS; number++)
        for (int tap = 0; tap < 3; tap++)
            for (int64_t channel = 0; channel < layers[number].width; channel++)
                share[times_share(job, number) + 3 * channel + tap] = layers[number].dtaps[tap][channel];
}

/* Tasks for one instruction set. */
#define TIMES(name, target)                                                                                      \
    static target void make_times_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) {      \
        (void)stop, (void)share;                                                                                 \
        make_times(job, first, room);                                                                            \
    }                                                                                                            \
    static target void make_times_back_##name(const void *job, int64_t first, int64_t stop, float *room, float *share) { \
        (void)stop;                                                                                              \
        make_times_back(job, first, room, share);                                                                \
    }
TIMES(baseline, )
#if defined(__x86_64__)
TIMES(avx2, __attribute__((target("avx2,fma"))))
#else
TIMES(avx2, )
#endif

/* The temporal embedding of all events; returns -1 without memory, else 0. */
EXPORT int64_t convolve(const Convolutions *job) {
    Tokens tokens = {.job = job, .task = job->variant ? make_times_avx2 : make_times_baseline, .room = times_room(job)};
    tokens.many = job->batch * divide_up(job->length, SHARE) * SHARE;
    const int got = run_tokens(&tokens, job->team, job->threads);
    free_tokens(&tokens);
    return got - 1;
}

/* Gradients of the kernels and norms; returns -1 without memory, else 0. */
EXPORT int64_t convolve_back(const Convolutions *job) {
    Tokens tokens = {.job = job, .task = job->variant ? make_times_back_avx2 : make_times_back_baseline, .room = times_room(job)};
    tokens.many = job->batch * divide_up(job->length, SHARE) * SHARE, tokens.size = times_share(job, LAYERS);
    const int got = run_tokens(&tokens, job->team, job->threads);
    for (int number = 0; got && number < LAYERS; number++) {
        const int64_t width = layer_width(job, number), first = times_share(job, number);
        add_shares(&tokens, first, 3 * width, job->dlayers[number].kernel);
        add_shares(&tokens, first + 3 * width, width, job->dlayers[number].weight);
        add_shares(&tokens, first + 4 * width, width, job->dlayers[number].bias);
    }
    free_tokens(&tokens);
    return got - 1;
}
