/* A slab of logits of few classes, added to a stream in one call: sweep, histogram, exact sums. What
   a block of rows adds is what the functions called here add; its columns never leave the cache. */

#define BLOCK_ROWS 512
#define SQUEEZED (BLOCK_ROWS + 16) /* floats from class to class: not a power of two */
#define LARGE_LOSS 32.0 /* squares from here on do not fit into exact_sum */

enum { OF_LOSS, OF_BRIER, OF_ENTROPY, LOSSES };
enum { IMPOSSIBLE = 4 * LOSSES, LARGE, SLAB_SUMS }; /* after two words of each sum and of squares */

typedef struct {
    Table classes;
    Histogram width;
    double *confidence, *large;
    int32_t *cell;
    int64_t *sums;
    int64_t ignored, rows; /* rows: that were added so far */
    int ignores;
    int64_t *by_cluster, code; /* NULL without clusters */
    ClusterColumns clusters;
    int32_t first;
    int drop;
} Slab;

/* A block is a number of whole vectors: one that is written past the last label still fits. */
typedef struct {
    int64_t kept[BLOCK_ROWS], labels[BLOCK_ROWS], predicted[BLOCK_ROWS];
    uint16_t masks[BLOCK_ROWS / 16];
    uint8_t correct[BLOCK_ROWS];
    double losses[LOSSES][BLOCK_ROWS], label_prob[BLOCK_ROWS], odds[BLOCK_ROWS];
} BlockRoom;

#define GATHER(type) \
    for (int64_t k = 0; k < s->classes; k++) \
        for (int64_t i = 0; i < count; i++) \
    ((type *)to)[k * BLOCK_ROWS + i] = \
        *(const type *)(s->data + k * s->class_step + kept[i] * s->row_step)

/* Some rows class by class. */
static Scores gathered(const Scores *s, const int64_t *kept, int64_t count, void *to)
{
    int64_t size = s->type < FLOAT ? 2 : s->type == FLOAT ? 4 : 8;
    Scores some = *s;
    if (s->type < FLOAT)
        GATHER(uint16_t);
    else if (s->type == FLOAT)
        GATHER(uint32_t);
    else
        GATHER(uint64_t);
    some.data = to;
    some.rows = count;
    some.row_step = size;
    some.class_step = BLOCK_ROWS * size;
    return some;
}

/* The rows in the masks, class by class. */
static Scores squeezed(const Scores *s, BlockRoom *room, int64_t count)
{
    int64_t found = 0;
    if (s->type == FLOAT && s->row_step == sizeof(float)) {
        Scores some = *s;
        CALL(squeeze, s, room->masks, s->room, SQUEEZED);
        some.data = s->room;
        some.rows = count;
        some.class_step = SQUEEZED * sizeof(float);
        return some;
    }
    for (int64_t i = 0; i < s->rows; i++)
        if (room->masks[i / 16] >> i % 16 & 1)
            room->kept[found++] = i;
    return gathered(s, room->kept, count, s->room);
}

/* Large losses are listed, impossible labels counted; both then count as 0. */
static void take_large(Slab *slab, double *loss, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        if (loss[i] >= LARGE_LOSS) {
            slab->sums[IMPOSSIBLE] += isinf(loss[i]) != 0;
            if (!isinf(loss[i]))
                slab->large[slab->sums[LARGE]++] = loss[i];
            loss[i] = 0;
        }
}

/* The same sums as add_by_cluster has, of rows that are all of one cluster. */
static void add_to_cluster(const Slab *slab, const BlockRoom *room, const int32_t *cell,
                           const double *confidence, int64_t rows)
{
    const ClusterColumns *c = &slab->clusters;
    const double *const losses[] = {room->losses[0], room->losses[1], room->losses[2]};
    int64_t counts = 2 * c->cells + 1, sums[4] = {0}, *of = slab->by_cluster + slab->code;
    for (int64_t i = 0; i < rows; i++) {
        int64_t coarse = cell[i] >> (c->coarse + 1);
        int64_t octave = within((coarse >> c->per_octave) - c->first_octave, c->octaves);
        of[(2 * coarse + (cell[i] & 1)) * c->clusters]++;
        of[(counts + octave) * c->clusters] += in_units(confidence[i], c);
    }
    CALL(sum_units, losses, rows, c->unit, c->largest, sums);
    of[(counts - 1) * c->clusters] += sums[3];
    for (int k = 0; k < 3; k++)
        of[(counts + c->octaves + k) * c->clusters] += sums[k];
}

