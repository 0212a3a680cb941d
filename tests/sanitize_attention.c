/* Compiled attention, the heads that it gets and LayerNorm, on random shapes, steps, lengths and values, for `make
   sanitize`: every tensor lies in memory of exactly its size, what lies between its rows must stay as it was, and threads
   must not change a bit. */

#define WITHOUT_PYTHON
#include "../event2vec/model/compiled_attention.c"
#include <stdio.h>

#define GAP 12345.0f /* what lies between rows */

static uint64_t state = 1;

static int64_t whole(int64_t low, int64_t high) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((state >> 33) % (uint64_t)(high - low + 1));
}

/* Mostly usual numbers; with `wild` also such as no one should send. */
static float number(int wild) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e30f, -1e30f, 1e-40f, 3e38f};
    if (wild && whole(0, 60) == 0) return odd[whole(0, 8)];
    return (float)(whole(0, 6000) - 3000) / 1000;
}

static Tensor make(int64_t batch, int64_t length, int64_t heads, int64_t width, size_t *size) {
    Tensor tensor = {.head = width + whole(0, 3)};
    tensor.event = heads * tensor.head + whole(0, 3);
    tensor.row = length * tensor.event + whole(0, 3);
    *size = (size_t)((batch - 1) * tensor.row + (length - 1) * tensor.event + (heads - 1) * tensor.head + width);
    tensor.first = malloc(sizeof(float) * *size);
    for (size_t i = 0; i < *size; i++) tensor.first[i] = GAP;
    return tensor;
}

static void fill(const Job *job, Tensor tensor, int64_t heads, int64_t width, int wild, int gates) {
    for (int64_t row = 0; row < job->batch; row++)
        for (int64_t event = 0; event < job->length; event++)
            for (int64_t head = 0; head < heads; head++)
                for (int64_t channel = 0; channel < width; channel++) {
                    float value = event < job->counts[row] ? number(wild) : NAN;
                    if (gates && value <= 0 && whole(0, 9) == 0) value = whole(0, 1) ? -INFINITY : 0;
                    at(tensor, row, event, head)[channel] = gates && !wild ? -fabsf(value) : value;
                }
}

/* Complains where a gap has been written, or where anything is left in an answer's padding. */
static void check(const Job *job, Tensor tensor, size_t size, int64_t heads, int64_t width) {
    char *inside = calloc(size, 1);
    for (int64_t row = 0; row < job->batch; row++)
        for (int64_t event = 0; event < job->length; event++)
            for (int64_t head = 0; head < heads; head++)
                for (int64_t channel = 0; channel < width; channel++) {
                    const float *place = at(tensor, row, event, head) + channel;
                    inside[place - tensor.first] = 1;
                    if (event >= job->counts[row] && *place != 0) fprintf(stderr, "padding holds %g\n", *place), abort();
                }
    for (size_t i = 0; i < size; i++)
        if (!inside[i] && tensor.first[i] != GAP) fprintf(stderr, "a gap holds %g\n", tensor.first[i]), abort();
    free(inside);
}

/* Memory of exactly `size` numbers. */
static float *numbers(int64_t size, int wild) {
    float *found = malloc(sizeof(float) * (size_t)size);
    for (int64_t i = 0; i < size; i++) found[i] = number(wild);
    return found;
}

