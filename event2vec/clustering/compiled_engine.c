/* The phases of Alg. 1 for the events of one polarity on a CPU; `compiled_engine.py` calls them.

   Most of the time is spent on finding the nearest centres of points, and most centres can be ruled out. Points come in
   an order that keeps neighbours together. A run of them fits in a box, and a centre cannot be the nearest of any if it
   is farther from the box than the farthest point of the run is from some other centre. So a long run rules out most
   centres, a short run within it rules out most of the rest, and the few that remain are compared with every point of
   the short run at once, which the compiler turns into vector instructions.

   Ruling out is exact in floating point too: subtracting, squaring and adding are monotonic under rounding, so the
   distance to the box never exceeds the distance to a point in it. Nothing is fused (-ffp-contract=off), so vectors of
   any width give the same bits.

   Points and centres are columns: all x, then all y, then all t. Functions that allocate return -1 if they cannot. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Two centres at a time need more registers than there are, and take 20 % longer. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-loop-unroll-and-jam")
#endif

#define LONG_RUN 256
#define SHORT_RUN 32

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

typedef struct {
    const double *x, *y, *t;
} Columns;

INLINE Columns columns(const double *values, int64_t count) {
    return (Columns){values, values + count, values + 2 * count};
}

INLINE double square(double x, double y, double t) { return x * x + y * y + t * t; }

INLINE double smaller(double one, double other) { return one < other ? one : other; }

INLINE double larger(double one, double other) { return one > other ? one : other; }

INLINE double outside(double low, double high, double value) { return larger(larger(low - value, value - high), 0); }

/* Find the centres that may be among the `wanted` nearest to a point of the run; `room` holds `count` numbers. */
INLINE int64_t within_reach(Columns points, int64_t first, int64_t last, Columns centres, int64_t count, int wanted,
                            double *room, int32_t *reached) {
    double left = points.x[first], right = left, top = points.y[first], bottom = top, from = points.t[first], to = from;
    for (int64_t i = first + 1; i < last; i++) {
        left = smaller(left, points.x[i]), right = larger(right, points.x[i]);
        top = smaller(top, points.y[i]), bottom = larger(bottom, points.y[i]);
        from = smaller(from, points.t[i]), to = larger(to, points.t[i]);
    }
    double x = (left + right) / 2, y = (top + bottom) / 2, t = (from + to) / 2;
    for (int64_t j = 0; j < count; j++) room[j] = square(centres.x[j] - x, centres.y[j] - y, centres.t[j] - t);
    double reach = 0; /* the largest distance of a point of the run to the centres closest to its middle */
    for (int rank = 0; rank < wanted; rank++) {
        double least = DBL_MAX;
        for (int64_t j = 0; j < count; j++) least = smaller(least, room[j]);
        int64_t middle = 0;
        while (middle + 1 < count && room[middle] != least) middle++;
        room[middle] = DBL_MAX;
        for (int64_t i = first; i < last; i++)
            reach = larger(reach, square(points.x[i] - centres.x[middle], points.y[i] - centres.y[middle],
                                         points.t[i] - centres.t[middle]));
    }
    for (int64_t j = 0; j < count; j++)
        room[j] = square(outside(left, right, centres.x[j]), outside(top, bottom, centres.y[j]),
                         outside(from, to, centres.t[j]));
    int64_t kept = 0;
    for (int64_t j = 0; j < count; j++) {
        reached[kept] = (int32_t)j;
        kept += room[j] <= reach;
    }
    return kept;
}

/* Working memory of a search. */
typedef struct {
    double *numbers; /* 4 per centre */
    int32_t *places; /* 2 per centre */
} Room;

static Room make_room(int64_t centres) {
    return (Room){malloc(sizeof(double) * (size_t)(4 * centres)), malloc(sizeof(int32_t) * (size_t)(2 * centres))};
}

static void free_room(Room room) { free(room.numbers), free(room.places); }

/* The points to search for, and the centres to search in. */
typedef struct {
    Columns points;
    int64_t many;
    Columns centres;
    int64_t count;
    Room room;
} Search;

