/* test_grammar.c - which texts a specification admits, and how one is refused. */
#include "grammar_testing.h"

typedef struct spec_case {
    nb_grammar_kind kind;
    const char *text;
    const char *yes[8], *no[8]; /* whole texts */
} spec_case;

#define J NB_GRAMMAR_JSON_SCHEMA
#define R NB_GRAMMAR_REGEX
#define C NB_GRAMMAR_CHOICE
#define B NB_GRAMMAR_GBNF

// clang-format off
static const spec_case cases[] = {
    { J, "{}", { "1", "{\"a\": [1, {\"b\":null}]}", "\"\\u00e9\\ud83d\\ude00\"", "-0.5e+10", "[]", "{ }" },
      { "01", "\"\\ud83d\"", "{\"a\":}", "[1,]", "tru", "\"\t\"", "1.", "\"\\x\"" } },
    { J, "true", { "1" }, { "" } },
    { J, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},"
         "\"required\":[\"b\"]}",
      { "{\"b\":\"\"}", "{\"a\":1, \"b\":\"x\", \"c\": [1]}", "{\n  \"b\" : \"x\"\n}", "{\"b\":\"\",\"ab\":1}" },
      { "{}", "{\"b\":1}", "{\"b\":\"x\",\"a\":1}", "{\"b\":\"\",\"b\":\"\"}", "{\"a\":1.5,\"b\":\"\"}", "{\"b\":\"\",}",
        "{  \"b\":\"\"}", "{\"b\":\"\",\"\\u0061\":\"\"}" } },
    { J, "{\"properties\":{\"a\":false,\"b\":{}},\"additionalProperties\":{\"type\":\"null\"},\"maxProperties\":2,"
         "\"minProperties\":1,\"type\":\"object\"}",
      { "{\"b\":1}", "{\"b\":1,\"x\":null}", "{\"x\":null,\"y\":null}", "{\"aa\":null}" },
      { "{}", "{\"a\":null}", "{\"b\":1,\"x\":null,\"y\":null}", "{\"x\":1}" } },
    { J, "{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"number\"},\"s$\":{\"type\":\"string\"}},"
         "\"additionalProperties\":false}",
      { "{\"n\":1}", "{\"s\":\"\"}", "{\"n1\":1.5, \"as\":\"x\", \"n2\":2}", "{}" },
      { "{\"ns\":1}", "{\"ns\":\"\"}", "{\"x\":1}", "{\"n\":\"\"}" } },
    { J, "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":3},\"additionalProperties\":"
         "{\"type\":\"integer\"},\"properties\":{\"abc\":{\"type\":\"null\"},\"toolong\":{}}}",
      { "{\"ab\":1}", "{\"abc\":null}", "{}" }, { "{\"abcd\":1}", "{\"A\":1}", "{\"abc\":1}", "{\"toolong\":1}", "{\"\":1}" } },
    { J, "{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"x\",\"y\"]},\"minProperties\":2}",
      { "{\"x\":1,\"y\":2}" }, { "{\"x\":1}", "{\"z\":1,\"x\":1}" } },
    { J, "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{\"type\":\"null\"},"
         "\"minItems\":1,\"maxItems\":4}",
      { "[1]", "[1,\"\"]", "[1, \"\", null]", "[1,\"\",null,null]" },
      { "[]", "[\"\"]", "[1,1]", "[1,\"\",null,null,null]", "[1,\"\",1]" } },
    { J, "{\"items\":false,\"type\":\"array\"}", { "[]" }, { "[1]" } },
    { J, "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
      { "[1,2]", "[1, 2, 3]" }, { "[]", "[1]", "[1,2,3,4]" } },
    { J, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", { "\"ab\"", "\"a\\n\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"" },
      { "\"a\"", "\"abcd\"", "\"\\u0061\"" } },
    { J, "{\"type\":\"string\",\"pattern\":\"b+c\"}", { "\"abbc\"", "\"bc\\n\"", "\"xbcbc\"" }, { "\"b\"", "\"\"", "\"cb\"" } },
    { J, "{\"type\":\"string\",\"pattern\":\"^a.c$\"}", { "\"abc\"", "\"a\\\"c\"", "\"a\\\\c\"" }, { "\"ac\"", "\"a\\nc\"", "\"xabc\"" } },
    { J, "{\"type\":\"string\",\"pattern\":\"^(ab)*$\",\"minLength\":3,\"maxLength\":4}", { "\"abab\"" },
      { "\"ab\"", "\"ababab\"", "\"\"" } },
    { J, "{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}],\"type\":\"string\"}", { "\"ab\"", "\"xbya\"" }, { "\"a\"", "\"b\"" } },
    { J, "{\"type\":\"string\",\"format\":\"date\"}", { "\"2024-02-29\"" }, { "\"2023-02-29\"", "\"2024-13-01\"", "\"x\"" } },
    { J, "{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}", { "-12", "0", "104", "9" }, { "-13", "105", "1e1", "00", "1000" } },
    { J, "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1.25}", { "0.1", "1.25", "1", "0.001", "1.250" },
      { "0", "0.0", "-1", "1.26", "1e0", "2" } },
    { J, "{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":0}", { "0", "7", "49", "700" }, { "1", "8", "-7" } },
    { J, "{\"type\":\"number\",\"multipleOf\":0.25}", { "0.5", "1.25", "3", "-0.75", "2.00" }, { "0.1", "0.125", "1.3" } },
    { J, "{\"enum\":[1,\"a\",null,{\"x\":[1]},2.0]}", { "1", "\"a\"", "null", "{\"x\":[1]}", "2", "2.0" },
      { "3", "\"b\"", "{}", "{\"x\":[2]}" } },
    { J, "{\"enum\":[1,\"a\",5],\"type\":\"integer\",\"maximum\":4}", { "1" }, { "5", "\"a\"" } },
    { J, "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}],\"minimum\":3}", { "3", "\"x\"" }, { "2", "\"xy\"" } },
    { J, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", { "1", "\"\"" }, { "null" } },
    { J, "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":\"integer\"}},\"required\":[\"k\"],\"type\":\"object\"},"
         "{\"properties\":{\"k\":{\"const\":\"b\"},\"v\":{\"type\":\"string\"}},\"required\":[\"k\"],\"type\":\"object\"}]}",
      { "{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\",\"v\":\"\"}" }, { "{\"k\":\"a\",\"v\":\"\"}", "{\"k\":\"c\"}" } },
    { J, "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"array\",\"items\":"
         "{\"$ref\":\"#/$defs/t\"}}},\"required\":[\"c\"],\"additionalProperties\":false}}}",
      { "{\"c\":[]}", "{\"c\":[{\"c\":[]},{\"c\":[]}]}" }, { "{}", "{\"c\":[1]}" } },
    { J, "{\"$defs\":{\"s\":{\"$anchor\":\"x\",\"type\":\"null\"}},\"$ref\":\"#x\"}", { "null" }, { "1" } },
    { J, "{\"not\":false,\"uniqueItems\":false,\"title\":\"t\",\"x-own\":1}", { "1" }, { "x" } },
    { R, "[a-c]{2,3}(x|yz)?", { "ab", "abcx", "aayz" }, { "a", "abcd", "abxyz" } },
    { R, "^\\d{3}-\\w+$", { "123-a_9" }, { "12-a", "123-" } },
    { R, "[^\\x00-\\x7f]", { "\xc3\xa9", "\xf0\x9f\x98\x80" }, { "a", "\xc3" } },
    { R, "(?:a|b)*?c{0}d{2}", { "dd", "abdd" }, { "cdd", "d" } },
    { R, "\\u00e9\\.\\/", { "\xc3\xa9./" }, { "e./" } },
    { C, "[\"yes\", \"no\", \"not\"]", { "yes", "no", "not" }, { "n", "yesno", "" } },
    { B, "root ::= \"a\" b+ # comment\nb ::= [0-9]{2} |\n  \"x\" \"y\"?", { "a12", "ax", "axyxy34" }, { "a1", "a" } },
    { B, "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+\n  | \"(\" expr \")\"", { "1+2", "(1+(2))" }, { "1+", "(1" } },
    { B, "root ::= [^\\n\"]{3} \"\\u00e9\" .", { "abc\xc3\xa9z" }, { "ab\"\xc3\xa9z" } },
};
// clang-format on