static void one_round(int64_t round) {
    const int wild = round % 3 == 2;
    Job job = {.batch = whole(1, 3), .length = whole(1, round % 10 ? 120 : 700), .key_heads = whole(1, 2)};
    job.heads = job.key_heads * whole(1, 2), job.width = 8 * whole(1, 16), job.directions = whole(1, 3);
    job.stops = whole(0, 1), job.variant = whole(0, variants() - 1);
    int64_t counts[3];
    for (int64_t row = 0; row < job.batch; row++) counts[row] = whole(0, 3) ? whole(0, job.length) : whole(0, 1);
    job.counts = counts;
    size_t size[16];
    const int64_t heads = job.heads, few = job.key_heads, width = job.width;
    Tensor *tensors[] = {&job.q,       &job.k,  &job.v,  &job.gates, &job.gradients[0], &job.gradients[1],
                         &job.seen[0], &job.seen[1], &job.dq, &job.dk, &job.dv, &job.dgates};
    const int64_t head_counts[] = {heads, few, few, heads, heads, heads, heads, heads, heads, few, few, heads};
    const int64_t widths[] = {width, width, width, 1, width, width, width, width, width, width, width, 1};
    for (int i = 0; i < 12; i++) {
        *tensors[i] = make(job.batch, job.length, head_counts[i], widths[i], size + i);
        if (i == 5 || i == 7) { /* both directions have the same steps */
            free(tensors[i]->first);
            *tensors[i] = *tensors[i - 1], size[i] = size[i - 1];
            tensors[i]->first = malloc(sizeof(float) * size[i]);
            for (size_t j = 0; j < size[i]; j++) tensors[i]->first[j] = GAP;
        }
        if (i < 6) fill(&job, *tensors[i], head_counts[i], widths[i], wild, i == 3);
    }
    const int64_t angles = job.batch * job.length * width;
    job.rotation = whole(0, 1) ? numbers(angles, wild) : NULL;
    const size_t norms = (size_t)(2 * job.batch * heads * 2 * job.length);
    job.norms = malloc(sizeof(float) * norms);
    float *kept[12] = {0};
    for (job.threads = 1; job.threads <= 4; job.threads += 3) {
        if (attend(&job) || learn(&job)) abort();
        for (int i = 6; i < 12; i++) {
            if ((i == 6 && !(job.directions & 1)) || (i == 7 && !(job.directions & 2))) continue;
            check(&job, *tensors[i], size[i], head_counts[i], widths[i]);
            if (kept[i] && memcmp(kept[i], tensors[i]->first, sizeof(float) * size[i])) {
                fprintf(stderr, "round %lld: threads change tensor %d\n", (long long)round, i), abort();
            }
            if (!kept[i]) kept[i] = malloc(sizeof(float) * size[i]);
            memcpy(kept[i], tensors[i]->first, sizeof(float) * size[i]);
        }
    }
    for (int i = 0; i < 12; i++) free(kept[i]), free(tensors[i]->first);
    free(job.norms), free((float *)job.rotation);
}

static void one_round_of_heads(int64_t round) {
    const int wild = round % 3 == 2;
    Projection job = {.tokens = whole(0, 400), .key_heads = whole(1, 3), .width = 8 * whole(1, 16)};
    job.heads = job.key_heads * whole(1, 2), job.variant = whole(0, variants() - 1);
    const int64_t dim = job.heads * job.width, few = job.key_heads * job.width;
    const int64_t sizes[] = {dim + 2 * few + job.heads, dim, few, few, job.heads}; /* of a token */
    float *kept[16] = {0}, **places[16] = {(float **)&job.projected, (float **)&job.query_norm, (float **)&job.key_norm,
        (float **)&job.forget_bias, &job.q, &job.k, &job.v, &job.log_forget, (float **)&job.dq, (float **)&job.dk,
        (float **)&job.dv, (float **)&job.dlog_forget, &job.dprojected, &job.dquery_norm, &job.dkey_norm, &job.dforget_bias};
    const int64_t many[] = {job.tokens * sizes[0], dim, few, job.heads, job.tokens * dim, job.tokens * few, job.tokens * few,
        job.tokens * job.heads, job.tokens * dim, job.tokens * few, job.tokens * few, job.tokens * job.heads,
        job.tokens * sizes[0], dim, few, job.heads};
    for (int i = 0; i < 16; i++) *places[i] = numbers(many[i], wild);
    job.rotation = whole(0, 1) ? numbers(job.tokens * job.width, wild) : NULL;
    for (job.threads = 1; job.threads <= 4; job.threads += 3) {
        if (project(&job) || project_back(&job)) abort();
        for (int i = 4; i < 16; i++) {
            if (kept[i] && memcmp(kept[i], *places[i], sizeof(float) * (size_t)many[i]))
                fprintf(stderr, "round %lld: threads change heads %d\n", (long long)round, i), abort();
            if (!kept[i]) kept[i] = malloc(sizeof(float) * (size_t)many[i]);
            memcpy(kept[i], *places[i], sizeof(float) * (size_t)many[i]);
        }
    }
    for (int i = 0; i < 16; i++) free(kept[i]), free(*places[i]);
    free((float *)job.rotation);
}