/* An iterator over the points, short run by short run, with the centres that may be nearest to a point of the run. */
typedef struct {
    Search search;
    int64_t long_stop, some;                         /* the end of the long run, and how many centres are in its reach */
    int64_t first, last, few;                        /* the short run, and how many of those are in its reach */
    double x[SHORT_RUN], y[SHORT_RUN], t[SHORT_RUN]; /* its points; an incomplete run is padded with its last point */
} Walk;

INLINE Columns reached_by_long_run(const Walk *walk) {
    return columns(walk->search.room.numbers + walk->search.count, walk->search.count);
}

INLINE void enter_long_run(Walk *walk, int wanted) {
    const Search search = walk->search;
    const Columns centres = search.centres;
    const int64_t first = walk->last, left = search.many - first;
    walk->long_stop = first + (left < LONG_RUN ? left : LONG_RUN);
    walk->some = within_reach(search.points, first, walk->long_stop, centres, search.count, wanted,
                              search.room.numbers, search.room.places);
    double *x = search.room.numbers + search.count, *y = x + search.count, *t = y + search.count;
    for (int64_t j = 0; j < walk->some; j++) {
        const int32_t place = search.room.places[j];
        x[j] = centres.x[place], y[j] = centres.y[place], t[j] = centres.t[place];
    }
}

/* Advance to the next short run; 0 if there is none. */
INLINE int next_run(Walk *walk, int wanted) {
    const Search search = walk->search;
    const Columns points = search.points;
    if (walk->last == search.many) return 0;
    if (walk->last == walk->long_stop) enter_long_run(walk, wanted);
    const int64_t left = walk->long_stop - walk->last;
    walk->first = walk->last;
    walk->last += left < SHORT_RUN ? left : SHORT_RUN;
    walk->few = within_reach(points, walk->first, walk->last, reached_by_long_run(walk), walk->some, wanted,
                             search.room.numbers, search.room.places + search.count);
    for (int i = 0; i < SHORT_RUN; i++) {
        const int64_t place = walk->first + i < walk->last ? walk->first + i : walk->last - 1;
        walk->x[i] = points.x[place], walk->y[i] = points.y[place], walk->t[i] = points.t[place];
    }
    return 1;
}

/* A centre for each point of a short run: its index among those in reach of the long run, and its squared distance. */
typedef struct {
    double distance[SHORT_RUN];
    int64_t place[SHORT_RUN];
} Found;

INLINE void find_nearest(const Walk *walk, Found *nearest) {
    const Columns centres = reached_by_long_run(walk);
    const int32_t *places = walk->search.room.places + walk->search.count;
    for (int i = 0; i < SHORT_RUN; i++) nearest->distance[i] = DBL_MAX, nearest->place[i] = 0;
    for (int64_t j = 0; j < walk->few; j++) {
        const int64_t place = places[j];
        const double x = centres.x[place], y = centres.y[place], t = centres.t[place];
        for (int i = 0; i < SHORT_RUN; i++) {
            const double distance = square(walk->x[i] - x, walk->y[i] - y, walk->t[i] - t);
            const int closer = distance < nearest->distance[i];
            nearest->place[i] = closer ? place : nearest->place[i];
            nearest->distance[i] = closer ? distance : nearest->distance[i];
        }
    }
}

/* Of two centres at the same distance, the first one is the nearest. */
INLINE void find_two_nearest(const Walk *walk, Found *nearest, Found *second) {
    const Columns centres = reached_by_long_run(walk);
    const int32_t *places = walk->search.room.places + walk->search.count;
    for (int i = 0; i < SHORT_RUN; i++) {
        nearest->distance[i] = second->distance[i] = DBL_MAX;
        nearest->place[i] = second->place[i] = 0;
    }
    for (int64_t j = 0; j < walk->few; j++) {
        const int64_t place = places[j];
        const double x = centres.x[place], y = centres.y[place], t = centres.t[place];
        for (int i = 0; i < SHORT_RUN; i++) {
            const double distance = square(walk->x[i] - x, walk->y[i] - y, walk->t[i] - t);
            const int closer = distance < nearest->distance[i], next = distance < second->distance[i];
            second->place[i] = closer ? nearest->place[i] : next ? place : second->place[i];
            second->distance[i] = closer ? nearest->distance[i] : next ? distance : second->distance[i];
            nearest->place[i] = closer ? place : nearest->place[i];
            nearest->distance[i] = closer ? distance : nearest->distance[i];
        }
    }
}

