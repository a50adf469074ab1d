/* test_trace.c - readers of request traces: what is read, and one line for each thing refused. */
#include "load_testing.h"

#include <math.h>

#include "capacity/trace.h"
#include "capacity/trace_scan.h"

/* ---- streams ---- */

static nb_trace *open_text(const char *text)
{
    nb_trace *t = NULL;
    nb_error e = { 0 };
    const nb_status st = nb_trace_open_text(text, strlen(text), "t", &t, &e);
    if (st != NB_OK) fail_msg("%s", e.msg);
    return t;
}

static void test_mooncake(void **state)
{
    (void)state;
    static const char text[] =
        "{\"timestamp\": 1000, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1,9007199254740992]}\r\n"
        "\n"
        "{\"x\":{\"a\":[1,{\"b\":\"}]\\\"\"}],\"c\":null,\"d\":-1.5e3},\"hash_ids\":[],\"output_length\":0,"
        "\"input_length\":1,\"timestamp\":2500.5}";
    nb_trace *t = open_text(text);
    assert_int_equal(nb_trace_format_of(t), NB_TRACE_MOONCAKE);
    for (int round = 0; round < 2; round++) {
        nb_trace_req r;
        bool more;
        assert_int_equal(nb_trace_next(t, &r, &more, NULL), NB_OK);
        assert_true(more && r.t_s == 0 && r.n_in == 6758 && r.n_out == 500);
        assert_true(r.n_id == 3 && r.id_tok == 512 && r.id[0] == 0 && r.id[1] == 1);
        assert_true(r.id[2] == NB_TRACE_MAX_ID_VALUE);
        assert_int_equal(nb_trace_next(t, &r, &more, NULL), NB_OK);
        assert_true(more && fabs(r.t_s - 1.5005) < 1e-9 && r.n_in == 1 && r.n_out == 0 &&
                    r.n_id == 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(nb_trace_next(t, &r, &more, NULL), NB_OK);
            assert_false(more);
        }
        nb_trace_rewind(t);
    }
    nb_trace_close(t);
}

static void test_azure(void **state)
{
    (void)state;
    nb_trace *t = open_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                            "2023-12-31 23:59:59.7500000,4808,10\r\n"
                            "2024-01-01T00:00:00Z,3,0\n"
                            "2024-03-01 00:00:00.25+00:00,16777216,8");
    static const double at[] = { 0, 0.25, 60 * 86400 + 0.5 };
    static const size_t n_in[] = { 4808, 3, NB_TRACE_MAX_TOK }, n_out[] = { 10, 0, 8 };
    nb_trace_req r;
    bool more;
    assert_int_equal(nb_trace_format_of(t), NB_TRACE_AZURE);
    for (size_t i = 0; i < 3; i++) { /* 2024 is a leap year */
        assert_int_equal(nb_trace_next(t, &r, &more, NULL), NB_OK);
        assert_true(more && fabs(r.t_s - at[i]) < 1e-6);
        assert_true(r.n_in == n_in[i] && r.n_out == n_out[i] && r.n_id == 0 && r.id_tok == 0);
    }
    assert_int_equal(nb_trace_next(t, &r, &more, NULL), NB_OK);
    assert_false(more);
    nb_trace_close(t);
}

/* The line that is refused is the last of text. */
static void refused(const char *text, const char *words)
{
    nb_trace *t = NULL;
    nb_error e = { 0 };
    nb_trace_req r;
    bool more = true;
    nb_status st = nb_trace_open_text(text, strlen(text), "f.jsonl", &t, &e);
    while (st == NB_OK && more) st = nb_trace_next(t, &r, &more, &e);
    if (st == NB_OK) fail_msg("accepted: %s", text);
    check_line(&e, st, "f.jsonl:");
    if (!strstr(e.msg, words)) fail_msg("\"%s\" is not in: %s", words, e.msg);
    nb_trace_close(t);
}

#define LINE(t, in, out, ids)                                                                      \
    "{\"timestamp\":" t ",\"input_length\":" in ",\"output_length\":" out ",\"hash_ids\":" ids "}"
