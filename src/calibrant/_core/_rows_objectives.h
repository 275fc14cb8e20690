/* What the losses of training call: see _rows_losses.h and _rows_curves.h. */

/* A matrix with dense rows of floats; the step between them is in entries. */
static void *dense_rows(Held *held, PyObject *object, const char *name, const char *type,
                        int64_t rows, int64_t width, int64_t *step, int writable)
{
    Py_ssize_t size = *type == 'd' ? sizeof(double) : sizeof(float);
    Py_buffer *view = hold(held, object, writable ? PyBUF_WRITABLE : 0);
    if (!view)
        return NULL;
    if (!view->format || strcmp(view->format, type) || view->itemsize != size || view->ndim != 2 ||
        view->shape[0] != rows || view->shape[1] != width ||
        (width > 1 && view->strides[1] != size) || view->strides[0] % size ||
        (uintptr_t)view->buf % (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s must be %lld dense rows of %lld numbers", name,
                     (long long)rows, (long long)width);
        return NULL;
    }
    *step = view->strides[0] / size;
    return view->buf;
}

static int block_of(Held *held, PyObject *object, int64_t rows, Block *b)
{
    b->at = dense_rows(held, object, "block", "d", BLOCK_WIDTH, rows, &b->step, 1);
    return b->at != NULL;
}

/* Dense rows of logits, with room for `extra` bytes per class. */
static int loss_logits(Held *held, PyObject *object, Scores *s, size_t extra)
{
    if (!matrix(held, object, s, extra))
        return 0;
    Py_ssize_t size = s->type == DOUBLE ? sizeof(double) : sizeof(float);
    if (s->type < FLOAT || s->class_step != size) {
        PyErr_SetString(PyExc_ValueError, "logits must be dense rows of float32 or float64");
        return 0;
    }
    return 1;
}

static int loss_rows(Held *held, PyObject **given, Scores *s, LossRows *l)
{
    return loss_logits(held, given[0], s, 0) && (given[1] != Py_None || missing_labels()) &&
           label_column(held, given[1], s, &l->labels) &&
           block_of(held, given[2], s->rows, &l->block);
}

static int classes_in_range(const LossRows *l, const Scores *s)
{
    const double *top = l->block.at + PREDICTED * l->block.step;
    const double *rival = l->block.at + RIVAL_CLASS * l->block.step;
    for (int64_t i = 0; i < s->rows; i++)
        if (!(top[i] >= 0 && top[i] < (double)s->classes && rival[i] >= -1 &&
              rival[i] < (double)s->classes)) {
            PyErr_SetString(PyExc_ValueError, "block must have classes in 0 ... K - 1");
            return 0;
        }
    return 1;
}

/* The gradient by the value: one number per row, or one for all. */
static int by_value(Held *held, PyObject *object, const char *type, int64_t rows, LossGradient *g)
{
    Py_ssize_t size = *type == 'd' ? sizeof(double) : sizeof(float);
    Py_buffer *view = hold(held, object, 0);
    if (!view)
        return 0;
    if (!view->format || strcmp(view->format, type) || view->itemsize != size || view->ndim > 1 ||
        (view->ndim && (view->shape[0] != rows || view->strides[0] % size)) ||
        (uintptr_t)view->buf % (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "by_value must be a number or a column");
        return 0;
    }
    g->by_value = view->buf;
    g->by_value_step = view->ndim ? view->strides[0] : 0;
    return 1;
}

static int gradient_to(Held *held, PyObject *by_value_, PyObject *out, const Scores *s,
                       LossGradient *g)
{
    const char *type = s->type == DOUBLE ? "d" : "f";
    int64_t step = 0;
    if (!by_value(held, by_value_, type, s->rows, g) ||
        !(g->out = dense_rows(held, out, "out", type, s->rows, s->classes, &step, 1)))
        return 0;
    g->out_step = step * (*type == 'd' ? (int64_t)sizeof(double) : (int64_t)sizeof(float));
    return 1;
}

PyDoc_STRVAR(loss_gradient_doc,
             "loss_gradient(logits, labels, block, wanted, margin, by_value, out): the gradient by\n"
             "the logits from the slopes in the block.");