/* Measure the squared distance of each point to its nearest centre. */
static WIDEST void measure_nearest(Search search, double *distances) {
    Walk walk = {.search = search};
    Found nearest;
    while (next_run(&walk, 1)) {
        find_nearest(&walk, &nearest);
        for (int64_t point = walk.first, i = 0; point < walk.last; point++, i++) distances[point] = nearest.distance[i];
    }
}

/* Add x, y, t times its weight, and the weight itself, of each point to the row of its nearest centre in `sums`. */
static WIDEST void add_to_nearest(Search search, const double *weights, double *sums) {
    Walk walk = {.search = search};
    Found nearest;
    while (next_run(&walk, 1)) {
        find_nearest(&walk, &nearest);
        for (int64_t point = walk.first, i = 0; point < walk.last; point++, i++) {
            double *row = sums + 4 * search.room.places[nearest.place[i]];
            row[0] += weights[point] * walk.x[i], row[1] += weights[point] * walk.y[i];
            row[2] += weights[point] * walk.t[i], row[3] += weights[point];
        }
    }
}

/* A point's two nearest centres and their squared distances. */
typedef struct {
    int64_t nearest, second;
    double distance, second_distance;
} Pair;

/* Find the two nearest centres of each point. There must be at least two. */
static WIDEST void pair_nearest(Search search, Pair *pairs) {
    Walk walk = {.search = search};
    Found nearest, second;
    const int32_t *places = search.room.places;
    while (next_run(&walk, 2)) {
        find_two_nearest(&walk, &nearest, &second);
        for (int64_t point = walk.first, i = 0; point < walk.last; point++, i++)
            pairs[point] = (Pair){places[nearest.place[i]], places[second.place[i]], nearest.distance[i],
                                  second.distance[i]};
    }
}

/* Number `place` of the random sequence with this seed, above 0 and at most 1: SplitMix64. */
INLINE double uniform(uint64_t seed, uint64_t place) {
    uint64_t bits = seed + (place + 1) * 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    return (double)(((bits ^ (bits >> 31)) >> 11) + 1) * 0x1p-53;
}

typedef struct {
    double key;
    int64_t place;
} Item;

static int by_key(const void *one, const void *other) {
    const Item *left = one, *right = other;
    if (left->key != right->key) return left->key < right->key ? -1 : 1;
    return left->place < right->place ? -1 : left->place > right->place;
}

