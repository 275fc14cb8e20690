/* Labels drawn along a path of populations: the twin of inference/_classwise.py. */

/* Of one chunk of rows; arrays lie densely in the order of their sizes. */
typedef struct {
    int64_t rows, classes, draws, strengths, cells;
    const int64_t *cell;                            /* (rows, classes) */
    const double *upper, *lot, *choice, *strength;  /* (3, rows, classes), 2 × (rows, draws), … */
    float *changes;                                 /* (strengths, draws, cells) */
} Draws;

/* Where to begin looking for a lot: the first class that may be drawn from its part of [0, 1). */
typedef struct {
    int64_t parts;
    int32_t *first; /* (3, parts) */
} Guide;

/* A power of two, so that lots are multiplied without rounding; a few classes to each part. */
static int64_t guide_parts(int64_t classes)
{
    int64_t parts = 16;
    while (parts < 1024 && 4 * parts < classes)
        parts *= 2;
    return parts;
}

/* The first class whose upper end is at least x, from `class` on; the last one has no end. */
static inline int64_t drawn_class(const double *upper, int64_t classes, double offset, double x,
                                  int64_t class)
{
    while (class < classes - 1 && upper[class] + offset < x)
        class++;
    return class;
}

static void fill_guide(const Guide *g, const double *upper, int64_t step, int64_t classes,
                       double offset)
{
    for (int k = 0; k < 3; k++) {
        int64_t class = 0;
        for (int64_t part = 0; part < g->parts; part++) {
            double x = (double)part / (double)g->parts + offset;
            class = drawn_class(upper + k * step, classes, offset, x, class);
            g->first[k * g->parts + part] = (int32_t)class;
        }
    }
}

/* From the first strength above `at` on, the label of a draw is in another cell. Strengths rise:
   those not above it are counted, as no branch can be foretold. */
static inline void move_label(const Draws *d, int64_t draw, double at, int64_t from, int64_t to)
{
    int64_t k = 0;
    if (from == to)
        return;
    for (int64_t other = 0; other < d->strengths; other++)
        k += d->strength[other] <= at;
    if (k == d->strengths)
        return;
    float *changes = d->changes + (k * d->draws + draw) * d->cells;
    changes[to] += 1;
    changes[from] -= 1;
}

/* `room` is for the guide, and for three cells of each draw. */
static void draw_labels(const Draws *d, const Guide *g, int64_t *room)
{
    int64_t entries = d->rows * d->classes;
    for (int64_t i = 0; i < d->rows; i++) {
        const double *upper = d->upper + i * d->classes;
        const int64_t *cell = d->cell + i * d->classes;
        double number = (double)i;
        fill_guide(g, upper, entries, d->classes, number);
        for (int64_t j = 0; j < d->draws; j++) {
            double lot = d->lot[i * d->draws + j], x = lot + number;
            int64_t part = (int64_t)(lot * (double)g->parts);
            for (int k = 0; k < 3; k++) {
                int64_t class = g->first[k * g->parts + part];
                class = drawn_class(upper + k * entries, d->classes, number, x, class);
                room[3 * j + k] = cell[class];
            }
            __builtin_prefetch(d->changes + j * d->cells + room[3 * j], 1);
        }
        for (int64_t j = 0; j < d->draws; j++) {
            const int64_t *at = room + 3 * j;
            double choice = d->choice[i * d->draws + j];
            d->changes[j * d->cells + at[0]] += 1;
            move_label(d, j, choice, at[0], at[1]);
            move_label(d, j, 1 + choice, at[1], at[2]);
        }
    }
}
