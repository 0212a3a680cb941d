/* Counts of the events around each event, as `neighbourhood.py` says what they are: one pass over a row to count, one over
   its cells for the logs, one to copy what each event sees.

   Part of `compiled_attention.c`; `compiled_rows.py` calls it. A row is one task and its events are counted in their
   order, so neither threads nor other rows change a bit. Whatever coordinates and times are, cells stay inside the grid. */

/* All that a call is given; `compiled_rows.py` has the same structure. Columns are (batch, length). */
typedef struct {
    int64_t batch, length, tokens; /* tokens: events of a row that are asked about */
    int64_t sensor_width, sensor_height, side; /* the sensor, and cells that it is divided into at most along x and y */
    int64_t bins, reach, width;                /* stretches of time; those before and after an event's own; cells it sees */
    int64_t variant, threads;
    Team *team;
    const float *x, *y;
    const int64_t *t;
    const uint8_t *p;
    const float *rho;
    const uint8_t *valid;
    const uint8_t *hidden; /* events that do not count, or NULL */
    const int64_t *places; /* of the tokens in their rows, (batch, tokens); NULL: all events are asked about */
    float *around;         /* (batch, tokens, 2 reach + 1, 2, width, width): ln(1 + count); 0 for padding */
} Surroundings;

/* The grid of one row, with a margin of nothing on all sides in x, y and time. */
typedef struct {
    const Surroundings *job;
    int64_t columns, rows, wide, high, size; /* cells; cells with their margin; numbers of the grid */
    float scale_x, scale_y;
    int64_t next, threads;
    float *grids;
    int32_t *stretches; /* of each event of a row */
} Grid;

static float within(float place, int64_t cells) {
    const float last = (float)(cells - 1);
    return place > 0 ? (place < last ? place : last) : 0; /* also where it is no number */
}

/* Where the cell of a margin's corner is, as seen from that of the sensor: a neighbourhood begins there. */
static float *cell_at(const Grid *grid, float *counts, int64_t stretch, int64_t polarity, int64_t y, int64_t x) {
    return counts + ((stretch * 2 + polarity) * grid->high + y) * grid->wide + x;
}

/* Microseconds since the first event of a row; of padding 0. Unsigned: times may be anything, and this may overflow. */
static int64_t since_first(const Surroundings *job, int64_t first, int64_t event) {
    return job->valid[first + event] ? (int64_t)((uint64_t)job->t[first + event] - (uint64_t)job->t[first]) : 0;
}

/* The stretch of time of each event: as `stretches_of_time` rounds it. */
static void find_stretches(const Surroundings *job, int64_t first, int32_t *stretches) {
    int64_t duration = 1;
    for (int64_t event = 1; event < job->length; event++) {
        const int64_t since = since_first(job, first, event);
        if (since > duration) duration = since;
    }
    for (int64_t event = 0; event < job->length; event++) {
        const float elapsed = (float)since_first(job, first, event) / (float)duration;
        stretches[event] = (int32_t)within(elapsed * (float)job->bins, job->bins);
    }
}

/* Each event is shared among the four cells around it, by distance. */
static void count_row(const Grid *grid, int64_t first, const int32_t *stretches, float *counts) {
    const Surroundings *job = grid->job;
    const int64_t edge = job->width / 2;
    memset(counts, 0, sizeof(float) * (size_t)grid->size);
    for (int64_t event = 0; event < job->length; event++) {
        const int64_t place = first + event;
        if (!job->valid[place] || (job->hidden && job->hidden[place])) continue;
        const float x = within(job->x[place] * grid->scale_x, grid->columns), y = within(job->y[place] * grid->scale_y, grid->rows);
        const int64_t left = (int64_t)x, top = (int64_t)y;
        const float across = x - (float)left, down = y - (float)top;
        /* On the last column or row the neighbour's share is 0, and falls on the margin or beside it. */
        float *cell = cell_at(grid, counts, stretches[event] + job->reach, job->p[place] != 0, top + edge, left + edge);
        cell[0] += (1 - across) * (1 - down) * job->rho[place];
        if (down > 0) cell[grid->wide] += (1 - across) * down * job->rho[place];
        if (across > 0) cell[1] += across * (1 - down) * job->rho[place];
        if (across > 0 && down > 0) cell[grid->wide + 1] += across * down * job->rho[place];
    }
    for (int64_t cell = 0; cell < grid->size; cell++)
        if (counts[cell] != 0) counts[cell] = log1pf(counts[cell]);
}

static void copy_neighbourhoods(const Grid *grid, int64_t row_number, const int32_t *stretches, float *counts) {
    const Surroundings *job = grid->job;
    const int64_t planes = 2 * (2 * job->reach + 1), width = job->width, first = row_number * job->length;
    for (int64_t token = 0; token < job->tokens; token++) {
        const int64_t place = row_number * job->tokens + token, event = job->places ? job->places[place] : token;
        float *to = job->around + place * planes * width * width;
        if (event < 0 || event >= job->length || !job->valid[first + event]) {
            memset(to, 0, sizeof(float) * (size_t)(planes * width * width));
            continue;
        }
        const int64_t x = (int64_t)rintf(within(job->x[first + event] * grid->scale_x, grid->columns));
        const int64_t y = (int64_t)rintf(within(job->y[first + event] * grid->scale_y, grid->rows));
        const float *from = cell_at(grid, counts, stretches[event], 0, y, x);
        for (int64_t plane = 0; plane < planes; plane++, from += grid->high * grid->wide)
            for (int64_t row = 0; row < width; row++, to += width)
                for (int64_t column = 0; column < width; column++) to[column] = from[row * grid->wide + column];
    }
}

static void take_rows(void *data) {
    Grid *grid = data;
    const int64_t thread = __atomic_fetch_add(&grid->threads, 1, __ATOMIC_RELAXED), length = grid->job->length;
    float *counts = grid->grids + thread * grid->size;
    int32_t *stretches = grid->stretches + thread * length;
    for (int64_t row; (row = __atomic_fetch_add(&grid->next, 1, __ATOMIC_RELAXED)) < grid->job->batch;) {
        find_stretches(grid->job, row * length, stretches);
        count_row(grid, row * length, stretches, counts);
        copy_neighbourhoods(grid, row, stretches, counts);
    }
}

/* Logs of the counts around each event; returns -1 without memory, else 0. */
EXPORT int64_t look_around(const Surroundings *job) {
    Grid grid = {.job = job, .columns = smaller(job->sensor_width, job->side), .rows = smaller(job->sensor_height, job->side)};
    grid.wide = grid.columns + job->width - 1, grid.high = grid.rows + job->width - 1;
    grid.size = (job->bins + 2 * job->reach) * 2 * grid.high * grid.wide;
    grid.scale_x = (float)((double)(grid.columns - 1) / (double)(job->sensor_width > 1 ? job->sensor_width - 1 : 1));
    grid.scale_y = (float)((double)(grid.rows - 1) / (double)(job->sensor_height > 1 ? job->sensor_height - 1 : 1));
    const int64_t threads = job->batch < 4 ? 1 : smaller(job->threads, MOST_THREADS); /* all or one, as in `run` */
    void **places[] = {(void **)&grid.grids, (void **)&grid.stretches};
    const size_t sizes[] = {sizeof(float) * (size_t)(threads * grid.size), sizeof(int32_t) * (size_t)(threads * job->length)};
    const int got = allocate(places, sizes, 2);
    if (got) start_threads(job->team, take_rows, &grid, threads);
    release(places, 2);
    return got - 1;
}