#define HEAD "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static void test_refused_lines(void **state)
{
    (void)state;
    refused("", "expected a line of JSON");
    refused("timestamp,a,b\n", "expected a line of JSON");
    refused(LINE("1", "2", "3", "[]") "\n" LINE("0", "2", "3", "[]"), ":2: 0.001 s before");
    refused(LINE("-", "2", "3", "[]"), ":1: expected timestamp");
    refused(LINE("1e999", "2", "3", "[]"), "timestamp");
    refused(LINE("\"1\"", "2", "3", "[]"), "timestamp");
    refused(LINE("1", "-2", "3", "[]"), "input_length");
    refused(LINE("1", "2.5", "3", "[]"), "input_length");
    refused(LINE("1", "16777217", "3", "[]"), "input_length");
    refused(LINE("1", "99999999999999999999999", "3", "[]"), "input_length");
    refused(LINE("1", "2", "null", "[]"), "output_length");
    refused(LINE("1", "2", "3", "{}"), "hash_ids");
    refused(LINE("1", "2", "3", "[1,]"), "after the comma");
    refused(LINE("1", "2", "3", "[1 2]"), "a comma or ]");
    refused(LINE("1", "2", "3", "[-1]"), "hash_ids");
    refused(LINE("1", "2", "3", "[9007199254740993]"), "hash_ids");
    refused(LINE("1", "2", "3", "[1"), "a comma or ]");
    refused(LINE("1", "2", "3", "[]") "x", "nothing more");
    refused("{\"timestamp\":1,\"input_length\":2}", "\"output_length\"");
    refused("{\"timestamp\":1,\"input_length\":2,\"output_length\":3,\"x\":tru}", "a value");
    refused("{\"x\":\"a", "the end of a string");
    refused("{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
            "deep");
    refused("{x:1}", "a key");
    refused("{\"x\" 1}", "a colon");
    refused(HEAD "2023-11-16 18:17,1,2", ":2: expected a time");
    refused(HEAD "2023-13-16 18:17:03,1,2", "a time");
    refused(HEAD "2023-11-16 18:17:03,1", "two columns");
    refused(HEAD "2023-11-16 18:17:03,1,2,3", "two columns");
    refused(HEAD "2023-11-16 18:17:03,,2", "two columns");
    refused(HEAD "2023-11-16 18:17:03,16777217,2", "two columns");
    refused(HEAD "2023-11-16 18:17:03,1,2\n2023-11-16 18:17:02,1,2", ":3: 1 s before");
}

/* ---- sessions ---- */

#define SESSION(requests)                                                                          \
    "{\"id\":\"a\",\"block_size\":64,\"hash_id_scope\":\"local\",\"requests\":[" requests          \
    "],\"totals\":{}}"
#define REQ(t, in, out, ids)                                                                       \
    "{\"t\":" t ",\"type\":\"n\",\"in\":" in ",\"out\":" out ",\"hash_ids\":" ids                  \
    ",\"api_time\":2.5}"

static nb_session parse(const char *text, const char *salt)
{
    nb_session s;
    nb_error e = { 0 };
    if (nb_session_parse(text, strlen(text), "s", nb_str_c(salt), &s, &e) != NB_OK)
        fail_msg("%s", e.msg);
    return s;
}

/* Block i of a request, counted from its first. */
static uint32_t node_at(const nb_session *s, const nb_session_req *r, size_t i)
{
    uint32_t node = r->node;
    for (size_t k = r->n_id; k-- > i + 1;) node = s->parent[node];
    return node;
}

