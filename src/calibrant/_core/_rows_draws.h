/* Labels drawn along a path of populations: the twin of inference/_classwise.py. */

/* Of one chunk of rows; arrays lie densely in the order of their sizes. */
typedef struct {
    int64_t rows, classes, draws, strengths, cells;
    const int64_t *cell;                            /* (rows, classes) */
    const double *upper, *lot, *choice, *strength;  /* (3, rows, classes), 2 × (rows, draws), … */
    float *changes;                                 /* (strengths, draws, cells) */
} Draws;

/* The first class whose upper end is at least x; the last one has no end. */
static inline int64_t drawn_class(const double *upper, int64_t classes, double offset, double x)
{
    int64_t low = 0, left = classes - 1;
    while (left > 0) {
        int64_t half = left / 2;
        int beyond = upper[low + half] + offset < x;
        low += beyond ? half + 1 : 0;
        left = beyond ? left - half - 1 : half;
    }
    return low;
}

/* From the first strength above `at` on, the label of a draw is in another cell. */
static inline void move_label(const Draws *d, int64_t draw, double at, int64_t from, int64_t to)
{
    int64_t k = 0;
    while (k < d->strengths && d->strength[k] <= at)
        k++;
    if (k == d->strengths || from == to)
        return;
    float *changes = d->changes + (k * d->draws + draw) * d->cells;
    changes[to] += 1;
    changes[from] -= 1;
}

static void draw_labels(const Draws *d)
{
    int64_t entries = d->rows * d->classes;
    for (int64_t i = 0; i < d->rows; i++) {
        const double *upper = d->upper + i * d->classes;
        const int64_t *cell = d->cell + i * d->classes;
        for (int64_t j = 0; j < d->draws; j++) {
            double number = (double)i, x = d->lot[i * d->draws + j] + number;
            double choice = d->choice[i * d->draws + j];
            int64_t at[3];
            for (int k = 0; k < 3; k++)
                at[k] = cell[drawn_class(upper + k * entries, d->classes, number, x)];
            d->changes[j * d->cells + at[0]] += 1;
            move_label(d, j, choice, at[0], at[1]);
            move_label(d, j, 1 + choice, at[1], at[2]);
        }
    }
}