/* Keep the `wanted` items with the smallest keys, in a heap with the largest of them first; returns its new size. */
INLINE int64_t keep_smallest(Item *heap, int64_t size, int64_t wanted, Item item) {
    if (size == wanted && by_key(&item, heap) > 0) return size;
    int64_t hole = size;
    if (size < wanted) {
        for (; hole > 0 && by_key(&item, heap + (hole - 1) / 2) > 0; hole = (hole - 1) / 2) heap[hole] = heap[(hole - 1) / 2];
        heap[hole] = item;
        return size + 1;
    }
    for (hole = 0; 2 * hole + 1 < size;) {
        int64_t child = 2 * hole + 1;
        if (child + 1 < size && by_key(heap + child + 1, heap + child) > 0) child++;
        if (by_key(heap + child, &item) < 0) break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = item;
    return size;
}

/* Draw up to `wanted` points without replacement, in proportion to weight times distance. Each waits for a time drawn
   from an exponential distribution with that rate; the first to arrive are drawn. */
static int64_t draw(const double *weights, const double *distances, int64_t many, uint64_t random, uint64_t round,
                    int64_t wanted, Item *drawn) {
    int64_t size = 0;
    for (int64_t i = 0; i < many; i++) {
        const double rate = weights[i] * distances[i];
        if (rate > 0) {
            /* -log u is at least 1 - u, and most points wait too long even with that. */
            const double chance = uniform(random, round * (uint64_t)many + (uint64_t)i);
            if (size == wanted && 1 - chance > drawn->key * rate) continue;
            size = keep_smallest(drawn, size, wanted, (Item){-log(chance) / rate, i});
        }
    }
    qsort(drawn, (size_t)size, sizeof(Item), by_key);
    return size;
}

/* Phase 1: write up to `count` centres as rows x, y, t and return their number: the first drawn by weight alone, the
   others `batch` at a time by weight and squared distance. There are fewer if every point coincides with a centre. */
EXPORT int64_t seed(const double *point_values, const double *weights, int64_t many, int64_t count, int64_t batch,
                    uint64_t random, double *centres) {
    const Columns points = columns(point_values, many);
    double *distances = malloc(sizeof(double) * (size_t)many), *fresh = malloc(sizeof(double) * (size_t)many);
    double *news = malloc(sizeof(double) * (size_t)(3 * batch));
    const Room room = make_room(batch);
    Item *drawn = malloc(sizeof(Item) * (size_t)batch);
    int64_t done = distances && fresh && news && room.numbers && room.places && drawn ? 0 : -1;
    for (int64_t i = 0; i < many && done == 0; i++) distances[i] = 1;
    for (uint64_t round = 0; done >= 0 && done < count; round++) {
        const int64_t left = count - done, wanted = round == 0 ? 1 : left < batch ? left : batch;
        const int64_t got = draw(weights, distances, many, random, round, wanted, drawn);
        if (got == 0) break;
        for (int64_t j = 0; j < got; j++) {
            const int64_t place = drawn[j].place;
            double *row = centres + 3 * (done + j);
            row[0] = news[j] = points.x[place];
            row[1] = news[got + j] = points.y[place];
            row[2] = news[2 * got + j] = points.t[place];
        }
        measure_nearest((Search){points, many, columns(news, got), got, room}, fresh);
        for (int64_t i = 0; i < many; i++) distances[i] = round == 0 ? fresh[i] : smaller(distances[i], fresh[i]);
        done += got;
    }
    free(distances), free(fresh), free(news), free_room(room), free(drawn);
    return done;
}

/* What pruning needs: the two nearest centres of each point and of each centre, the cost of losing a centre and the
   cheapest to lose; and room for the points whose two nearest are searched for again. */
typedef struct {
    Pair *pairs, *neighbours;
    Item *costs, *cheapest;
    int32_t *moved; /* where a centre is now; -1: it is dropped */
    double *again;
    int64_t *places;
    Pair *found;
} Pruning;

static Pruning make_pruning(int64_t many, int64_t count) {
    const size_t points = (size_t)many, centres = (size_t)count;
    return (Pruning){malloc(sizeof(Pair) * points),     malloc(sizeof(Pair) * centres),      malloc(sizeof(Item) * centres),
                     malloc(sizeof(Item) * centres),    malloc(sizeof(int32_t) * centres),   malloc(sizeof(double) * 3 * points),
                     malloc(sizeof(int64_t) * points),  malloc(sizeof(Pair) * points)};
}

static int has_memory(Pruning pruning) {
    return pruning.pairs && pruning.neighbours && pruning.costs && pruning.cheapest && pruning.moved && pruning.again &&
           pruning.places && pruning.found;
}

static void free_pruning(Pruning pruning) {
    free(pruning.pairs), free(pruning.neighbours), free(pruning.costs), free(pruning.cheapest);
    free(pruning.moved), free(pruning.again), free(pruning.places), free(pruning.found);
}

/* What losing each centre costs: its points go to the second-nearest centre. */
static void add_costs(Search search, const double *weights, Pruning pruning) {
    for (int64_t j = 0; j < search.count; j++) pruning.costs[j] = (Item){0, j};
    for (int64_t i = 0; i < search.many; i++) {
        const Pair pair = pruning.pairs[i];
        pruning.costs[pair.nearest].key += weights[i] * (pair.second_distance - pair.distance);
    }
}

/* Mark up to `most` of the cheapest centres, but only the cheaper of two neighbours: each is cheap due to the other. */
static void mark_cheapest(Search among, int64_t most, Pruning pruning) {
    int64_t found = 0;
    pair_nearest(among, pruning.neighbours);
    for (int64_t j = 0; j < among.count; j++) {
        const Pair pair = pruning.neighbours[j]; /* if two centres coincide, either may be the nearest of both */
        const int64_t neighbour = pair.nearest == j ? pair.second : pair.nearest;
        pruning.moved[j] = 0;
        if (by_key(pruning.costs + j, pruning.costs + neighbour) < 0)
            found = keep_smallest(pruning.cheapest, found, most, pruning.costs[j]);
    }
    for (int64_t j = 0; j < found; j++) pruning.moved[pruning.cheapest[j].place] = -1;
}

/* Remove the marked centres from all columns and note where the others are now; returns how many are left. */
static int64_t drop_marked(double *centres, int64_t count, Pruning pruning) {
    int64_t kept = 0;
    for (int64_t axis = 0; axis < 3; axis++)
        for (int64_t j = 0; j < count; j++)
            if (pruning.moved[j] >= 0) centres[kept++] = centres[axis * count + j];
    kept = 0;
    for (int64_t j = 0; j < count; j++)
        if (pruning.moved[j] >= 0) pruning.moved[j] = (int32_t)kept++;
    return kept;
}

/* After centres were dropped: most points have kept their two nearest, and only the others are searched for again. */
static void renew_pairs(Search search, Pruning pruning) {
    const Columns points = search.points;
    double *x = pruning.again, *y = x + search.many, *t = y + search.many;
    int64_t many = 0;
    for (int64_t i = 0; i < search.many; i++) {
        Pair *pair = pruning.pairs + i;
        pair->nearest = pruning.moved[pair->nearest], pair->second = pruning.moved[pair->second];
        if (pair->nearest >= 0 && pair->second >= 0) continue;
        x[many] = points.x[i], y[many] = points.y[i], t[many] = points.t[i];
        pruning.places[many++] = i;
    }
    pair_nearest((Search){{x, y, t}, many, search.centres, search.count, search.room}, pruning.found);
    for (int64_t i = 0; i < many; i++) pruning.pairs[pruning.places[i]] = pruning.found[i];
}

/* Drop the centres that cost least to lose until `share` are left, at most one in `at_once` in a round. Returns -1 if
   memory runs out, else 0. */
EXPORT int64_t prune(const double *point_values, const double *weights, int64_t many, double *centres, int64_t count,
                     int64_t share, int64_t at_once) {
    const Columns points = columns(point_values, many);
    const Room room = make_room(count);
    const Pruning pruning = make_pruning(many, count);
    const int64_t failed = !(room.numbers && room.places && has_memory(pruning));
    if (!failed && count > share && count > 1)
        pair_nearest((Search){points, many, columns(centres, count), count, room}, pruning.pairs);
    while (!failed && count > share && count > 1) {
        const Columns left = columns(centres, count);
        const int64_t spare = count - share, part = count < at_once ? 1 : count / at_once;
        add_costs((Search){points, many, left, count, room}, weights, pruning);
        mark_cheapest((Search){left, count, left, count, room}, spare < part ? spare : part, pruning);
        count = drop_marked(centres, count, pruning);
        if (count > share && count > 1) renew_pairs((Search){points, many, columns(centres, count), count, room}, pruning);
    }
    free_room(room), free_pruning(pruning);
    return -failed;
}

/* Move each centre to the mean of its points, given their `sums`; return the largest squared step. Empty ones stay. */
static double move_centres(double *centres, int64_t count, const double *sums, double *counts) {
    double farthest = 0;
    for (int64_t j = 0; j < count; j++) {
        counts[j] = sums[4 * j + 3];
        double step = 0;
        for (int64_t axis = 0; axis < 3 && counts[j] > 0; axis++) {
            double *place = centres + axis * count + j;
            const double moved = sums[4 * j + axis] / counts[j];
            step += (moved - *place) * (moved - *place);
            *place = moved;
        }
        farthest = larger(farthest, step);
    }
    return farthest;
}

/* Phase 2, Lloyd's iteration: until no centre moves by `tolerance` or more. The total weights of their points end up in
   `counts`. Returns -1 if memory runs out, else 0. */
EXPORT int64_t iterate(const double *points, const double *weights, int64_t many, double *centres, int64_t count,
                       int64_t iterations, double tolerance, double *counts) {
    const Search search = {columns(points, many), many, columns(centres, count), count, make_room(count)};
    double *sums = malloc(sizeof(double) * (size_t)(4 * count));
    const int64_t failed = !(search.room.numbers && search.room.places && sums);
    double farthest = DBL_MAX;
    for (int64_t turn = 0; !failed && turn < iterations && farthest >= tolerance * tolerance; turn++) {
        memset(sums, 0, sizeof(double) * (size_t)(4 * count));
        add_to_nearest(search, weights, sums);
        farthest = move_centres(centres, count, sums, counts);
    }
    free_room(search.room), free(sums);
    return -failed;
}

/* Seed, move each centre to the mean of its points once, and prune: up to `share` centres, as columns in room for `seeds`.
   Returns their number, or -1 if memory runs out. In one call, since threads that meet between calls wait for each other. */
EXPORT int64_t choose(const double *points, const double *weights, int64_t many, int64_t seeds, int64_t batch, uint64_t random,
                      int64_t share, int64_t at_once, double *centres) {
    double *rows = malloc(sizeof(double) * (size_t)(3 * seeds)), *counts = malloc(sizeof(double) * (size_t)seeds);
    int64_t done = rows && counts ? seed(points, weights, many, seeds, batch, random, rows) : -1;
    for (int64_t j = 0; j < done; j++)
        for (int64_t axis = 0; axis < 3; axis++) centres[axis * done + j] = rows[3 * j + axis];
    if (done > share) {
        const int failed = iterate(points, weights, many, centres, done, 1, 0, counts) < 0 ||
                           prune(points, weights, many, centres, done, share, at_once) < 0;
        done = failed ? -1 : share;
    }
    free(rows), free(counts);
    return done;
}

/* Ten bits with two zeros between each of them and the next. */
INLINE uint32_t spread(uint32_t bits) {
    bits = (bits | bits << 16) & 0x030000FF;
    bits = (bits | bits << 8) & 0x0300F00F;
    bits = (bits | bits << 4) & 0x030C30C3;
    return (bits | bits << 2) & 0x09249249;
}

/* An order of points of the unit cube, given as rows, that keeps neighbours together: a Z-order curve. Points at the same
   place of it keep their order. Returns -1 if memory runs out, else 0. */
EXPORT int64_t follow_curve(const double *points, int64_t many, int64_t *order) {
    uint32_t *codes = malloc(sizeof(uint32_t) * (size_t)many);
    int64_t *other = malloc(sizeof(int64_t) * (size_t)many), failed = many && !(codes && other);
    for (int64_t i = 0; i < many && !failed; i++) {
        const double *point = points + 3 * i;
        codes[i] = spread((uint32_t)(point[0] * 1023)) << 2 | spread((uint32_t)(point[1] * 1023)) << 1 |
                   spread((uint32_t)(point[2] * 1023));
        order[i] = i;
    }
    /* Sorted by ten bits at a time, the lowest first; the third time ends in `other`. */
    int64_t *from = order, *to = other;
    for (int shift = 0; shift < 30 && !failed; shift += 10) {
        int64_t starts[1025] = {0};
        for (int64_t i = 0; i < many; i++) starts[(codes[i] >> shift & 1023) + 1]++;
        for (int part = 0; part < 1024; part++) starts[part + 1] += starts[part];
        for (int64_t i = 0; i < many; i++) to[starts[codes[from[i]] >> shift & 1023]++] = from[i];
        int64_t *full = to;
        to = from, from = full;
    }
    if (!failed) memcpy(order, other, sizeof(int64_t) * (size_t)many);
    free(codes), free(other);
    return -failed;
}

/* All events of a recording: rows of x, y and t in the unit cube, weights, and whether brightness rose. */
typedef struct {
    const double *points, *weights;
    const uint8_t *rising;
    int64_t many;
} Recording;

/* What to do with the events of one polarity, and where their centres, as columns, and the weights of these go. */
typedef struct {
    int64_t polarity, many, seeds, batch, share, at_once, iterations;
    uint64_t random;
    double tolerance;
    double *centres, *counts; /* in room for `seeds` and for `share` */
    int64_t done;             /* how many centres there are; -1 if memory ran out */
} Share;

typedef struct {
    const Recording *recording;
    Share *share;
} Part;

/* The events of one polarity in the order of the curve, as columns. */
static int arrange(const Recording *recording, const Share *share, double *points, double *weights) {
    double *rows = malloc(sizeof(double) * (size_t)(3 * share->many));
    int64_t *places = malloc(sizeof(int64_t) * (size_t)share->many), *order = malloc(sizeof(int64_t) * (size_t)share->many);
    int got = rows && places && order;
    int64_t found = 0;
    for (int64_t i = 0; got && i < recording->many && found < share->many; i++) {
        if ((recording->rising[i] != 0) != share->polarity) continue; /* a column of bytes may hold others than 1 */
        memcpy(rows + 3 * found, recording->points + 3 * i, sizeof(double) * 3);
        places[found++] = i;
    }
    got = got && found == share->many && follow_curve(rows, share->many, order) == 0;
    for (int64_t i = 0; got && i < share->many; i++) {
        for (int64_t axis = 0; axis < 3; axis++) points[axis * share->many + i] = rows[3 * order[i] + axis];
        weights[i] = recording->weights[places[order[i]]];
    }
    free(rows), free(places), free(order);
    return got;
}

static void *cluster_share(void *part) {
    Share *share = ((Part *)part)->share;
    double *points = malloc(sizeof(double) * (size_t)(3 * share->many)), *weights = malloc(sizeof(double) * (size_t)share->many);
    share->done = -1;
    if (points && weights && arrange(((Part *)part)->recording, share, points, weights))
        share->done = choose(points, weights, share->many, share->seeds, share->batch, share->random, share->share,
                             share->at_once, share->centres);
    if (share->done > 0 && iterate(points, weights, share->many, share->centres, share->done, share->iterations,
                                   share->tolerance, share->counts) < 0)
        share->done = -1;
    free(points), free(weights);
    return NULL;
}

/* A whole recording in one call: arrange, choose and iterate the events of each polarity, with `side_by_side` the first of
   two in a thread of its own. Threads of Python would wait for each other between its calls. */
EXPORT void cluster(const Recording *recording, Share *shares, int64_t number, int64_t side_by_side) {
    Part parts[2] = {{recording, shares}, {recording, shares + number - 1}};
    pthread_t thread;
    const int apart = side_by_side && number == 2 && pthread_create(&thread, NULL, cluster_share, parts) == 0;
    if (number == 2 && !apart) cluster_share(parts);
    cluster_share(parts + 1);
    if (apart) pthread_join(thread, NULL);
}

/* `compiled_engine.py` compares this with its own number: raise both when the arguments of a function change. */
EXPORT int64_t interface(void) { return 3; }

/* Python builds and finds the library as a module; its functions are called through ctypes, which releases the GIL. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "event2vec.clustering._compiled_engine", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled_engine(void) { return PyModule_Create(&module); }