static PyObject *rows_loss_gradient(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[3], *by_value_, *out_;
    LossRows l = {0};
    LossGradient g = {0};
    if (!PyArg_ParseTuple(args, "OOOidOO", o, o + 1, o + 2, &l.wanted, &l.margin, &by_value_, &out_))
        return NULL;
    int fine = loss_rows(held, o, s, &l) && classes_in_range(&l, s);
    if (fine && (fine = gradient_to(held, by_value_, out_, s, &g))) {
        UNLOCKED(CALL(loss_gradient, s, &l, &g));
    }
    return done(held, s, fine, -1);
}

/* A loss by its name, with what is given per sample and which samples count. */
static int curve_of(Held *held, PyObject **given, const char *name, const Scores *s, Curve *k,
                    const Named **found)
{
    Py_ssize_t size = s->type == DOUBLE ? sizeof(double) : sizeof(float);
    const void *numbers = NULL;
    for (*found = CURVES; (*found)->name && strcmp((*found)->name, name);)
        (*found)++;
    if (!(*found)->name || ((*found)->takes_given && given[0] == Py_None)) {
        PyErr_Format(PyExc_ValueError, "no loss %s with these arguments", name);
        return 0;
    }
    if ((given[0] != Py_None &&
         !(numbers = column(held, given[0], "given", size == sizeof(double) ? "d" : "f", size,
                            k->rows, 0))) ||
        (given[1] != Py_None && !(k->valid = column(held, given[1], "valid", "?", 1, k->rows, 0))))
        return 0;
    if (!(k->room = malloc((size_t)(k->rows + 1) * (2 * sizeof(Place) + 5 * sizeof(double))))) {
        PyErr_NoMemory();
        return 0;
    }
    k->given = numbers_of(k, 4);
    for (int64_t i = 0; numbers && i < k->rows; i++)
        k->given[i] = size == sizeof(double) ? ((const double *)numbers)[i]
                                             : (double)((const float *)numbers)[i];
    return 1;
}

/* One value per sample, or that of the batch, in float32 or float64. */
static int values_to(Held *held, PyObject *object, Curve *k, int of_batch)
{
    Py_buffer *view = hold(held, object, PyBUF_WRITABLE);
    if (!view)
        return 0;
    const char *format = view->format ? view->format : "B";
    Py_ssize_t size = *format == 'd' ? sizeof(double) : sizeof(float);
    if ((strcmp(format, "d") && strcmp(format, "f")) || view->itemsize != size ||
        view->ndim != !of_batch || (uintptr_t)view->buf % (size_t)size ||
        (!of_batch && (view->shape[0] != k->rows || (k->rows > 1 && view->strides[0] != size)))) {
        PyErr_SetString(PyExc_ValueError, "out must be a number or a dense column");
        return 0;
    }
    k->out = view->buf;
    k->wide = *format == 'd';
    return 1;
}

PyDoc_STRVAR(loss_columns_doc,
             "loss_columns(logits, labels, block, wanted, margin): fill the columns of losses.\n\n"
             "The first row that is not finite, or -1.");

static PyObject *rows_loss_columns(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[3];
    LossRows l = {0};
    int64_t bad = -1;
    if (!PyArg_ParseTuple(args, "OOOid", o, o + 1, o + 2, &l.wanted, &l.margin))
        return NULL;
    int fine = loss_rows(held, o, s, &l);
    if (fine) {
        UNLOCKED(bad = CALL(loss_columns, s, &l));
    }
    return done(held, s, fine, bad);
}

PyDoc_STRVAR(loss_value_doc,
             "loss_value(logits, labels, block, wanted, margin, name, a, b, c, given, valid, out,\n"
             "filled): the columns, unless they are filled, and a loss from them. Its slopes go to\n"
             "the block, its value per sample, or that of the batch, to `out`. The first row that is\n"
             "not finite, or -1.");

static PyObject *rows_loss_value(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[6];
    const char *name;
    const Named *found;
    LossRows l = {0};
    Curve k = {0};
    int64_t bad = -1;
    int filled;
    if (!PyArg_ParseTuple(args, "OOOidsdddOOOp", o, o + 1, o + 2, &l.wanted, &l.margin, &name, &k.a,
                          &k.b, &k.c, o + 3, o + 4, o + 5, &filled))
        return NULL;
    int fine = loss_rows(held, o, s, &l);
    k.rows = s->rows;
    k.block = l.block;
    fine = fine && curve_of(held, o + 3, name, s, &k, &found) &&
           values_to(held, o[5], &k, found->of_batch);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        bad = filled ? -1 : CALL(loss_columns, s, &l);
        if (bad < 0)
            run_curve(&k, found);
        Py_END_ALLOW_THREADS
    }
    free(k.room);
    return done(held, s, fine, bad);
}

