/* The phases of Alg. 1 for the events of one polarity on a CPU; `compiled_engine.py` calls them.

   Most of the time goes into finding the nearest centres of points, and most centres need no look. Points come in an
   order in which neighbours stay together. A run of them lies in a box, and a centre that is farther from the box than
   the farthest point of the run is from some other centre cannot be the nearest of any. So a long run leaves most centres
   out, a short run within it most of those that are left, and the few that remain are compared with every point of the
   short run at once, which the compiler turns into vector instructions.

   Leaving out is exact in floating point too: subtracting, squaring and adding are monotonous under rounding, so the
   distance to the box is never above that to a point in it. Nothing is fused (-ffp-contract=off), so that vectors of any
   width give the same bits.

   Points and centres are columns: all x, then all y, then all t. Functions that allocate return -1 without memory. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LONG_RUN 256
#define SHORT_RUN 32

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif
#if defined(_MSC_VER)
#define INLINE static __forceinline
#define EXPORT __declspec(dllexport)
#else
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#endif

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

/* Places of the centres that may be among the `wanted` nearest to a point of the run; `room` holds `count` numbers. */
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
    double reach = 0; /* no point of the run is farther from the centres in its middle */
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

/* Points, weights and centres as columns x, y, t; what is found goes where there is a pointer:
   `found` and `distances` hold the `wanted` (1 or 2) nearest centres and the squared distances, nearest first, and of
   two as near the one that stands first; to the row of its nearest centre in `sums` each point adds x, y, t, times
   its weight, and the weight. There are at least `wanted` centres. `room` holds 4 numbers for each centre, `places` 2. */
static WIDEST void find_nearest(const double *point_values, const double *weights, int64_t many,
                                const double *centre_values, int64_t count, int wanted, double *room,
                                int32_t *places, int64_t *found, double *distances, double *sums) {
    const Columns points = columns(point_values, many), centres = columns(centre_values, count);
    double *x = room + count, *y = x + count, *t = y + count; /* the centres within reach of the long run */
    const Columns near = {x, y, t};
    int32_t *nearer = places + count;
    for (int64_t long_start = 0; long_start < many; long_start += LONG_RUN) {
        const int64_t long_stop = long_start + LONG_RUN < many ? long_start + LONG_RUN : many;
        const int64_t some = within_reach(points, long_start, long_stop, centres, count, wanted, room, places);
        for (int64_t j = 0; j < some; j++)
            x[j] = centres.x[places[j]], y[j] = centres.y[places[j]], t[j] = centres.t[places[j]];
        for (int64_t first = long_start; first < long_stop; first += SHORT_RUN) {
            const int64_t last = first + SHORT_RUN < long_stop ? first + SHORT_RUN : long_stop;
            const int64_t few = within_reach(points, first, last, near, some, wanted, room, nearer);
            double px[SHORT_RUN], py[SHORT_RUN], pt[SHORT_RUN], least[SHORT_RUN], second[SHORT_RUN];
            int64_t which[SHORT_RUN], other[SHORT_RUN];
            for (int i = 0; i < SHORT_RUN; i++) { /* the last run is filled up with its last point */
                const int64_t place = first + i < last ? first + i : last - 1;
                px[i] = points.x[place], py[i] = points.y[place], pt[i] = points.t[place];
                least[i] = second[i] = DBL_MAX, which[i] = other[i] = 0;
            }
            if (wanted == 1)
                for (int64_t j = 0; j < few; j++) {
                    const int64_t place = nearer[j];
                    const double cx = x[place], cy = y[place], ct = t[place];
                    for (int i = 0; i < SHORT_RUN; i++) {
                        const double distance = square(px[i] - cx, py[i] - cy, pt[i] - ct);
                        const int closer = distance < least[i];
                        which[i] = closer ? place : which[i];
                        least[i] = closer ? distance : least[i];
                    }
                }
            else
                for (int64_t j = 0; j < few; j++) {
                    const int64_t place = nearer[j];
                    const double cx = x[place], cy = y[place], ct = t[place];
                    for (int i = 0; i < SHORT_RUN; i++) {
                        const double distance = square(px[i] - cx, py[i] - cy, pt[i] - ct);
                        const int closer = distance < least[i], next = distance < second[i];
                        other[i] = closer ? which[i] : next ? place : other[i];
                        second[i] = closer ? least[i] : next ? distance : second[i];
                        which[i] = closer ? place : which[i];
                        least[i] = closer ? distance : least[i];
                    }
                }
            for (int64_t point = first, i = 0; point < last; point++, i++) {
                const int32_t nearest = places[which[i]];
                if (found) found[wanted * point] = nearest;
                if (found && wanted == 2) found[2 * point + 1] = places[other[i]];
                if (distances) distances[wanted * point] = least[i];
                if (distances && wanted == 2) distances[2 * point + 1] = second[i];
                if (sums) {
                    double *row = sums + 4 * nearest;
                    row[0] += weights[point] * px[i], row[1] += weights[point] * py[i];
                    row[2] += weights[point] * pt[i], row[3] += weights[point];
                }
            }
        }
    }
}

/* Number `place` of the random sequence that `seed` begins, above 0 and up to 1: SplitMix64. */
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

/* Keeps the `wanted` items with the smallest keys in a heap whose first item has the largest of them. */
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

/* Positions of up to `wanted` points drawn one after the other in proportion to weight times distance, none twice. Each
   waits for a time drawn from an exponential distribution with that rate, and the first to come are taken. */
