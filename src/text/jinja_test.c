/* jinja_test.c - the tests of "x is ...". */
#include "text/jinja_internal.h"

#define TEST(name)                                                                                 \
    static nb_status name(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,        \
                          nb_jv *out)
#define UNUSED_ARGS ((void)r, (void)a, (void)raw)

static nb_status yes_no(bool b, nb_jv *out)
{
    *out = nb_jv_bool(b);
    return NB_OK;
}

TEST(t_defined) { UNUSED_ARGS; return yes_no(self->kind != NB_JK_UNDEF, out); }
TEST(t_undefined) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_UNDEF, out); }
TEST(t_none) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_NONE, out); }
TEST(t_string) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_STR, out); }
TEST(t_mapping) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_DICT, out); }
TEST(t_number) { UNUSED_ARGS; return yes_no(nb_jv_is_num(self), out); }
TEST(t_integer) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_INT, out); }
TEST(t_float) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_FLOAT, out); }
TEST(t_boolean) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_BOOL, out); }
TEST(t_true) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_BOOL && self->u.b, out); }
TEST(t_false) { UNUSED_ARGS; return yes_no(self->kind == NB_JK_BOOL && !self->u.b, out); }

/* Has a length and takes subscripts: in Python that holds for undefined values too. */
TEST(t_sequence)
{
    UNUSED_ARGS;
    const uint8_t k = self->kind;
    return yes_no(k == NB_JK_UNDEF || k == NB_JK_STR || k == NB_JK_LIST || k == NB_JK_TUPLE ||
                  k == NB_JK_DICT || k == NB_JK_RANGE, out);
}

TEST(t_iterable)
{
    UNUSED_ARGS;
    const uint8_t k = self->kind;
    return yes_no(k == NB_JK_UNDEF || k == NB_JK_STR || k == NB_JK_LIST || k == NB_JK_TUPLE ||
                  k == NB_JK_DICT || k == NB_JK_RANGE || k == NB_JK_VIEW || k == NB_JK_GEN ||
                  k == NB_JK_LOOP, out);
}

static nb_status modulo_is(nb_jr *r, const nb_jv *self, const nb_jv *by, int64_t want, nb_jv *out)
{
    const nb_jv w = nb_jv_int(want);
    nb_jv rest;
    bool same;
    NB_TRY(nb_j_binop(r, NB_JE_MOD, self, by, &rest));
    NB_TRY(nb_jv_equal(r, &rest, &w, &same));
    return yes_no(same, out);
}

TEST(t_odd)
{
    UNUSED_ARGS;
    const nb_jv two = nb_jv_int(2);
    return modulo_is(r, self, &two, 1, out);
}

TEST(t_even)
{
    UNUSED_ARGS;
    const nb_jv two = nb_jv_int(2);
    return modulo_is(r, self, &two, 0, out);
}

TEST(t_divisibleby) { (void)raw; return modulo_is(r, self, &a[0], 0, out); }

static nb_status compare(nb_jr *r, nb_jcmp op, const nb_jv *x, const nb_jv *y, nb_jv *out)
{
    bool b;
    NB_TRY(nb_j_compare(r, op, x, y, &b));
    return yes_no(b, out);
}

TEST(t_eq) { (void)raw; return compare(r, NB_JC_EQ, self, &a[0], out); }
TEST(t_ne) { (void)raw; return compare(r, NB_JC_NE, self, &a[0], out); }
TEST(t_lt) { (void)raw; return compare(r, NB_JC_LT, self, &a[0], out); }
TEST(t_le) { (void)raw; return compare(r, NB_JC_LE, self, &a[0], out); }
TEST(t_gt) { (void)raw; return compare(r, NB_JC_GT, self, &a[0], out); }
TEST(t_ge) { (void)raw; return compare(r, NB_JC_GE, self, &a[0], out); }
TEST(t_in) { (void)raw; return compare(r, NB_JC_IN, self, &a[0], out); }

/* Identity: for scalars equal values of one kind, for the rest the same object. */
TEST(t_sameas)
{
    (void)raw;
    const nb_jv *o = &a[0];
    bool same = false;
    if (self->kind == o->kind && self->kind >= NB_JK_LIST) same = self->u.func == o->u.func;
    else if (self->kind == o->kind) NB_TRY(nb_jv_equal(r, self, o, &same));
    return yes_no(same, out);
}

const nb_jdef nb_j_tests[] = {
    { "defined", "", 0, t_defined },
    { "undefined", "", 0, t_undefined },
    { "none", "", 0, t_none },
    { "string", "", 0, t_string },
    { "mapping", "", 0, t_mapping },
    { "iterable", "", 0, t_iterable },
    { "sequence", "", 0, t_sequence },
    { "number", "", 0, t_number },
    { "integer", "", 0, t_integer },
    { "float", "", 0, t_float },
    { "boolean", "", 0, t_boolean },
    { "true", "", 0, t_true },
    { "false", "", 0, t_false },
    { "odd", "", 0, t_odd },
    { "even", "", 0, t_even },
    { "divisibleby", "num", 1, t_divisibleby },
    { "sameas", "other", 1, t_sameas },
    { "in", "seq", 1, t_in },
    { "eq", "other", 1, t_eq },
    { "equalto", "other", 1, t_eq },
    { "==", "other", 1, t_eq },
    { "ne", "other", 1, t_ne },
    { "!=", "other", 1, t_ne },
    { "lt", "other", 1, t_lt },
    { "lessthan", "other", 1, t_lt },
    { "<", "other", 1, t_lt },
    { "le", "other", 1, t_le },
    { "<=", "other", 1, t_le },
    { "gt", "other", 1, t_gt },
    { "greaterthan", "other", 1, t_gt },
    { ">", "other", 1, t_gt },
    { "ge", "other", 1, t_ge },
    { ">=", "other", 1, t_ge },
    NB_J_REFUSED("callable"), NB_J_REFUSED("escaped"), NB_J_REFUSED("lower"), NB_J_REFUSED("upper"),
    NB_J_REFUSED("filter"), NB_J_REFUSED("test"),
    { NULL, NULL, 0, NULL },
};
