/* flashmla.cu - times FlashMLA's decode attention and nibble's in one process, in turns; see flashmla.md.
 *
 * FlashMLA is called through the functions that its PyTorch module calls, with parameters made here.
 * A case is one layer of a decode step: scattered pages of 64 tokens, one query per sequence.  Both
 * sides are timed alike (src/timing/bench_kernel_gpu.h): graphs of launches, each on its own pages until
 * 2 GiB are used, so that none finds its data in L2; the median of a round's samples, then of the
 * rounds.  The results of the timed graph are compared with a reference in double.
 *
 * Rows: `flashmla` is the kernel and its combine kernel; `+plan` adds the kernel that plans the split,
 * which a server runs once per step; `sparse` is the kernel for FP8 caches (656 bytes per token), given
 * all tokens as its choice, because there is no dense one. */
#include "flashmla.cuh"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

extern "C" {
#include "timing/bench_kernel_gpu.h"
}

void fail(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    (void)fprintf(stderr, "flashmla: ");
    (void)vfprintf(stderr, format, a);
    (void)fputc('\n', stderr);
    va_end(a);
    exit(1);
}

/* ---- time ---- */

struct times {
    double median_us, best_us;
};

/* Seconds of a graph of n launches, each sample. */
static std::vector<double> time_graph(const peer *p, size_t n, size_t n_sample)
{
    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaEvent_t from, to;
    std::vector<double> s;
    CHECK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal));
    for (size_t i = 0; i < n; i++) launch(p, i % p->n_set);
    CHECK(cudaStreamEndCapture(p->stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    for (size_t i = 0; i < n_sample; i++) {
        float ms;
        CHECK(cudaEventRecord(from, p->stream));
        CHECK(cudaGraphLaunch(run, p->stream));
        CHECK(cudaEventRecord(to, p->stream));
        CHECK(cudaStreamSynchronize(p->stream));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        s.push_back(ms * 1e-3 / (double)n);
    }
    CHECK(cudaEventDestroy(from));
    CHECK(cudaEventDestroy(to));
    CHECK(cudaGraphExecDestroy(run));
    CHECK(cudaGraphDestroy(graph));
    return s;
}

static double median(std::vector<double> s)
{
    std::sort(s.begin(), s.end());
    return s.size() % 2 ? s[s.size() / 2] : (s[s.size() / 2 - 1] + s[s.size() / 2]) / 2;
}

/* Launches of a graph: as many as take sample_s, in whole rounds of the sets. */
static times time_peer(const peer *p, size_t n_sample, double sample_s)
{
    const double once = time_graph(p, 1, 2)[1];
    size_t n = (size_t)std::min(std::max(sample_s / once, 1.0), (double)MAX_LAUNCH);
    n = (n + p->n_set - 1) / p->n_set * p->n_set;
    std::vector<double> s = time_graph(p, n, n_sample + 1);
    s.erase(s.begin()); /* the first one warms up */
    return { median(s) * 1e6, *std::min_element(s.begin(), s.end()) * 1e6 };
}

/* GB/s of a copy of n bytes inside the device's memory, bytes read and written. */
static double copy_rate(size_t n, cudaStream_t st)
{
    dev<char> a, b;
    cudaEvent_t from, to;
    double best = 1e9;
    a.alloc(n);
    b.alloc(n);
    CHECK(cudaMemset(a.p, 1, n));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    for (int i = 0; i < 6; i++) {
        float ms;
        CHECK(cudaEventRecord(from, st));
        for (int k = 0; k < 4; k++)
            CHECK(cudaMemcpyAsync(b.p, a.p, n, cudaMemcpyDeviceToDevice, st));
        CHECK(cudaEventRecord(to, st));
        CHECK(cudaStreamSynchronize(st));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        best = std::min(best, ms * 1e-3 / 4);
    }
    CHECK(cudaEventDestroy(from));
    CHECK(cudaEventDestroy(to));
    return 2 * (double)n / best * 1e-9;
}

/* ---- the table ---- */

/* Measured: 2.4e-3; with one wrong page of 256: 3e-2. */
static const double ERROR_MOST = 1e-2;

struct options {
    std::vector<int> heads = { 16, 64, 128 };
    std::vector<shape> shapes = {
        { 0, 128, 4096 }, { 0, 32, 32768 }, { 0, 4, 131072 }, { 0, 1, 131072 }, { 0, 1, 32768 }
    };
    std::vector<std::string> records = { "bf16", "fp8", "nvfp4", "if4" };
    const char *library = nullptr, *json = nullptr, *commit = "";
    size_t n_round = 3, n_sample = 5;
    double sample_s = 10e-3;
    uint64_t seed = 0;
};

struct row {
    std::string who, variant, record;
    shape s;
    double bytes_token, error; /* error < 0: not compared here */
    std::vector<double> us;    /* a round each */
    double best_us;
};

struct bench {
    options o;
    nb_gbench *ours = nullptr;
    double copy_gbs = 0, gemm_tflops = 0;
    cudaStream_t stream = nullptr;
    int n_sm = 0;
    std::vector<row> rows;
};

static double bytes_of(const row *r)
{
    return r->bytes_token * (double)r->s.batch * (double)r->s.context;
}

static double ops_of(const row *r)
{
    return 2.0 * r->s.batch * r->s.heads * (double)r->s.context * (VALUES + LATENT);
}

static double floor_us(const bench *b, const row *r)
{
    const double read = bytes_of(r) / b->copy_gbs * 1e-3;
    return b->gemm_tflops > 0 ? std::max(read, ops_of(r) / b->gemm_tflops * 1e-6) : read;
}

static void show(const bench *b, const row *r)
{
    char label[96], error[32] = "";
    const double us = median(r->us), floor = floor_us(b, r);
    (void)snprintf(label, sizeof label, "%s h=%d q=1 b=%d s=%d", r->record.c_str(), r->s.heads,
                   r->s.batch, r->s.context);
    if (r->error >= 0) (void)snprintf(error, sizeof error, "  error %.1e", r->error);
    (void)printf("%-10s %-14s %-30s %10.2f %10.2f %9.1f %9.0f %10.2f %5.0f%%%s\n", r->who.c_str(),
                 r->variant.c_str(), label, us, r->best_us, ops_of(r) / us * 1e-6,
                 bytes_of(r) / us * 1e-3, floor, 100 * floor / us, error);
    (void)fflush(stdout);
}

/* One round of nibble's row for a record; false where there is none. */
static bool ours_round(bench *b, row *r)
{
    nb_gbench_case c = {};
    nb_gbench_row out = {};
    nb_error err = {};
    c.op = "attn_pages", c.record = r->record.c_str();
    c.n_head = (size_t)r->s.heads, c.n_query = 1;
    c.batch = (size_t)r->s.batch, c.context = (size_t)r->s.context;
    c.set_bytes = SET_BYTES, c.n_sample = b->o.n_sample, c.sample_s = b->o.sample_s;
    const nb_status st = nb_gbench_run(b->ours, &c, &out, &err);
    if (st == NB_ERR_UNSUPPORTED) return false;
    if (st != NB_OK) fail("%s", err.msg);
    r->variant = out.variant;
    r->bytes_token = out.bytes / ((double)r->s.batch * (double)r->s.context);
    r->us.push_back(out.median_ns * 1e-3);
    r->best_us = std::min(r->best_us, out.best_ns * 1e-3);
    return true;
}

static void peer_round(bench *b, peer *p, bool plan, row *r)
{
    p->plan = plan;
    const times t = time_peer(p, b->o.n_sample, b->o.sample_s);
    r->us.push_back(t.median_us);
    r->best_us = std::min(r->best_us, t.best_us);
    if (r->us.size() == 1) r->error = check_peer(p);
}

static void run_shape(bench *b, shape s)
{
    const bool has_fp8 = s.heads == 64 || s.heads == 128;
    auto dense = make_peer(s, false, b->o.seed, b->n_sm, b->stream);
    auto fp8 = has_fp8 ? make_peer(s, true, b->o.seed, b->n_sm, b->stream) : nullptr;
    std::vector<row> rows = { { "flashmla", "dense", "bf16", s, VALUES * 2, -1, {}, INFINITY },
                              { "flashmla", "dense+plan", "bf16", s, VALUES * 2, -1, {}, INFINITY },
                              { "flashmla", "sparse", "fp8", s, FP8_BYTES, -1, {}, INFINITY } };
    const size_t n_peer = rows.size();
    if (b->ours)
        for (const std::string &record : b->o.records)
            rows.push_back({ "nibble", "", record, s, 0, -1, {}, INFINITY });
    launch_plan(dense.get());
    if (fp8) launch_plan(fp8.get());
    CHECK(cudaStreamSynchronize(b->stream));
    for (size_t k = 0; k < b->o.n_round; k++) {
        peer_round(b, dense.get(), false, &rows[0]);
        peer_round(b, dense.get(), true, &rows[1]);
        if (fp8) peer_round(b, fp8.get(), false, &rows[2]);
        for (size_t i = n_peer; i < rows.size(); i++)
            if (!ours_round(b, &rows[i])) rows[i].us.clear();
    }
    for (const row &r : rows)
        if (!r.us.empty()) {
            show(b, &r);
            b->rows.push_back(r);
        }
}

static const row *ours_of(const bench *b, shape s, const std::string &record)
{
    for (const row &r : b->rows)
        if (r.who == "nibble" && r.record == record && r.s.heads == s.heads &&
            r.s.batch == s.batch && r.s.context == s.context)
            return &r;
    return nullptr;
}

/* Prints how many times as fast nibble is as FlashMLA's dense and combine kernels, without planning. */
static void print_ratios(const bench *b)
{
    (void)printf("\nFlashMLA's time / nibble's (FlashMLA: BF16 without its plan)\n%-24s %10s",
                 "case", "its us");
    for (const std::string &record : b->o.records) (void)printf(" %8s", record.c_str());
    for (const row &its : b->rows) {
        if (its.variant != "dense") continue;
        char label[64];
        const double us = median(its.us);
        (void)snprintf(label, sizeof label, "h=%d b=%d s=%d", its.s.heads, its.s.batch,
                       its.s.context);
        (void)printf("\n%-24s %10.2f", label, us);
        for (const std::string &record : b->o.records) {
            const row *ours = ours_of(b, its.s, record);
            if (ours)
                (void)printf(" %8.2f", us / median(ours->us));
            else
                (void)printf(" %8s", "");
        }
    }
    (void)printf("\n");
}

static bool errors_small(const bench *b)
{
    bool good = true;
    for (const row &r : b->rows)
        if (r.error > ERROR_MOST) {
            (void)printf("FAIL %s %s h=%d b=%d s=%d: error %.1e, at most %g expected\n",
                         r.who.c_str(), r.variant.c_str(), r.s.heads, r.s.batch, r.s.context,
                         r.error, ERROR_MOST);
            good = false;
        }
    return good;
}

static void write_json(const bench *b, const char *device)
{
    FILE *f = fopen(b->o.json, "w");
    if (!f) fail("%s: cannot be written", b->o.json);
    char date[16] = "";
    const time_t now = time(nullptr);
    const struct tm *utc = gmtime(&now);
    if (utc) (void)strftime(date, sizeof date, "%Y-%m-%d", utc);
    (void)fprintf(
        f,
        "{\n \"device\": \"%s\",\n \"date\": \"%s\",\n \"commit\": \"%s\",\n"
        " \"copy_gbs\": %.0f,\n \"gemm_tflops\": %.1f,\n \"rounds\": %zu,\n \"samples\": %zu,\n \"rows\": [",
        device, date, b->o.commit, b->copy_gbs, b->gemm_tflops, b->o.n_round, b->o.n_sample);
    const char *comma = "";
    for (const row &r : b->rows) {
        (void)fprintf(f,
                      "%s\n  {\"who\": \"%s\", \"row\": \"%s\", \"record\": \"%s\", \"heads\": %d, "
                      "\"batch\": %d, \"context\": %d, \"median_us\": %.2f, \"best_us\": %.2f, "
                      "\"floor_us\": %.2f",
                      comma, r.who.c_str(), r.variant.c_str(), r.record.c_str(), r.s.heads,
                      r.s.batch, r.s.context, median(r.us), r.best_us, floor_us(b, &r));
        if (r.error >= 0 && std::isfinite(r.error)) (void)fprintf(f, ", \"error\": %.2e", r.error);
        (void)fprintf(f, "}");
        comma = ",";
    }
    (void)fprintf(f, "\n ]\n}\n");
    if (fclose(f) != 0) fail("%s: cannot be written", b->o.json);
}

/* ---- options ---- */

static const char usage[] =
    "usage: flashmla [--cuda-library FILE] [--peer-only] [--heads 16,64,128]\n"
    "                [--shapes 128x4096,32x32768] [--kv-cache-dtype bf16,fp8,nvfp4,if4]\n"
    "                [--rounds N] [--repeat N] [--sample-ms X] [--seed N]\n"
    "                [--json FILE [--commit NAME]]\n"
    "--cuda-library: nibble's kernels (default: libnibble-cuda.so beside this program)\n"
    "--shapes: sequences x cached tokens, a multiple of 64\n";

static std::vector<std::string> split(const char *text)
{
    std::vector<std::string> out(1);
    for (; *text; text++)
        if (*text == ',')
            out.emplace_back();
        else
            out.back() += *text;
    return out;
}

static long number(const char *option, const char *text, char **end, long lo, long hi)
{
    const long n = strtol(text, end, 10);
    if (*end == text || n < lo || n > hi)
        fail("%s %s: expected numbers in %ld..%ld", option, text, lo, hi);
    return n;
}

static long only(const char *option, const char *text, long lo, long hi)
{
    char *end;
    const long n = number(option, text, &end, lo, hi);
    if (*end) fail("%s %s: expected a number", option, text);
    return n;
}

static void read_shapes(const char *text, std::vector<shape> *out)
{
    out->clear();
    for (const std::string &w : split(text)) {
        char *end;
        const int b = (int)number("--shapes", w.c_str(), &end, 1, 1024);
        if (*end != 'x') fail("--shapes %s: expected sequences x tokens, such as 4x131072", text);
        const int s = (int)only("--shapes", end + 1, PAGE, 1 << 20);
        if (s % PAGE) fail("--shapes %s: expected a multiple of %d tokens", text, (int)PAGE);
        out->push_back({ 0, b, s });
    }
}

/* True: without nibble. */
static bool read_options(int argc, char **argv, options *o)
{
    bool alone = false;
    for (int i = 1; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "--help" || name == "-h") {
            (void)fputs(usage, stdout);
            exit(0);
        }
        if (name == "--peer-only") {
            alone = true;
            continue;
        }
        if (++i == argc) fail("%s: no such option, or no value\n%s", name.c_str(), usage);
        const char *v = argv[i];
        if (name == "--cuda-library")
            o->library = v;
        else if (name == "--json")
            o->json = v;
        else if (name == "--commit")
            o->commit = v;
        else if (name == "--heads") {
            o->heads.clear();
            for (const std::string &w : split(v))
                o->heads.push_back((int)only("--heads", w.c_str(), 1, 128));
        } else if (name == "--shapes")
            read_shapes(v, &o->shapes);
        else if (name == "--kv-cache-dtype")
            o->records = split(v);
        else if (name == "--rounds")
            o->n_round = (size_t)only("--rounds", v, 1, 100);
        else if (name == "--repeat")
            o->n_sample = (size_t)only("--repeat", v, 1, 1000);
        else if (name == "--sample-ms")
            o->sample_s = 1e-3 * (double)only("--sample-ms", v, 0, 10000);
        else if (name == "--seed")
            o->seed = (uint64_t)only("--seed", v, 0, LONG_MAX);
        else
            fail("%s: no such option\n%s", name.c_str(), usage);
    }
    return alone;
}

