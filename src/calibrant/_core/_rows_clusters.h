/* Whole-number sums of the rows of a stream by column and cluster: the twin of
   streaming/_clusters.py, which says what the columns are. */

/* A coarse cell is 2^coarse cells, an octave 2^per_octave coarse ones. */
typedef struct {
    int coarse, per_octave;
    int64_t cells, first_octave, octaves, clusters;
    double unit, largest;
} ClusterColumns;

#define MOST_UNITS 1125899906842624.0 /* 2^50: what ROUNDED takes */

static inline int64_t within(int64_t value, int64_t count)
{
    return value < 0 ? 0 : value < count ? value : count - 1;
}

static inline int64_t in_units(double value, const ClusterColumns *c)
{
    return __builtin_llrint(least(value, c->largest) * c->unit);
}

static void add_by_cluster(const ClusterColumns *c, int64_t rows, const int64_t *code,
                           const int64_t *cell, const uint8_t *correct, const double *confidence,
                           const double *const *losses, int64_t *table)
{
    int64_t counts = 2 * c->cells + 1;
    for (int64_t i = 0; i < rows; i++) {
        int64_t *of = table + code[i], coarse = cell[i] >> c->coarse;
        int64_t octave = within((coarse >> c->per_octave) - c->first_octave, c->octaves);
        int impossible = isinf(losses[0][i]);
        of[(2 * coarse + (correct[i] != 0)) * c->clusters]++;
        of[(counts - 1) * c->clusters] += impossible;
        of[(counts + octave) * c->clusters] += in_units(confidence[i], c);
        for (int k = 0; !impossible && k < 3; k++)
            of[(counts + c->octaves + k) * c->clusters] += in_units(losses[k][i], c);
    }
}

/* The same as Python has it. */
typedef struct {
    long long coarse, cells, per_octave, first_octave, octaves, clusters;
    int bits;
    double largest;
} ClusterLayout;

#define CLUSTER_LAYOUT "LLLLLLid"
#define PARSED_LAYOUT(l) \
    &l.coarse, &l.cells, &l.per_octave, &l.first_octave, &l.octaves, &l.clusters, &l.bits, &l.largest

static inline int is_power_of_two(int64_t x) { return x > 0 && !(x & (x - 1)); }

static int cluster_columns(const ClusterLayout *l, ClusterColumns *c)
{
    int small = is_power_of_two(l->coarse) && l->cells > 0 && is_power_of_two(l->per_octave) &&
                l->octaves > 0 &&
                l->clusters > 0 && l->cells < MOST_CLASSES && l->octaves < MOST_CLASSES &&
                l->clusters < MOST_CLASSES && l->coarse < MOST_CLASSES &&
                l->per_octave < MOST_CLASSES && l->bits > 0 && l->bits < 61 && l->largest > 0 &&
                ldexp(l->largest, l->bits) <= MOST_UNITS && l->first_octave > -MOST_CLASSES;
    if (!small) {
        PyErr_SetString(PyExc_ValueError, "the columns must have sizes above 0, and in range");
        return 0;
    }
    *c = (ClusterColumns){__builtin_ctzll((unsigned long long)l->coarse),
                          __builtin_ctzll((unsigned long long)l->per_octave),
                          l->cells, l->first_octave, l->octaves, l->clusters,
                          (double)((int64_t)1 << l->bits), l->largest};
    return 1;
}

static int64_t *cluster_table(Held *held, PyObject *object, const ClusterColumns *c)
{
    return WHOLE(object, "table", (2 * c->cells + 4 + c->octaves) * c->clusters, 1);
}

PyDoc_STRVAR(add_by_cluster_doc,
             "add_by_cluster(code, cell, correct, confidence, loss, brier, entropy, coarse, cells, "
             "\nper_octave, first_octave, octaves, clusters, bits, largest, table): add rows to the "
             "table\n(columns * clusters,).");

static PyObject *rows_add_by_cluster(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[7], *table_;
    const int64_t *code = NULL, *cell = NULL;
    const uint8_t *correct = NULL;
    const double *confidence = NULL, *losses[3];
    int64_t *table = NULL;
    ClusterLayout layout;
    ClusterColumns c;
    if (!PyArg_ParseTuple(args, "OOOOOOO" CLUSTER_LAYOUT "O", o, o + 1, o + 2, o + 3, o + 4, o + 5,
                          o + 6, PARSED_LAYOUT(layout), &table_))
        return NULL;
    int fine = cluster_columns(&layout, &c) && column_rows(o[0], s) && (code = WHOLE(o[0], "code", s->rows, 0)) &&
               (cell = WHOLE(o[1], "cell", s->rows, 0)) &&
               (correct = column(held, o[2], "correct", "?", 1, s->rows, 0)) &&
               (confidence = DOUBLES(o[3], "confidence", 0)) &&
               (losses[0] = DOUBLES(o[4], "loss", 0)) &&
               (losses[1] = DOUBLES(o[5], "brier", 0)) &&
               (losses[2] = DOUBLES(o[6], "entropy", 0)) &&
               (table = cluster_table(held, table_, &c)) &&
               all_below(code, s->rows, c.clusters, "code") &&
               all_below(cell, s->rows, c.cells << c.coarse, "cell");
    if (fine) {
        UNLOCKED(add_by_cluster(&c, s->rows, code, cell, correct, confidence, losses, table));
    }
    return done(held, s, fine, -1);
}