static void test_session(void **state)
{
    (void)state;
    static const char text[] = SESSION(REQ("0.0", "200", "7", "[1,2,3]") "," REQ(
        "5", "270", "8",
        "[1,2,3,4]") ","
                     "{\"type\":\"subagent\",\"t\":1,\"requests\":[" REQ("2", "130", "9", "[1,9]") "," REQ(
                         "9", "64", "9",
                         "[9]") "]},"
                                "{\"t\":7,\"in\":135,\"out\":1,\"hash_ids\":[1,2],\"api_time\":null}");
    nb_session s = parse(text, "x"), other = parse(text, "y");
    static const double t[] = { 0, 3, 5, 7, 10 };
    static const uint32_t n_in[] = { 200, 130, 270, 135, 64 };
    assert_int_equal(s.n_req, 5);
    assert_int_equal(s.n_node, 6); /* 1, 1-2, 1-2-3, 1-2-3-4, 1-9, 9 */
    for (size_t i = 0; i < 5; i++) assert_true(s.req[i].t_s == t[i] && s.req[i].n_in == n_in[i]);
    assert_true(s.req[0].api_s == 2.5 && s.req[3].api_s == 0);
    assert_int_equal(s.parent[s.req[2].node], s.req[0].node);
    assert_int_equal(node_at(&s, &s.req[1], 0), node_at(&s, &s.req[0], 0));
    assert_int_equal(node_at(&s, &s.req[3], 1), node_at(&s, &s.req[2], 1));
    assert_int_equal(s.parent[s.req[4].node], NB_BLOCK_NONE); /* the same name, another place */
    /* Keys are those of the cache: the root of the salt, then a chain. */
    nb_block_key root, key;
    assert_int_equal(nb_block_key_root(nb_str_c("x"), &root), NB_OK);
    assert_int_equal(nb_trace_keys(&root, 1, 64, &key), NB_OK);
    assert_memory_equal(&key, &s.key[node_at(&s, &s.req[0], 0)], sizeof key);
    root = key;
    assert_int_equal(nb_trace_keys(&root, 9, 64, &key), NB_OK);
    assert_memory_equal(&key, &s.key[s.req[1].node], sizeof key);
    for (size_t i = 0; i < s.n_node; i++) {
        assert_memory_not_equal(&s.key[i], &other.key[i], sizeof key);
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(&s.key[i], &s.key[k], sizeof key);
    }
    nb_session_deinit(&s);
    nb_session_deinit(&other);
}

/* A subagent's times count from its start: its t less its duration. */
static void test_subagent(void **state)
{
    (void)state;
#define CALL(t, n_in) REQ(t, n_in, "1", "[1]")
#define SUBAGENT(fields, requests) "{\"type\":\"subagent\"," fields "\"requests\":[" requests "]}"
    static const char *const text[] = {
        /* sent off to go on by itself: no duration */
        SESSION(CALL("0", "1") "," SUBAGENT(
            "\"t\":500,", CALL("0", "2") "," CALL("50", "4")) "," CALL("520", "3")),
        /* the same, of which the parent waited for the answer; duration after the list, too */
        SESSION(
            CALL("0", "1") "," SUBAGENT("\"t\":560,\"duration_ms\":60000,",
                                        CALL("0", "2") "," CALL("50", "4")) "," CALL("520", "3")),
        SESSION(CALL("0", "1") ",{\"requests\":[" CALL("0", "2") "," CALL(
            "50", "4") "],\"duration_ms\":60000,\"t\":560,\"status\":\"completed\"}," CALL("520",
                                                                                           "3")),
        /* a subagent's subagent; one that is said to have begun before the session */
        SESSION(CALL("0", "1") "," SUBAGENT(
            "\"t\":560,\"duration_ms\":60000,",
            CALL("0", "2") "," SUBAGENT("\"t\":51,\"duration_ms\":1e3,",
                                        CALL("0", "4"))) "," CALL("520", "3")),
        SESSION(SUBAGENT("\"t\":7,\"duration_ms\":8000,",
                         CALL("0", "1") "," CALL("500", "2")) "," CALL("550", "4") "," CALL("520",
                                                                                            "3")),
        /* null is no duration */
        SESSION(
            CALL("0", "1") "," SUBAGENT("\"t\":500,\"duration_ms\":null,",
                                        CALL("0", "2") "," CALL("50", "4")) "," CALL("520", "3")),
    };
    static const double at[] = { 0, 500, 520, 550 };
    for (size_t i = 0; i < NB_COUNT(text); i++) {
        nb_session s = parse(text[i], "x");
        assert_int_equal(s.n_req, 4);
        for (size_t k = 0; k < 4; k++) {
            if (!(fabs(s.req[k].t_s - at[k]) < 1e-9) || s.req[k].n_in != k + 1)
                fail_msg("%zu: request %zu: %u tokens at %g s", i, k, s.req[k].n_in, s.req[k].t_s);
        }
        nb_session_deinit(&s);
    }
}