/* --- the penalty of all classes -------------------------------------------------------------- */

/* Logits, with room for two rows of them; two columns for the rows; the numbers of the classes. */
static int class_gaps_of(Held *held, PyObject **given, Scores *s, ClassGaps *c)
{
    int64_t step = 0;
    if (!loss_logits(held, given[0], s, 2 * sizeof(double)) ||
        !(c->top = dense_rows(held, given[1], "rows", "d", 2, s->rows, &step, 1)) ||
        !(c->classes = column(held, given[2], "classes", "d", sizeof(double), s->classes + 1, 1)))
        return 0;
    c->share = c->top + step;
    return 1;
}

PyDoc_STRVAR(class_gaps_doc,
             "class_gaps(logits, rows, classes, labels, valid): add to each of K classes its\n"
             "probabilities minus how often it is the label, and to the last entry how many rows\n"
             "count; fill the two columns of the rows. The first row that is not finite, or -1.");

static PyObject *rows_class_gaps(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[5];
    ClassGaps c = {0};
    int64_t bad = -1;
    if (!PyArg_ParseTuple(args, "OOOOO", o, o + 1, o + 2, o + 3, o + 4))
        return NULL;
    int fine = class_gaps_of(held, o, s, &c) && (o[3] != Py_None || missing_labels()) &&
               label_column(held, o[3], s, &c.labels) &&
               (o[4] == Py_None || (c.valid = column(held, o[4], "valid", "?", 1, s->rows, 0)));
    if (fine) {
        UNLOCKED(bad = CALL(class_gaps, s, &c));
    }
    return done(held, s, fine, bad);
}

/* The mean over the classes of |gap / count|, and its slopes in the sums instead of the gaps. */
static double class_slopes(double *classes, int64_t num_classes)
{
    double count = classes[num_classes] > 1 ? classes[num_classes] : 1, sum = 0;
    double slope = 1 / (count * (double)num_classes);
    for (int64_t k = 0; k < num_classes; k++) {
        sum += fabs(classes[k]);
        classes[k] = slope * sign_of(classes[k]);
    }
    return sum * slope;
}

PyDoc_STRVAR(class_slopes_doc,
             "class_slopes(num_classes, classes, out): the penalty of the classes' gaps to `out`;\n"
             "its slopes take the place of the gaps.");

static PyObject *rows_class_slopes(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *classes_, *out_;
    double *classes = NULL;
    long long num_classes;
    Curve k = {0};
    if (!PyArg_ParseTuple(args, "LOO", &num_classes, &classes_, &out_))
        return NULL;
    if (num_classes < 1 || num_classes > MOST_CLASSES) {
        PyErr_SetString(PyExc_ValueError, "num_classes must be at least 1");
        return NULL;
    }
    int fine = (classes = column(held, classes_, "classes", "d", sizeof(double), num_classes + 1,
                                 1)) != NULL &&
               values_to(held, out_, &k, 1);
    if (fine)
        put_value(&k, 0, class_slopes(classes, num_classes));
    return done(held, s, fine, -1);
}

PyDoc_STRVAR(class_gap_gradient_doc,
             "class_gap_gradient(logits, rows, classes, by_value, out): the gradient by the logits\n"
             "from the slopes of the classes.");

static PyObject *rows_class_gap_gradient(PyObject *self, PyObject *args)
{
    HELD_WHILE_CALLED;
    PyObject *o[5];
    ClassGaps c = {0};
    LossGradient g = {0};
    if (!PyArg_ParseTuple(args, "OOOOO", o, o + 1, o + 2, o + 3, o + 4))
        return NULL;
    int fine = class_gaps_of(held, o, s, &c) && gradient_to(held, o[3], o[4], s, &g);
    if (fine) {
        UNLOCKED(CALL(class_gap_gradient, s, &c, &g));
    }
    return done(held, s, fine, -1);
}