/* Whether all rows of the block were good. */
static int add_block(Slab *slab, const Scores *s, const int64_t *labels, BlockRoom *room)
{
    double *confidence = slab->confidence + slab->rows, *loss = room->losses[OF_LOSS];
    int32_t *cell = slab->cell + slab->rows;
    Columns c = {room->predicted, room->correct,    room->odds,
                 confidence,      loss,             room->label_prob,
                 room->losses[OF_BRIER],            room->losses[OF_ENTROPY]};
    if (sweep_logits(s, labels, &c, &slab->classes) >= 0)
        return 0;
    int large = CALL(to_losses, loss, s->rows, LARGE_LOSS);
    CALL(add_by_width, &slab->width, s->rows, confidence, room->correct);
    CALL(odds_cells, room->odds, room->correct, s->rows, slab->first, slab->drop,
         slab->clusters.cells << slab->clusters.coarse, cell);
    if (slab->by_cluster)
        add_to_cluster(slab, room, cell, confidence, s->rows);
    if (large)
        take_large(slab, loss, s->rows);
    for (int of = 0; of < LOSSES; of++)
        CALL(sum_squares, room->losses[of], s->rows, slab->sums + 4 * of);
    slab->rows += s->rows;
    return 1;
}

/* How many labels of a block count, or -1 where one is not a class. */
static int64_t kept_rows(const Slab *slab, int64_t classes, const int64_t *labels, int64_t count,
                         BlockRoom *room)
{
    int64_t bad = 0;
    if (slab->ignores)
        return CALL(kept_labels, labels, count, classes, slab->ignored, room->labels, room->masks);
    for (int64_t i = 0; i < count; i++)
        bad |= labels[i] | (classes - 1 - labels[i]);
    return bad < 0 ? -1 : count;
}

/* Rows added, or -1 where one is bad, and the sums then mean nothing. */
static int64_t add_slab(Slab *slab, const Scores *s, const int64_t *labels)
{
    BlockRoom room;
    for (int64_t start = 0; start < s->rows; start += BLOCK_ROWS) {
        Scores block = *s;
        block.rows = s->rows - start < BLOCK_ROWS ? s->rows - start : BLOCK_ROWS;
        block.data += start * s->row_step;
        int64_t kept = kept_rows(slab, s->classes, labels + start, block.rows, &room);
        if (kept < 0)
            return -1;
        int some = kept < block.rows;
        if (some)
            block = squeezed(&block, &room, kept);
        if (kept && !add_block(slab, &block, some ? room.labels : labels + start, &room))
            return -1;
    }
    return slab->rows;
}

PyDoc_STRVAR(add_slab_doc,
             "add_slab(scores, labels, ignored, ignores, bins, count, units, hits, bits, *width, "
             "sums, cell,\nconfidence, large, first, drop, layout, code, table): add logits of few "
             "classes to the tables\nand sums of a stream; rows added, or -1 where one is bad.");

