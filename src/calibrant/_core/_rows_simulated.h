/* Resamples of one data set with outcomes along a path: the twin of metrics/_simulated.py.
   Included where the buffers are checked. Sums are added in the order of the twin: same bits. */

/* Each sample that was drawn is an entry among the distinct confidences; it is right at first, or
   not, and its outcome is the other one from the strength `change` on, if that is one. */
typedef struct {
    int64_t resamples, size, strengths, entries;
    const int64_t *drawn;
    const uint8_t *first, *change;
    const double *confidence;
} Resampled;

/* How often each sample was drawn; that of sample i goes to `place[i]`. */
static void count_draws(int64_t count, const int64_t *drawn, const int64_t *place, double *weights)
{
    for (int64_t i = 0; i < count; i++)
        weights[place[drawn[i]]] += 1;
}

/* The strength from which on a lot is on the other side of an entry's chance of being right, which
   is that of three populations, straight between them. Strengths rise: those below are counted, as
   no branch can be foretold. */
static inline int64_t changes_at(double lot, const double *chance, const double *strength,
                                 int64_t strengths)
{
    int passed = (lot < chance[0]) != (lot < chance[1]);
    const double *from = chance + !passed;
    double at = (double)!passed + (lot - from[0]) / (from[1] - from[0]);
    int64_t below = 0;
    for (int64_t k = 0; k < strengths; k++)
        below += strength[k] < at;
    return below;
}

/* The few outcomes that change are listed first, so that no other one waits for a branch. */
static void draw_outcomes(int64_t count, const int64_t *drawn, const double *lot,
                          const double *knots, const double *strength, int64_t strengths,
                          uint8_t *first, uint8_t *change)
{
    memset(change, (int)strengths, (size_t)count);
    for (int64_t start = 0; start < count; start += RANKED) {
        int64_t end = start + RANKED < count ? start + RANKED : count, listed = 0;
        int64_t changing[RANKED];
        for (int64_t i = start; i < end; i++) {
            const double *chance = knots + 3 * drawn[i];
            int right = lot[i] < chance[0];
            first[i] = (uint8_t)right;
            changing[listed] = i;
            listed += (right != (lot[i] < chance[1])) | (right != (lot[i] < chance[2]));
        }
        for (int64_t k = 0; k < listed; k++) {
            int64_t i = changing[k];
            change[i] = (uint8_t)changes_at(lot[i], knots + 3 * drawn[i], strength, strengths);
        }
    }
}

/* The bin of equal mass of each entry of each resample, by the rank of its middle sample. */
static void mass_bins(const Resampled *r, int64_t bins, const double *ranks, double *count,
                      int64_t *bin)
{
    for (int64_t row = 0; row < r->resamples; row++, bin += r->entries) {
        const int64_t *drawn = r->drawn + row * r->size;
        double so_far = 0;
        int64_t b = 0;
        memset(count, 0, (size_t)r->entries * sizeof *count);
        for (int64_t i = 0; i < r->size; i++)
            count[drawn[i]] += 1;
        for (int64_t e = 0; e < r->entries; e++) {
            so_far += count[e];
            while (b < bins - 1 && ranks[b] <= so_far - (count[e] + 1) / 2)
                b++;
            bin[e] = b;
        }
    }
}

/* From the changes at each strength to the sums. */
static void sum_changes(double *sums, int64_t strengths, int64_t size)
{
    for (int64_t k = size; k < strengths * size; k++)
        sums[k] += sums[k - size];
}

/* `step` leads from the bins of one resample to those of the next. */
static void sum_bins(const Resampled *r, int64_t bins, const int64_t *bin, int64_t step,
                     double *count, double *stated, double *hits)
{
    for (int64_t row = 0; row < r->resamples; row++) {
        int64_t from = row * r->size;
        for (int64_t i = from; i < from + r->size; i++) {
            int64_t entry = r->drawn[i], b = bin[entry];
            count[b] += 1;
            stated[b] += r->confidence[entry];
            hits[b] += r->first[i];
            /* Adding 0 costs less than a branch that depends on the draws. */
            int changes = r->change[i] < r->strengths;
            hits[changes * r->change[i] * bins + b] += changes * (1 - 2 * r->first[i]);
        }
        sum_changes(hits, r->strengths, bins);
        bin += step;
        count += bins;
        stated += bins;
        hits += r->strengths * bins;
    }
}