static int64_t draw(const double *weights, const double *distances, int64_t many, uint64_t random, uint64_t round,
                    int64_t wanted, Item *drawn) {
    int64_t size = 0;
    for (int64_t i = 0; i < many; i++) {
        const double rate = weights[i] * distances[i];
        if (rate > 0) {
            /* Most wait too long even where -log u is as small as 1 - u. */
            const double chance = uniform(random, round * (uint64_t)many + (uint64_t)i);
            if (size == wanted && 1 - chance > drawn->key * rate) continue;
            size = keep_smallest(drawn, size, wanted, (Item){-log(chance) / rate, i});
        }
    }
    qsort(drawn, (size_t)size, sizeof(Item), by_key);
    return size;
}

/* Phase 1: writes up to `count` centres, rows x, y, t, drawn `batch` at a time by squared distance, after a first one
   drawn by weight alone; returns how many. Fewer where every point has a centre on it already. */
EXPORT int64_t seed(const double *point_values, const double *weights, int64_t many, int64_t count, int64_t batch,
                    uint64_t random, double *centres) {
    const Columns points = columns(point_values, many);
    double *distances = malloc(sizeof(double) * (size_t)many), *fresh = malloc(sizeof(double) * (size_t)many);
    double *news = malloc(sizeof(double) * (size_t)(7 * batch));
    int32_t *places = malloc(sizeof(int32_t) * (size_t)(2 * batch));
    Item *drawn = malloc(sizeof(Item) * (size_t)batch);
    int64_t done = distances && fresh && news && places && drawn ? 0 : -1;
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
        find_nearest(point_values, weights, many, news, got, 1, news + 3 * got, places, NULL, fresh, NULL);
        for (int64_t i = 0; i < many; i++) distances[i] = round == 0 ? fresh[i] : smaller(distances[i], fresh[i]);
        done += got;
    }
    free(distances), free(fresh), free(news), free(places), free(drawn);
    return done;
}

/* Drops the centres whose loss costs least until `share` are left; returns -1 without memory, else 0. The loss of a
   centre hands its points to the second nearest. Of two neighbours only the cheaper may go in one round, since each was
   cheap because of the other, and only one of `at_once` centres. */
EXPORT int64_t prune(const double *points, const double *weights, int64_t many, double *centres, int64_t count,
                     int64_t share, int64_t at_once) {
    const size_t number = sizeof(double), most = (size_t)(count > many ? count : many);
    double *room = malloc(number * 4 * (size_t)count), *distances = malloc(number * 2 * most);
    int32_t *places = malloc(sizeof(int32_t) * 2 * (size_t)count), *rank = malloc(sizeof(int32_t) * (size_t)count);
    int64_t *found = malloc(sizeof(int64_t) * 2 * most);
    Item *costs = malloc(sizeof(Item) * (size_t)count);
    const int64_t failed = !(room && distances && places && rank && found && costs);
    while (!failed && count > share && count > 1) {
        find_nearest(points, weights, many, centres, count, 2, room, places, found, distances, NULL);
        for (int64_t j = 0; j < count; j++) costs[j] = (Item){0, j};
        for (int64_t i = 0; i < many; i++) costs[found[2 * i]].key += weights[i] * (distances[2 * i + 1] - distances[2 * i]);
        qsort(costs, (size_t)count, sizeof(Item), by_key);
        for (int64_t j = 0; j < count; j++) rank[costs[j].place] = (int32_t)j;
        find_nearest(centres, NULL, count, centres, count, 2, room, places, found, distances, NULL);
        const int64_t spare = count - share, part = count < at_once ? 1 : count / at_once;
        int64_t going = spare < part ? spare : part;
        for (int64_t j = 0; j < count && going; j++) {
            const int64_t place = costs[j].place; /* one that lies on another may come after it */
            const int64_t neighbour = found[2 * place + (found[2 * place] == place)];
            if (j < rank[neighbour]) rank[place] = -1, going--;
        }
        int64_t kept = 0;
        for (int64_t axis = 0; axis < 3; axis++)
            for (int64_t j = 0; j < count; j++)
                if (rank[j] >= 0) centres[kept++] = centres[axis * count + j];
        count = kept / 3;
    }
    free(room), free(distances), free(places), free(rank), free(found), free(costs);
    return -failed;
}

/* Phase 2, Lloyd's iteration: moves the centres to the means of their points and leaves their weights in `counts`, until
   none has moved by `tolerance`. A centre without points stays. Returns -1 without memory, else 0. */
EXPORT int64_t iterate(const double *points, const double *weights, int64_t many, double *centres, int64_t count,
                       int64_t iterations, double tolerance, double *counts) {
    double *room = malloc(sizeof(double) * (size_t)(4 * count)), *sums = malloc(sizeof(double) * (size_t)(4 * count));
    int32_t *places = malloc(sizeof(int32_t) * (size_t)(2 * count));
    const int64_t failed = !(room && sums && places);
    double farthest = DBL_MAX;
    for (int64_t turn = 0; !failed && turn < iterations && farthest >= tolerance * tolerance; turn++) {
        memset(sums, 0, sizeof(double) * (size_t)(4 * count));
        find_nearest(points, weights, many, centres, count, 1, room, places, NULL, NULL, sums);
        farthest = 0;
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
    }
    free(room), free(sums), free(places);
    return -failed;
}

/* What `compiled_engine.py` compares with its own: raise both when the arguments of a function change. */
EXPORT int64_t interface(void) { return 1; }

/* Python builds and finds the library as a module; its functions are called through ctypes, which lets go of the lock. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "event2vec.clustering._compiled_engine", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled_engine(void) { return PyModule_Create(&module); }