static void one_round_of_norms(int64_t round) {
    const int wild = round % 3 == 2, both = (int)whole(0, 1), kept_sums = both && whole(0, 1);
    Norm job = {.tokens = whole(0, 600), .width = 8 * whole(1, 16), .relu = whole(0, 1), .variant = whole(0, variants() - 1)};
    const int64_t all = job.tokens * job.width;
    float *kept[10] = {0}, **places[10] = {(float **)&job.rows, (float **)&job.added, (float **)&job.weight, (float **)&job.bias,
        &job.sums, &job.normed, (float **)&job.dnormed, &job.drows, &job.dweight, &job.dbias};
    const int64_t many[] = {all, both ? all : 0, job.width, job.width, kept_sums ? all : 0, all, all, all, job.width, job.width};
    for (int i = 0; i < 10; i++) *places[i] = numbers(many[i], wild);
    float *added = (float *)job.added, *sums = job.sums;
    if (!both) job.added = NULL;
    if (!kept_sums) job.sums = NULL;
    for (job.threads = 1; job.threads <= 4; job.threads += 3) {
        if (norm(&job) || norm_back(&job)) abort();
        for (int i = 5; i < 10; i++) {
            if (kept[i] && memcmp(kept[i], *places[i], sizeof(float) * (size_t)many[i]))
                fprintf(stderr, "round %lld: threads change norm %d\n", (long long)round, i), abort();
            if (!kept[i]) kept[i] = malloc(sizeof(float) * (size_t)many[i]);
            memcpy(kept[i], *places[i], sizeof(float) * (size_t)many[i]);
        }
    }
    job.added = added, job.sums = sums;
    for (int i = 0; i < 10; i++) free(kept[i]), free(*places[i]);
}

static void one_round_of_times(int64_t round) {
    const int wild = round % 3 == 2;
    Convolutions job = {.batch = whole(1, 3), .length = whole(0, 400), .dim = 32 * whole(1, 4), .variant = whole(0, variants() - 1)};
    const int64_t all = job.batch * job.length;
    uint8_t *valid = malloc((size_t)all);
    for (int64_t i = 0; i < all; i++) valid[i] = whole(0, 9) > 0;
    job.valid = valid;
    float *kept[9] = {0}, *inputs[12], *outputs[9];
    job.intervals = inputs[9] = numbers(all, wild), job.dtimes = inputs[10] = numbers(all * job.dim, wild);
    job.times = inputs[11] = numbers(all * job.dim, 0);
    int64_t many[9];
    for (int i = 0; i < 9; i++) {
        many[i] = layer_width(&job, i / 3) * (i % 3 ? 1 : 3);
        inputs[i] = numbers(many[i], wild), outputs[i] = numbers(many[i], 0);
        ((const float **)job.layers)[i] = inputs[i], ((float **)job.dlayers)[i] = outputs[i];
    }
    for (job.threads = 1; job.threads <= 4; job.threads += 3) {
        if (convolve(&job) || convolve_back(&job)) abort();
        for (int i = 0; i < 9; i++) {
            if (kept[i] && memcmp(kept[i], outputs[i], sizeof(float) * (size_t)many[i]))
                fprintf(stderr, "round %lld: threads change times %d\n", (long long)round, i), abort();
            if (!kept[i]) kept[i] = malloc(sizeof(float) * (size_t)many[i]);
            memcpy(kept[i], outputs[i], sizeof(float) * (size_t)many[i]);
        }
    }
    for (int i = 0; i < 9; i++) free(kept[i]), free(outputs[i]);
    for (int i = 0; i < 12; i++) free(inputs[i]);
    free(valid);
}

static void one_round_of_places(int64_t round) {
    const int wild = round % 3 == 2;
    Places job = {.tokens = whole(0, 700), .dim = 32 * whole(1, 4), .variant = whole(0, variants() - 1)};
    float *inputs[10], *kept = NULL;
    job.where = inputs[9] = numbers(3 * job.tokens, wild), job.places = numbers(job.tokens * job.dim, 0);
    for (int i = 0; i < 9; i++) {
        inputs[i] = numbers(place_width(&job, i / 3) * (i % 3 ? 1 : place_inputs(&job, i / 3)), wild);
        ((const float **)job.layers)[i] = inputs[i];
    }
    const size_t size = sizeof(float) * (size_t)(job.tokens * job.dim);
    for (job.threads = 1; job.threads <= 4; job.threads += 3) {
        if (embed_places(&job)) abort();
        if (kept && memcmp(kept, job.places, size)) fprintf(stderr, "round %lld: threads change places\n", (long long)round), abort();
        if (!kept) kept = malloc(size);
        memcpy(kept, job.places, size);
    }
    for (int i = 0; i < 10; i++) free(inputs[i]);
    free(kept), free(job.places);
}