static void test_texts(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        const spec_case *c = &cases[i];
        nb_error e;
        nb_grammar *g = compile_as(v, c->kind, nb_str_c(c->text), false, &e);
        if (!g) fail_msg("%s: %s", c->text, e.msg);
        for (size_t k = 0; k < 8 && c->yes[k]; k++)
            if (!accepts_text(g, nb_str_c(c->yes[k])))
                fail_msg("%s refuses %s", c->text, c->yes[k]);
        for (size_t k = 0; k < 8 && c->no[k]; k++)
            if (accepts_text(g, nb_str_c(c->no[k]))) fail_msg("%s accepts %s", c->text, c->no[k]);
        nb_grammar_unref(g);
    }
    nb_vocab_destroy(v);
}

// clang-format off
static const struct {
    nb_grammar_kind kind;
    const char *text, *line; /* a part of the error line */
    nb_status st;
} refused[] = {
    { J, "{\"properties\":{\"a\":{\"not\":{}}}}", "#/properties/a/not: ", NB_ERR_UNSUPPORTED },
    { J, "{\"properties\":{\"a/b~\":{\"if\":{},\"then\":{}}}}", "#/properties/a~1b~0/if: ", NB_ERR_UNSUPPORTED },
    { J, "{\"allOf\":[{},{\"uniqueItems\":true}]}", "#/allOf/1/uniqueItems: ", NB_ERR_UNSUPPORTED },
    { J, "{\"dependentRequired\":{\"a\":[\"b\"]}}", "#/dependentRequired: ", NB_ERR_UNSUPPORTED },
    { J, "{\"contains\":{}}", "#/contains: ", NB_ERR_UNSUPPORTED },
    { J, "{\"unevaluatedProperties\":false}", "#/unevaluatedProperties: ", NB_ERR_UNSUPPORTED },
    { J, "{\"$dynamicRef\":\"#a\"}", "#/$dynamicRef: ", NB_ERR_UNSUPPORTED },
    { J, "{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", "#/oneOf: schemas 0 and 1", NB_ERR_UNSUPPORTED },
    { J, "{\"items\":{\"pattern\":\"(?=a)\"}}", "#/items/pattern: ", NB_ERR_UNSUPPORTED },
    { J, "{\"format\":\"iri\"}", "#/format: \"iri\"", NB_ERR_UNSUPPORTED },
    { J, "{\"multipleOf\":0.123456}", "#/multipleOf: ", NB_ERR_UNSUPPORTED },
    { J, "{\"multipleOf\":0}", "#/multipleOf: ", NB_ERR_FORMAT },
    { J, "{\"minItems\":1.5,\"type\":\"array\"}", "#/minItems: ", NB_ERR_FORMAT },
    { J, "{\"required\":[1]}", "#/required: ", NB_ERR_FORMAT },
    { J, "{\"anyOf\":[]}", "#/anyOf: ", NB_ERR_FORMAT },
    { J, "{\"anyOf\":[1]}", "#/anyOf/0: ", NB_ERR_FORMAT },
    { J, "{\"$ref\":\"other.json\"}", "#/$ref: ", NB_ERR_UNSUPPORTED },
    { J, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":1}", "nothing satisfies", NB_ERR_RANGE },
    { J, "{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "nothing satisfies", NB_ERR_RANGE },
    { J, "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}", "nothing satisfies", NB_ERR_RANGE },
    { J, "[1]", "expected an object", NB_ERR_FORMAT },
    { J, "{", "JSON", NB_ERR_FORMAT },
    { R, "a(?!b)", "look-around", NB_ERR_UNSUPPORTED },
    { R, "(a)\\1", "back reference", NB_ERR_UNSUPPORTED },
    { R, "\\bword", "word boundary", NB_ERR_UNSUPPORTED },
    { R, "\\p{L}", "Unicode property", NB_ERR_UNSUPPORTED },
    { R, "a^b", "anchor", NB_ERR_UNSUPPORTED },
    { R, "a{3,2}", "count", NB_ERR_FORMAT },
    { R, "*a", "quantifier", NB_ERR_FORMAT },
    { R, "[b-a]", "range", NB_ERR_FORMAT },
    { R, "[]", "nothing satisfies", NB_ERR_RANGE },
    { C, "{}", "array", NB_ERR_LIMIT },
    { C, "[\"a\", 1]", "choice 1", NB_ERR_FORMAT },
    { B, "root ::= a\na ::= root \"x\" | \"y\"", "left recursion", NB_ERR_UNSUPPORTED },
    { B, "root ::= \"a", "closing", NB_ERR_FORMAT },
    { B, "root = \"a\"", "::=", NB_ERR_FORMAT },
    { B, "root ::= \"a\"\nroot ::= \"b\"", "twice", NB_ERR_FORMAT },
    { B, "start: \"a\"", "Lark", NB_ERR_UNSUPPORTED },
    { B, "root ::= (\"a\"?){9000}", "too many alternatives", NB_ERR_LIMIT },
    { B, "root ::= <nobody>", "special token", NB_ERR_NOT_FOUND },
};
// clang-format on

static void test_refusals(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    for (size_t i = 0; i < NB_COUNT(refused); i++) {
        nb_error e;
        nb_grammar *g = compile_as(v, refused[i].kind, nb_str_c(refused[i].text), false, &e);
        if (g) fail_msg("%s is accepted", refused[i].text);
        if (!strstr(e.msg, refused[i].line) || e.status != refused[i].st)
            fail_msg("%s: %d %s", refused[i].text, (int)e.status, e.msg);
    }
    nb_vocab_destroy(v);
}

/* What strict refuses, relaxed leaves out; what it can enforce it does. */
static void test_relaxed(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    nb_error e;
    nb_grammar *g =
        compile_as(v, J,
                   nb_str_c("{\"type\":\"string\",\"not\":{\"const\":\"a\"},\"pattern\":"
                            "\"\\\\bx\",\"maxLength\":2}"),
                   true, &e);
    if (!g) fail_msg("%s", e.msg);
    assert_true(accepts_text(g, nb_str_c("\"a\"")));
    assert_false(accepts_text(g, nb_str_c("\"abc\"")));
    assert_false(accepts_text(g, nb_str_c("1")));
    nb_grammar_unref(g);
    g = compile_as(v, J, nb_str_c("{\"type\":5}"), true, &e);
    assert_null(g);
    nb_vocab_destroy(v);
}

static uint32_t word_id(const char *s)
{
    for (uint32_t i = 0; i < N_WORD; i++)
        if (strcmp(words[i], s) == 0) return N_BYTE + i;
    fail_msg("no word %s", s);
    return 0;
}

/* Markers are reached by their ids only; a grammar may begin behind one. */
static void test_markers(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    nb_error e = { 0 };
    const uint64_t *mask;
    const uint32_t end = word_id("</think>"), call = word_id("<|call|>");
    nb_grammar *g = compile_as(v, B, nb_str_c("root ::= \"a\" <|call|> \"b\""), false, &e);
    if (!g) fail_msg("%s", e.msg);
    nb_match *m = start_match(g);
    assert_int_equal(nb_match_accept_bytes(m, nb_str_c("a")), NB_OK);
    assert_int_equal(nb_match_accept_bytes(m, nb_str_c("<")), NB_ERR_ARG);
    assert_int_equal(nb_match_mask(m, &mask), NB_OK);
    assert_true(mask_has(mask, call) && !mask_has(mask, end) && !mask_has(mask, '<'));
    assert_int_equal(nb_match_accept(m, call), NB_OK);
    assert_int_equal(nb_match_accept(m, 'b'), NB_OK);
    assert_true(nb_match_accepting(m));
    nb_match_destroy(m);
    nb_grammar_unref(g);

    const char *const after[] = { "</think>", "--" }; /* a marker; plain text */
    for (size_t i = 0; i < 2; i++) {
        const nb_grammar_spec spec = {
            .kind = R, .text = "10+", .text_bytes = 3, .after = after[i]
        };
        assert_int_equal(nb_grammar_build(v, &spec, &g, &e), NB_OK);
        m = start_match(g);
        assert_int_equal(nb_match_mask(m, &mask), NB_OK);
        assert_true(mask_has(mask, 'x') && mask_has(mask, end) && mask_has(mask, call));
        assert_false(nb_match_accepting(m));
        assert_int_equal(nb_match_accept_bytes(m, nb_str_c("any -")), NB_OK);
        assert_int_equal(nb_match_accept(m, call), NB_OK);
        if (i == 0)
            assert_int_equal(nb_match_accept(m, end), NB_OK);
        else
            assert_int_equal(nb_match_accept_bytes(m, nb_str_c("---")), NB_ERR_ARG);
        if (i == 1) /* a token that straddles the trigger is judged by what follows it */
            assert_int_equal(nb_match_accept_bytes(m, nb_str_c("x--1")), NB_OK);
        assert_int_equal(nb_match_mask(m, &mask), NB_OK);
        assert_true(mask_has(mask, i ? '0' : '1') && !mask_has(mask, 'x') && !mask_has(mask, call));
        nb_match_destroy(m);
        nb_grammar_unref(g);
    }
    nb_vocab_destroy(v);
}

/* A thought comes first where the prompt opened one, may come where it says nothing, and has been where it
 * closed one. */
static void test_thoughts(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    nb_error e = { 0 };
    nb_grammar *g = NULL;
    const nb_grammar_spec spec = { .kind = C,
                                   .text = "[\"10\"]",
                                   .text_bytes = 6,
                                   .thought_open = "<think>",
                                   .thought_close = "</think>" };
    assert_int_equal(nb_grammar_build(v, &spec, &g, &e), NB_OK);
    const uint32_t open = word_id("<think>"), close = word_id("</think>");
    const uint32_t prompts[][3] = { { open, 'a', close }, { close, open, 'a' }, { 'a', 'b', 'c' } };
    static const nb_match_start starts[] = { NB_MATCH_PLAIN, NB_MATCH_IN_THOUGHT,
                                             NB_MATCH_MAY_THINK };
    for (size_t i = 0; i < 3; i++) {
        const uint64_t *mask;
        nb_match *m = NULL;
        assert_int_equal(nb_grammar_start(g, prompts[i], 3), starts[i]);
        assert_int_equal(nb_match_create(g, starts[i], &m, &e), NB_OK);
        assert_int_equal(nb_match_mask(m, &mask), NB_OK);
        assert_int_equal(mask_has(mask, '1'), 1); /* in all of them */
        assert_int_equal(mask_has(mask, 'x'), i == 1);
        assert_int_equal(mask_has(mask, open), i > 0);
        if (i == 2) assert_int_equal(nb_match_accept(m, open), NB_OK);
        if (i > 0) assert_int_equal(nb_match_accept_bytes(m, nb_str_c("any text")), NB_OK);
        if (i > 0) assert_int_equal(nb_match_accept(m, close), NB_OK);
        assert_int_equal(nb_match_accept_bytes(m, nb_str_c("10")), NB_OK);
        assert_true(nb_match_complete(m));
        nb_match_destroy(m);
    }
    nb_grammar_unref(g);
    nb_vocab_destroy(v);
}

/* Feeds a text in which markers stand for their tokens; false: it is not allowed. */
static bool feed(nb_match *m, const nb_vocab *v, const char *text)
{
    static const char dsml[] = "\xef\xbd\x9c"
                               "DSML"
                               "\xef\xbd\x9c";
    for (size_t i = 0, n = strlen(text); i < n;) {
        const char *end = strchr(text + i, '>');
        size_t k = text[i] == '<' && end ? (size_t)(end + 1 - text) - i : 1;
        if (strncmp(text + i, dsml, sizeof dsml - 1) == 0) k = sizeof dsml - 1;
        const uint32_t id = nb_vocab_marker(v, (nb_str){ text + i, k });
        const nb_status st = id != NB_GRAMMAR_NO_TOKEN
                                 ? nb_match_accept(m, id)
                                 : nb_match_accept_bytes(m, (nb_str){ text + i, 1 });
        if (st != NB_OK) return false;
        i += id != NB_GRAMMAR_NO_TOKEN ? k : 1;
    }
    return true;
}

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DS(w) "<" BAR "tool" LOW w BAR ">"
#define TOOLS                                                                                                  \
    "\"tools\":[{\"name\":\"get\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{" \
    "\"type\":\"string\",\"maxLength\":4},\"n\":{\"type\":\"integer\"}},\"required\":[\"q\"],"                 \
    "\"additionalProperties\":false}},{\"name\":\"no\"}]}"

/* Calls in each family's format: required, and free text with strict calls. */
static void test_tools(void **state)
{
    (void)state;
    static const struct {
        const char *format, *calls, *bad[3];
    } families[] = {
        { "deepseek_v3",
          DS("calls" LOW "begin")
              DS("call" LOW "begin") "function" DS("sep") "get\n```json\n{\"q\":\"ab\"}\n```" DS(
                  "call" LOW
                  "end") "\n" DS("call" LOW
                                 "begin") "function" DS("sep") "no\n```json\n{}\n```" DS("call" LOW
                                                                                         "end")
                  DS("calls" LOW "end"),
          { DS("calls" LOW "begin") DS("call" LOW "begin") "function" DS("sep") "set",
            DS("calls" LOW "begin") DS("calls" LOW "end"),
            DS("calls" LOW "begin")
                DS("call" LOW "begin") "function" DS("sep") "get\n```json\n{\"n" } },
        { "deepseek_v31",
          DS("calls" LOW "begin") DS("call" LOW "begin") "get" DS(
              "sep") "{\"q\": \"\", \"n\": 5}" DS("call" LOW "end") DS("calls" LOW "end"),
          {
              DS("calls" LOW "begin") DS("call" LOW "begin") "get" DS("sep") "[",
          } },
        { "deepseek_v32",
          "<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR "invoke name=\"get\">\n<" BAR
          "DSML" BAR "parameter name=\"q\" string=\"true\">a\nb</" BAR "DSML" BAR
          "parameter>\n<" BAR "DSML" BAR "parameter name=\"n\" string=\"false\">5</" BAR "DSML" BAR
          "parameter>\n</" BAR "DSML" BAR "invoke>\n</" BAR "DSML" BAR "function_calls>",
          { "<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR "invoke name=\"get\">\n<" BAR
            "DSML" BAR "parameter name=\"n\"" } },
        { "kimi_k2",
          "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{\"q\":\"x\"}"
          "<|tool_call_end|><|tool_call_begin|>functions.no:12<|tool_call_argument_begin|>{}<|tool_call_end|>"
          "<|tool_calls_section_end|>",
          { "<|tool_calls_section_begin|><|tool_call_begin|>functions.get<" } },
        { "glm47",
          "<tool_call>get<arg_key>q</arg_key><arg_value> a < b </arg_value><arg_key>n</arg_key><arg_value>-3</arg_value>"
          "</tool_call><tool_call>no</tool_call>",
          { "<tool_call>get</tool_call>", "<tool_call>get<arg_key>n<" } },
        { "hermes",
          "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"q\":\"abcd\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"no\", "
          "\"arguments\": {\"any\":[1]}}\n</tool_call>",
          { "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"q\":\"abcde" } },
        { "youtu",
          "<tool_call>{\"name\": \"no\", \"arguments\": {}}</tool_call>",
          { "<tool_call>{\"name\": \"x" } },
        { "llama3_json",
          "{\"name\": \"get\", \"parameters\": {\"q\":\"\"}}",
          { "{\"name\": \"get\", \"parameters\": []" } },
    };
    nb_vocab *v = test_vocab();
    for (size_t i = 0; i < NB_COUNT(families); i++)
        for (size_t mode = 0; mode < 3; mode++) { /* required; auto; auto, or content of a schema */
            char doc[2048];
            nb_error e;
            if (mode == 1 && strcmp(families[i].format, "llama3_json") == 0) continue;
            (void)snprintf(doc, sizeof doc, "{\"format\":\"%s\",\"calls\":\"%s\",%s" TOOLS,
                           families[i].format, mode ? "auto" : "required",
                           mode == 2 ? "\"content\":{\"type\":\"null\"}," : "");
            nb_grammar *g = compile_as(v, NB_GRAMMAR_TOOLS, nb_str_c(doc), false, &e);
            if (!g) fail_msg("%s: %s", families[i].format, e.msg);
            nb_match *m = start_match(g);
            assert_int_equal(nb_match_accepting(m), mode == 1);
            if (mode == 1) assert_true(feed(m, v, "free text <tool \n\n"));
            if (!feed(m, v, families[i].calls))
                fail_msg("%s refuses %s", families[i].format, families[i].calls);
            assert_true(nb_match_accepting(m));
            nb_match_destroy(m);
            for (size_t k = 0; k < 3 && families[i].bad[k]; k++) {
                m = start_match(g);
                if (feed(m, v, families[i].bad[k]))
                    fail_msg("%s accepts %s", families[i].format, families[i].bad[k]);
                nb_match_destroy(m);
            }
            m = start_match(g);
            assert_int_equal(feed(m, v, "null"), mode > 0);
            assert_int_equal(nb_match_accepting(m), mode > 0);
            nb_match_destroy(m);
            nb_grammar_unref(g);
        }
    nb_vocab_destroy(v);
}

/* A forced call of a tool whose schema cannot be compiled has any arguments, unless it is strict. */
static void test_tools_relaxed(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    for (size_t i = 0; i < 2; i++) {
        char doc[400];
        nb_error e;
        (void)snprintf(
            doc, sizeof doc,
            "{\"format\":\"youtu\",\"calls\":\"required\",\"tools\":[{\"name\":\"f\",\"strict\":%s,"
            "\"parameters\":{\"$ref\":\"other.json\"}}]}",
            i ? "true" : "false");
        nb_grammar *g = compile_as(v, NB_GRAMMAR_TOOLS, nb_str_c(doc), false, &e);
        if (i) assert_non_null(strstr(e.msg, "tool \"f\": #/$ref"));
        if (!i && !g) fail_msg("%s", e.msg);
        if (g)
            assert_true(accepts_text(
                g, nb_str_c("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":1}}</tool_call>")));
        assert_int_equal(g == NULL, i);
        nb_grammar_unref(g);
    }
    nb_vocab_destroy(v);
}

/* Nesting ends at its limit: no bracket is allowed there, and the text can still be completed. */
static void test_depth(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    nb_error e;
    nb_grammar *g = compile_as(v, J, nb_str_c("{}"), false, &e);
    assert_non_null(g);
    nb_match *m = start_match(g);
    size_t depth = 0;
    while (depth < 2 * NB_GRAMMAR_MAX_DEPTH && nb_match_accept_bytes(m, nb_str_c("[")) == NB_OK)
        depth++;
    assert_true(depth > NB_GRAMMAR_MAX_DEPTH / 2 && depth <= NB_GRAMMAR_MAX_DEPTH + 1);
    for (; depth; depth--) assert_int_equal(nb_match_accept_bytes(m, nb_str_c("]")), NB_OK);
    assert_true(nb_match_accepting(m));
    nb_match_destroy(m);
    nb_grammar_unref(g);
    nb_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_relaxed), cmocka_unit_test(test_markers),
        cmocka_unit_test(test_depth),   cmocka_unit_test(test_tools_relaxed),
        cmocka_unit_test(test_tools),   cmocka_unit_test(test_thoughts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