int main(int argc, char **argv)
{
    bench b;
    nb_error err = {};
    cudaDeviceProp prop;
    const bool alone = read_options(argc, argv, &b.o);
    CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) fail("%s: FlashMLA's kernels here are for sm_90a", prop.name);
    b.n_sm = prop.multiProcessorCount;
    CHECK(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    const double small = copy_rate((size_t)1 << 30, b.stream);
    const double large = copy_rate((size_t)4 << 30, b.stream);
    b.copy_gbs = std::max(small, large);
    if (!alone) {
        if (nb_gbench_create("cuda", b.o.library, b.o.seed, &b.ours, &err) != NB_OK)
            fail("%s", err.msg);
        const nb_gbench_info *info = nb_gbench_get_info(b.ours);
        b.gemm_tflops = info->gemm_gflops * 1e-3;
        b.copy_gbs = std::max(b.copy_gbs, info->copy_gbs);
    }
    (void)printf("device: %s, %d multiprocessors\n", prop.name, b.n_sm);
    (void)printf("roofline: copy %.0f GB/s (1 GiB), %.0f (4 GiB), %.0f (nibble's); "
                 "BF16 product %.1f TFLOP/s\n",
                 small, large, alone ? 0 : nb_gbench_get_info(b.ours)->copy_gbs, b.gemm_tflops);
    (void)printf("%-10s %-14s %-30s %10s %10s %9s %9s %10s %6s\n", "who", "row", "case",
                 "median us", "best us", "TFLOP/s", "GB/s", "floor us", "of it");
    for (int h : b.o.heads)
        for (shape s : b.o.shapes) run_shape(&b, { h, s.batch, s.context });
    if (!alone) print_ratios(&b);
    if (b.o.json) write_json(&b, prop.name);
    nb_gbench_destroy(b.ours);
    CHECK(cudaStreamDestroy(b.stream));
    return errors_small(&b) ? 0 : 1;
}