static void test_scope(void **state)
{
    (void)state;
    static const char text[] = "{\"hash_id_scope\":\"global\",\"requests\":[" REQ(
        "0", "600", "1", "[5]") "],\"block_size\":512}";
    nb_session s = parse(text, "x"), other = parse(text, "y");
    assert_int_equal(s.id_tok, 512);
    assert_memory_equal(s.key, other.key, 8 * sizeof *s.key);
    assert_memory_not_equal(&s.key[0], &s.key[7], sizeof *s.key);
    nb_session_deinit(&s);
    nb_session_deinit(&other);
    s = parse("{\"block_size\":64,\"requests\":[]}", "");
    assert_int_equal(s.n_req, 0);
    nb_session_deinit(&s);
}

static void refused_session(const char *text, const char *words)
{
    nb_session s;
    nb_error e = { 0 };
    const nb_status st = nb_session_parse(text, strlen(text), "f.json", nb_str_c(""), &s, &e);
    if (st == NB_OK) fail_msg("accepted: %s", text);
    check_line(&e, st, "f.json:");
    if (!strstr(e.msg, words)) fail_msg("\"%s\" is not in: %s", words, e.msg);
}

static void test_refused_sessions(void **state)
{
    (void)state;
    refused_session("", ":1: expected a session");
    refused_session("[]", "a session");
    refused_session("{\n\n}", ":3: expected a field \"requests\"");
    refused_session("{\"requests\":[]}", "\"block_size\"");
    refused_session("{\"block_size\":0,\"requests\":[]}", "multiple of 64");
    refused_session("{\"block_size\":100,\"requests\":[]}", "multiple of 64");
    refused_session("{\"block_size\":8192,\"requests\":[]}", "multiple of 64");
    refused_session("{\"hash_id_scope\":\"near\",\"requests\":[]}", "hash_id_scope");
    refused_session("{\"requests\":[],\"requests\":[]}", "once");
    refused_session("{\"requests\":{}}", "requests as an array");
    refused_session(SESSION("1"), "requests that are objects");
    refused_session(SESSION("{\"t\":0,\"in\":1,\"out\":1}"), "\"hash_ids\"");
    refused_session(SESSION("{\n\"t\":0}"), ":1: expected a field \"in\"");
    refused_session(SESSION(REQ("-1", "1", "1", "[]")), "t as seconds");
    refused_session(SESSION(REQ("1", "16777217", "1", "[]")), "in of 0");
    refused_session(SESSION(REQ("1", "1", "\"1\"", "[]")), "out of 0");
    refused_session(SESSION(REQ("1", "1", "1", "[1.5]")), "hash_ids");
    refused_session(SESSION(REQ("1", "1", "1", "[]")) "]", "nothing more");
    refused_session(SESSION("{\"requests\":[]}"), ":1: expected a field \"t\"");
    refused_session(SESSION(SUBAGENT("\"t\":1,\"duration_ms\":-1,", "")), "duration_ms");
    refused_session(SESSION(SUBAGENT("\"t\":1,\"duration_ms\":2e12,", "")), "duration_ms");
    refused_session(SESSION(SUBAGENT("\"t\":1,\"duration_ms\":\"1\",", "")), "duration_ms");
    refused_session(SESSION(SUBAGENT("\"t\":1,\"requests\":[],", "")), "\"requests\" once");
    refused_session(SESSION("{\"requests\":[{\"requests\":[{\"requests\":[{\"requests\":"
                            "[{\"requests\":[]}]}]}]}]}"),
                    "4 deep");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mooncake),         cmocka_unit_test(test_azure),
        cmocka_unit_test(test_refused_lines),    cmocka_unit_test(test_session),
        cmocka_unit_test(test_subagent),         cmocka_unit_test(test_scope),
        cmocka_unit_test(test_refused_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