static PyObject *rows_add_slab(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_, *labels_, *classes_[3], *width_[3], *o[4], *table_;
    const int64_t *labels = NULL;
    long long ignored, bins, code;
    int bits, first;
    Slab slab = {.rows = 0};
    ClusterLayout layout;
    if (!PyArg_ParseTuple(args, "OOLpLOOOiOOOOOOOii(" CLUSTER_LAYOUT ")LO", &matrix_, &labels_,
                          &ignored, &slab.ignores, &bins, classes_, classes_ + 1, classes_ + 2,
                          &bits, width_, width_ + 1, width_ + 2, o, o + 1, o + 2, o + 3,
                          &first, &slab.drop, PARSED_LAYOUT(layout), &code, &table_))
        return NULL;
    slab.ignored = ignored, slab.first = first, slab.code = code;
    int fine = cluster_columns(&layout, &slab.clusters) &&
               matrix(held, matrix_, s, BLOCK_ROWS * sizeof(double)) &&
               (labels = WHOLE(labels_, "labels", s->rows, 0)) &&
               tables(held, classes_, s, bins, &slab.classes) &&
               histogram(held, width_, bits, &slab.width) &&
               (slab.sums = WHOLE(o[0], "sums", SLAB_SUMS, 1)) &&
               (slab.cell = column(held, o[1], "cell", "il", sizeof(int32_t), s->rows, 1)) &&
               (slab.confidence = DOUBLES(o[2], "confidence", 1)) &&
               (slab.large = DOUBLES(o[3], "large", 1));
    if (fine && table_ != Py_None)
        fine = (slab.by_cluster = cluster_table(held, table_, &slab.clusters)) != NULL;
    if (fine && (s->classes > NARROW || s->rows > MOST_CLASSES / 8 || slab.drop < 0 ||
                 slab.drop > 31 || code < 0 || code >= slab.clusters.clusters ||
                 slab.clusters.cells << slab.clusters.coarse > INT32_MAX / 2)) {
        PyErr_SetString(PyExc_ValueError, "a slab must have few classes, and sizes in range");
        fine = 0;
    }
    int64_t added = 0;
    if (fine) {
        UNLOCKED(added = add_slab(&slab, s, labels));
    }
    return done(held, s, fine, added);
}

/* The same columns of classes that are swept in float64, a block at a time. */
static int64_t top_narrow(const Scores *s, const int64_t *some, int64_t number,
                          const int64_t *labels, const Columns *out)
{
    double spare[4][BLOCK_ROWS];
    for (int64_t start = 0; start < number; start += BLOCK_ROWS) {
        int64_t count = number - start < BLOCK_ROWS ? number - start : BLOCK_ROWS;
        Scores block = gathered(s, some + start, count, s->room);
        Columns c = {out->predicted + start, out->correct + start, out->odds + start,
                     out->confidence + start, spare[0], spare[1], spare[2], spare[3]};
        int64_t bad = sweep_logits(&block, labels ? labels + start : NULL, &c, NULL);
        if (bad >= 0)
            return start + bad;
    }
    return -1;
}

PyDoc_STRVAR(top_doc, "top(scores, some, labels, predicted, correct, odds, confidence): columns of "
                      "the predicted class of\nsome rows, in rising order, of few classes. First bad "
                      "one, or -1.");

static PyObject *rows_top(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *matrix_, *some_, *labels_, *o[4];
    const int64_t *some = NULL, *labels = NULL;
    Columns out = {0};
    int64_t bad = -1, last = -1;
    if (!PyArg_ParseTuple(args, "OOOOOOO", &matrix_, &some_, &labels_, o, o + 1, o + 2, o + 3))
        return NULL;
    Py_ssize_t number = PyObject_Size(some_);
    int fine = number >= 0 && matrix(held, matrix_, s, BLOCK_ROWS * sizeof(double)) &&
               (some = WHOLE(some_, "some", number, 0)) &&
               (labels_ == Py_None || (labels = WHOLE(labels_, "labels", number, 0))) &&
               (out.predicted = WHOLE(o[0], "predicted", number, 1)) &&
               (out.correct = column(held, o[1], "correct", "?", 1, number, 1)) &&
               (out.odds = column(held, o[2], "odds", "d", sizeof(double), number, 1)) &&
               (out.confidence = column(held, o[3], "confidence", "d", sizeof(double), number, 1)) &&
               (!labels || all_below(labels, number, s->classes, "labels"));
    for (Py_ssize_t i = 0; fine && i < number; last = some[i++])
        fine = some[i] > last && some[i] < s->rows;
    fine = fine && s->classes <= NARROW;
    if (!fine && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "some must be rows in rising order, of few classes");
    if (fine) {
        UNLOCKED(bad = s->type == DOUBLE || s->classes <= EXACT
                           ? top_narrow(s, some, number, labels, &out)
                           : CALL(top_few, s, some, number, labels, &out));
    }
    return done(held, s, fine, bad);
}
