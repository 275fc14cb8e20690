/* Whole-number sums of the rows of a stream by column and cluster: the twin of
   streaming/_clusters.py, which says what the columns are. */

typedef struct {
    int64_t coarse, cells, per_octave, first_octave, octaves, clusters;
    double unit, largest;
} ClusterColumns;

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
        int64_t *of = table + code[i], coarse = cell[i] / c->coarse;
        int64_t octave = within(coarse / c->per_octave - c->first_octave, c->octaves);
        int impossible = isinf(losses[0][i]);
        of[(2 * coarse + (correct[i] != 0)) * c->clusters]++;
        of[(counts - 1) * c->clusters] += impossible;
        of[(counts + octave) * c->clusters] += in_units(confidence[i], c);
        for (int k = 0; !impossible && k < 3; k++)
            of[(counts + c->octaves + k) * c->clusters] += in_units(losses[k][i], c);
    }
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
    long long coarse, cells, per_octave, first_octave, octaves, clusters;
    double largest;
    int64_t *table = NULL;
    int bits;
    if (!PyArg_ParseTuple(args, "OOOOOOOLLLLLLidO", o, o + 1, o + 2, o + 3, o + 4, o + 5, o + 6,
                          &coarse, &cells, &per_octave, &first_octave, &octaves, &clusters, &bits,
                          &largest, &table_))
        return NULL;
    int small = coarse > 0 && cells > 0 && per_octave > 0 && octaves > 0 && clusters > 0 &&
                cells < MOST_CLASSES && octaves < MOST_CLASSES && clusters < MOST_CLASSES &&
                coarse < MOST_CLASSES && bits > 0 && bits < 61 && first_octave > -MOST_CLASSES;
    if (!small) {
        PyErr_SetString(PyExc_ValueError, "the columns must have sizes above 0");
        return NULL;
    }
    int fine = column_rows(o[0], s) && (code = WHOLE(o[0], "code", s->rows, 0)) &&
               (cell = WHOLE(o[1], "cell", s->rows, 0)) &&
               (correct = column(held, o[2], "correct", "?", 1, s->rows, 0)) &&
               (confidence = DOUBLES(o[3], "confidence", 0)) &&
               (losses[0] = DOUBLES(o[4], "loss", 0)) &&
               (losses[1] = DOUBLES(o[5], "brier", 0)) &&
               (losses[2] = DOUBLES(o[6], "entropy", 0)) &&
               (table = WHOLE(table_, "table", (2 * cells + 4 + octaves) * clusters, 1)) &&
               all_below(code, s->rows, clusters, "code") &&
               all_below(cell, s->rows, cells * coarse, "cell");
    if (fine) {
        ClusterColumns c = {coarse,   cells, per_octave, first_octave, octaves,
                            clusters, (double)((int64_t)1 << bits), largest};
        UNLOCKED(add_by_cluster(&c, s->rows, code, cell, correct, confidence, losses, table));
    }
    return done(held, s, fine, -1);
}