/* What a sample adds to a cell and to the one after it. */
typedef struct {
    int64_t cell;
    double own, next;
} Share;

static void add_shares(int64_t count, const Share *share, double *sums)
{
    for (int64_t i = 0; i < count; i++)
        sums[share[i].cell] += share[i].own;
    for (int64_t i = 0; i < count; i++)
        sums[share[i].cell + 1] += share[i].next;
}

/* Outcomes minus confidence in cells, `part` of each in the cell after its own. `room` is for twice
   as many shares as a resample has samples, and one more. */
static void sum_cells(const Resampled *r, int64_t cells, const int64_t *left, const double *part,
                      double *sums, Share *room)
{
    Share *later = room + r->size;
    for (int64_t row = 0; row < r->resamples; row++, sums += r->strengths * cells) {
        int64_t from = row * r->size, changing = 0;
        for (int64_t i = from; i < from + r->size; i++) {
            int64_t entry = r->drawn[i], at = left[entry];
            double after = part[entry], before = 1 - after, gain = 1 - 2 * r->first[i];
            double residual = r->first[i] - r->confidence[entry];
            room[i - from] = (Share){at, residual * before, residual * after};
            later[changing] = (Share){r->change[i] * cells + at, gain * before, gain * after};
            changing += r->change[i] < r->strengths;
        }
        add_shares(r->size, room, sums);
        add_shares(changing, later, sums);
        sum_changes(sums, r->strengths, cells);
    }
}

/* --- what Python calls ----------------------------------------------------------------------- */

/* Whether all of some whole numbers lie in 0 ... end - 1; if not, an error is set. */
static int all_below(const int64_t *numbers, int64_t count, int64_t end, const char *name)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= numbers[i] | (end - 1 - numbers[i]);
    if (bad < 0)
        PyErr_Format(PyExc_ValueError, "%s must lie in 0 ... %lld", name, (long long)end - 1);
    return bad >= 0;
}

static int at_least_one(long long size)
{
    if (size < 1 || size > MOST_CLASSES)
        PyErr_SetString(PyExc_ValueError, "sizes must be at least 1, and those of the arrays");
    return size >= 1 && size <= MOST_CLASSES;
}

PyDoc_STRVAR(count_draws_doc, "count_draws(drawn, place, weights): add 1 to weights[place[i]] for "
                              "each i drawn.");