static void one_round_of_blocks(int64_t round) {
    const int wild = round % 3 == 2;
    const int64_t group = whole(1, 2);
    Block job = {.batch = whole(1, 4), .length = whole(1, 200), .hidden = 8 * whole(1, 12), .key_heads = whole(1, 2)};
    job.heads = group * job.key_heads, job.width = 8 * whole(1, 5), job.stops = whole(0, 1), job.variant = whole(0, variants() - 1);
    const int64_t dim = job.heads * job.width, narrow = job.key_heads * job.width, tokens = job.batch * job.length;
    const int64_t many[] = {tokens * dim, (dim + 2 * narrow + job.heads) * dim, dim, narrow, job.heads, 2 * dim * dim, dim, dim,
                            job.hidden * dim, dim * job.hidden, dim, dim};
    float *inputs[12], *rotation = numbers(tokens * job.width, wild), *kept = NULL;
    for (int i = 0; i < 12; i++) ((const float **)&job.tokens)[i] = inputs[i] = numbers(many[i], wild);
    int64_t counts[4];
    for (int i = 0; i < 4; i++) counts[i] = whole(0, job.length);
    job.counts = counts, job.rotation = whole(0, 1) ? rotation : NULL, job.answer = numbers(tokens * dim, 0);
    const size_t size = sizeof(float) * (size_t)(tokens * dim);
    for (job.threads = 1; job.threads <= 4; job.threads += 3) {
        if (think(&job)) abort();
        if (kept && memcmp(kept, job.answer, size)) fprintf(stderr, "round %lld: threads change blocks\n", (long long)round), abort();
        if (!kept) kept = malloc(size);
        memcpy(kept, job.answer, size);
    }
    for (int i = 0; i < 12; i++) free(inputs[i]);
    free(rotation), free(kept), free(job.answer);
}

static void one_round_of_neighbourhoods(int64_t round) {
    const int wild = round % 3 == 2;
    Surroundings job = {.batch = whole(1, 6), .length = whole(0, 200), .sensor_width = whole(1, 60), .sensor_height = whole(1, 60)};
    job.tokens = whole(0, 1) ? job.length : whole(0, 60);
    job.side = whole(1, 32), job.bins = whole(1, 8), job.reach = whole(0, 2), job.width = 2 * whole(0, 4) + 1;
    const int64_t all = job.batch * job.length, asked = job.batch * job.tokens;
    const int64_t size = asked * (2 * job.reach + 1) * 2 * job.width * job.width;
    int64_t *places = malloc(sizeof(int64_t) * (size_t)(asked + 1));
    for (int64_t i = 0; i < asked; i++) places[i] = wild || !job.length ? whole(-3, job.length + 3) : whole(0, job.length - 1);
    float *x = numbers(all, wild), *y = numbers(all, wild), *rho = numbers(all, wild), *kept = NULL;
    int64_t *t = malloc(sizeof(int64_t) * (size_t)all);
    uint8_t *flags[3];
    for (int64_t i = 0; i < all; i++) {
        x[i] *= (float)job.sensor_width / 3, y[i] *= (float)job.sensor_height / 3; /* half of them beside the sensor */
        t[i] = wild && whole(0, 20) == 0 ? (whole(0, 1) ? INT64_MAX : INT64_MIN) : i * 7 + whole(0, 5);
    }
    for (int i = 0; i < 3; i++) {
        flags[i] = malloc((size_t)all);
        for (int64_t j = 0; j < all; j++) flags[i][j] = (uint8_t)whole(0, 1);
    }
    job.x = x, job.y = y, job.rho = rho, job.t = t, job.p = flags[0], job.valid = flags[1];
    job.hidden = whole(0, 1) ? flags[2] : NULL;
    job.places = job.tokens == job.length && whole(0, 1) ? NULL : places;
    job.around = numbers(size, 0);
    for (job.threads = 1; job.threads <= 4; job.threads += 3) {
        if (look_around(&job)) abort();
        if (kept && memcmp(kept, job.around, sizeof(float) * (size_t)size))
            fprintf(stderr, "round %lld: threads change neighbourhoods\n", (long long)round), abort();
        if (!kept) kept = malloc(sizeof(float) * (size_t)size);
        memcpy(kept, job.around, sizeof(float) * (size_t)size);
    }
    for (int i = 0; i < 3; i++) free(flags[i]);
    free(x), free(y), free(rho), free(t), free(kept), free(job.around), free(places);
}

int main(int many, char **arguments) {
    const int64_t rounds = many > 1 ? atoll(arguments[1]) : 1000;
    for (int64_t round = 0; round < rounds; round++) {
        state = (uint64_t)round;
        one_round(round), one_round_of_heads(round), one_round_of_norms(round), one_round_of_times(round);
        one_round_of_neighbourhoods(round), one_round_of_places(round), one_round_of_blocks(round);
    }
    printf("%lld rounds\n", (long long)rounds);
    return 0;
}