static PyObject *rows_count_draws(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[3];
    const int64_t *drawn = NULL, *place = NULL;
    double *weights = NULL;
    if (!PyArg_ParseTuple(args, "OOO", o, o + 1, o + 2))
        return NULL;
    Py_ssize_t count = PyObject_Size(o[0]);
    int fine = count >= 0 && column_rows(o[1], s) &&
               (drawn = WHOLE(o[0], "drawn", count, 0)) &&
               (place = WHOLE(o[1], "place", s->rows, 0)) &&
               (weights = DOUBLES(o[2], "weights", 1)) &&
               all_below(drawn, count, s->rows, "drawn") &&
               all_below(place, s->rows, s->rows, "place");
    if (fine) {
        UNLOCKED(count_draws(count, drawn, place, weights));
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(draw_outcomes_doc,
             "draw_outcomes(drawn, lot, knots, strengths, first, change): whether each sample is "
             "right at\nfirst, and the strength from which on it is not. `knots` (entries * 3).");

static PyObject *rows_draw_outcomes(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[6];
    const int64_t *drawn = NULL;
    const double *lot = NULL, *knots = NULL, *strength = NULL;
    uint8_t *first = NULL, *change = NULL;
    if (!PyArg_ParseTuple(args, "OOOOOO", o, o + 1, o + 2, o + 3, o + 4, o + 5))
        return NULL;
    Py_ssize_t size = PyObject_Size(o[2]), strengths = PyObject_Size(o[3]);
    int fine = size >= 0 && strengths >= 0 && column_rows(o[0], s) &&
               (drawn = WHOLE(o[0], "drawn", s->rows, 0)) && (lot = DOUBLES(o[1], "lot", 0)) &&
               (knots = column(held, o[2], "knots", "d", sizeof(double), size, 0)) &&
               (strength = column(held, o[3], "strengths", "d", sizeof(double), strengths, 0)) &&
               (first = column(held, o[4], "first", "?", 1, s->rows, 1)) &&
               (change = column(held, o[5], "change", "B", 1, s->rows, 1)) &&
               at_least_one(strengths < 255 ? strengths : 0) &&
               all_below(drawn, s->rows, size / 3, "drawn");
    if (fine) {
        UNLOCKED(draw_outcomes(s->rows, drawn, lot, knots, strength, strengths, first, change));
    }
    return done(held, s, fine, -1);
}

/* The resamples (drawn, first, change, confidence) of sizes that are known to be at least 1. */
static int resampled(Held *held, PyObject **o, Scores *s, Resampled *r)
{
    Py_ssize_t entries = PyObject_Size(o[3]);
    if (entries < 0 || !column_rows(o[0], s) || !at_least_one(r->strengths < 255 ? r->strengths : 0))
        return 0;
    if (!at_least_one(r->resamples) || s->rows % r->resamples)
        return at_least_one(0);
    r->size = s->rows / r->resamples;
    r->entries = entries;
    return (r->drawn = WHOLE(o[0], "drawn", s->rows, 0)) &&
           (r->first = column(held, o[1], "first", "?", 1, s->rows, 0)) &&
           (r->change = column(held, o[2], "change", "B", 1, s->rows, 0)) &&
           (r->confidence = column(held, o[3], "confidence", "d", sizeof(double), entries, 0)) &&
           all_below(r->drawn, s->rows, entries, "drawn");
}

PyDoc_STRVAR(sum_bins_doc,
             "sum_bins(resamples, strengths, bins, drawn, first, change, confidence, bin, ranks, "
             "count,\nstated, hits): sums over bins, those of each entry, or, where bin is None, of "
             "equal mass.");

static PyObject *rows_sum_bins(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[4], *bin_, *ranks_, *sums_[3];
    long long resamples, strengths, bins;
    const double *ranks = NULL;
    const int64_t *bin = NULL;
    double *sums[3] = {0};
    if (!PyArg_ParseTuple(args, "LLLOOOOOOOOO", &resamples, &strengths, &bins, o, o + 1, o + 2,
                          o + 3, &bin_, &ranks_, sums_, sums_ + 1, sums_ + 2))
        return NULL;
    Resampled r = {.resamples = resamples, .strengths = strengths};
    int fine = at_least_one(bins) && resampled(held, o, s, &r), by_mass = bin_ == Py_None;
    for (int k = 0; fine && k < 3; k++)
        fine = (sums[k] = column(held, sums_[k], "sums", "d", sizeof(double),
                                 resamples * bins * (k == 2 ? strengths : 1), 1)) != NULL;
    if (fine && by_mass) {
        size_t each = (size_t)r.entries * sizeof(double);
        s->room = malloc((size_t)(resamples + 1) * each);
        fine = s->room && (ranks = column(held, ranks_, "ranks", "d", sizeof(double), bins - 1, 0));
        if (!s->room)
            PyErr_NoMemory();
    } else if (fine) {
        fine = (bin = WHOLE(bin_, "bin", r.entries, 0)) && all_below(bin, r.entries, bins, "bin");
    }
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        if (by_mass) {
            mass_bins(&r, bins, ranks, s->room, (int64_t *)s->room + r.entries);
            bin = (int64_t *)s->room + r.entries;
        }
        sum_bins(&r, bins, bin, by_mass ? r.entries : 0, sums[0], sums[1], sums[2]);
        Py_END_ALLOW_THREADS
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(sum_cells_doc,
             "sum_cells(resamples, strengths, cells, drawn, first, change, confidence, left, part, "
             "sums):\nresiduals in cells.");

static PyObject *rows_sum_cells(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[4], *left_, *part_, *sums_;
    long long resamples, strengths, cells;
    const int64_t *left = NULL;
    const double *part = NULL;
    double *sums = NULL;
    if (!PyArg_ParseTuple(args, "LLLOOOOOOO", &resamples, &strengths, &cells, o, o + 1, o + 2,
                          o + 3, &left_, &part_, &sums_))
        return NULL;
    Resampled r = {.resamples = resamples, .strengths = strengths};
    int fine = at_least_one(cells) && resampled(held, o, s, &r) &&
               (left = WHOLE(left_, "left", r.entries, 0)) &&
               (part = column(held, part_, "part", "d", sizeof(double), r.entries, 0)) &&
               (sums = column(held, sums_, "sums", "d", sizeof(double),
                              resamples * strengths * cells, 1)) &&
               all_below(left, r.entries, cells - 1, "left");
    if (fine && !(s->room = malloc((size_t)(2 * r.size + 1) * sizeof(Share)))) {
        PyErr_NoMemory();
        fine = 0;
    }
    if (fine) {
        UNLOCKED(sum_cells(&r, cells, left, part, sums, s->room));
    }
    return done(held, s, fine, -1);
}

/* --- labels of whole rows: see _rows_tilts.h ------------------------------------------------- */

/* A matrix without gaps, whose classes times bins can be counted. */
static int cells_of(Held *held, PyObject *object, Scores *s, long long bins)
{
    if (!matrix(held, object, s, 0))
        return 0;
    int64_t size = s->type == DOUBLE ? 8 : s->type == FLOAT ? 4 : 2;
    int dense = s->class_step == size && (s->rows < 2 || s->row_step == s->classes * size);
    if (dense && bins >= 1 && bins <= MOST_CLASSES && s->classes <= MOST_CLASSES / bins)
        return 1;
    PyErr_SetString(PyExc_ValueError, "scores must be a dense matrix, and bins at least 1");
    return 0;
}

PyDoc_STRVAR(row_cells_doc, "row_cells(scores, total, bins, probs, cell): probabilities of checked "
                            "rows in float64, (N * K,),\nand their cells, class * bins + bin. `total` "
                            "is None for logits.");

static PyObject *rows_row_cells(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_, *total_, *o[2];
    const double *total = NULL;
    double *probs = NULL;
    int64_t *cell = NULL;
    long long bins;
    if (!PyArg_ParseTuple(args, "OOLOO", &matrix_, &total_, &bins, o, o + 1))
        return NULL;
    int fine = cells_of(held, matrix_, s, bins);
    if (fine && total_ != Py_None)
        fine = (total = DOUBLES(total_, "total", 0)) != NULL;
    int64_t size = s->rows * s->classes;
    fine = fine && (probs = column(held, o[0], "probs", "d", sizeof(double), size, 1)) &&
           (cell = WHOLE(o[1], "cell", size, 1));
    if (fine) {
        UNLOCKED(CALL(row_cells, s, total, bins, probs, cell));
    }
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(tilted_doc, "tilted(probs, cell, bins, factor, slope, middle, least, out): rows of "
                         "probabilities times\nfactors of their cells, in the first bin also by "
                         "their size, divided by their sums.");

static PyObject *rows_tilted(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_, *o[3];
    const int64_t *cell = NULL;
    double *out = NULL;
    long long bins;
    Tilt t = {0};
    if (!PyArg_ParseTuple(args, "OOLOdddO", &matrix_, o, &bins, o + 1, &t.slope, &t.middle,
                          &t.least, o + 2))
        return NULL;
    t.bins = bins;
    int fine = cells_of(held, matrix_, s, bins);
    int64_t size = s->rows * s->classes;
    fine = fine && (cell = WHOLE(o[0], "cell", size, 0)) &&
           all_below(cell, size, s->classes * bins, "cell") &&
           (t.factor = column(held, o[1], "factor", "d", sizeof(double), s->classes * bins, 0)) &&
           (out = column(held, o[2], "out", "d", sizeof(double), size, 1));
    if (fine && (s->type != DOUBLE || !(t.least >= DBL_MIN))) {
        PyErr_SetString(PyExc_ValueError, "probs must be float64, and least above 0");
        fine = 0;
    }
    if (fine) {
        UNLOCKED(CALL(tilted, s, cell, &t, out));
    }
    return done(held, s, fine, -1);
}
