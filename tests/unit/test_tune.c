/* How many requests are in flight: the controller of >>tune on simulated servers, in virtual time.
 * What a server does is a model of its own; nothing here looks at a clock. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

/* ---- a simulated server ---- */

/* A request first waits for its latency, then its bytes share the bandwidth with all others'. */
enum { CLIENTS = 8, FLIGHT = 512 };
struct world {
  double latency;   /* seconds */
  double bandwidth; /* bytes a second, of all; 0: no limit */
  double each;      /* bytes a second of one connection; 0: no limit */
  double noise;     /* of latencies and sizes, 0 to 1: the share that is exponential */
  double bytes;     /* of an object */
  double refuse;    /* requests a second above which 503 is the answer; 0: none */
  double outage;    /* until then 503 is the answer to every request */
  double sporadic;  /* 503 is the answer to one request in so many seconds; 0: none */
  bool fifo;        /* bytes leave in the order of the requests, one object after the other */
};
struct request {
  double began, ready, left, size; /* ready: when the first byte leaves */
  uint64_t number;
};
struct client {
  struct insitu__tune tune;
  struct request request[FLIGHT];
  uint64_t n, answered, refused;
  double demand;            /* bytes a second that its consumer takes; 0: all */
  double got, credit, from; /* from: when it begins */
  double back;              /* not before then, after a 503 */
  uint64_t depth;           /* requests that it has room for; 0: any number */
};
struct sim {
  struct world w;
  struct client client[CLIENTS];
  int n;
  double now, tokens, spared; /* spared: when 503 was last the answer to a single request */
  uint64_t number;
};

static double uniform(void) {
  return ((double)support_below(1u << 30) + 0.5) / (1u << 30);
}
static double noisy(const struct world *w, double mean) {
  return mean * (1 - w->noise + w->noise * -log(uniform()));
}
static int64_t ns(double s) {
  return (int64_t)(s * 1e9) + 1;
}
static void send_all(struct sim *s, struct client *c) {
  while ((double)c->n < c->tune.limit && c->n < FLIGHT && s->now >= c->from && s->now >= c->back) {
    c->tune.awaited = c->demand <= 0;
    if (c->demand > 0 && c->credit < 0) return;
    if (c->depth && c->n >= c->depth) return;
    insitu__tune_count(&c->tune, ns(s->now), c->n);
    struct request *r = &c->request[c->n++];
    *r = (struct request){
        .began = s->now, .ready = s->now + noisy(&s->w, s->w.latency), .number = s->number++};
    r->left = r->size = noisy(&s->w, s->w.bytes);
    c->credit -= r->size;
  }
}
static void finish(struct sim *s, struct client *c, uint64_t i) {
  struct request r = c->request[i];
  bool single = s->w.sporadic > 0 && s->now - s->spared >= s->w.sporadic;
  bool refused = (s->w.refuse > 0 && s->tokens < 1) || s->now < s->w.outage || single;
  if (single) s->spared = s->now;
  if (!refused) s->tokens -= 1;
  insitu__tune_done(&c->tune, ns(s->now), c->n, ns(r.began), refused ? 0 : (uint64_t)r.size);
  c->request[i] = c->request[--c->n];
  if (refused) {
    c->refused++;
    if (s->now >= c->back) insitu__tune_throttled(&c->tune), c->back = s->now + 1;
  } else {
    insitu__tune_served(&c->tune);
    c->got += r.size;
    c->answered++;
  }
}
/* Bytes a second of a request whose first byte has left. */
static double rate_of(
    const struct sim *s, const struct request *r, uint64_t sending, uint64_t first) {
  double rate = s->w.each > 0 ? s->w.each : 1e12;
  if (s->w.bandwidth > 0 && s->w.fifo) return r->number == first ? s->w.bandwidth : 0;
  if (s->w.bandwidth > 0 && s->w.bandwidth / (double)sending < rate)
    rate = s->w.bandwidth / (double)sending;
  return rate;
}
static void run(struct sim *s, double until) {
  while (s->now < until) {
    for (int k = 0; k < s->n; k++) send_all(s, &s->client[k]);
    uint64_t sending = 0, first = UINT64_MAX;
    double next = s->now + 0.01; /* consumers and clients that begin are looked at so often */
    if (next > until) next = until;
    for (int k = 0; k < s->n; k++)
      for (uint64_t i = 0; i < s->client[k].n; i++) {
        const struct request *r = &s->client[k].request[i];
        bool sends = r->ready <= s->now;
        sending += sends;
        if (sends && r->number < first) first = r->number;
        if (!sends && r->ready < next) next = r->ready;
      }
    for (int k = 0; k < s->n; k++)
      for (uint64_t i = 0; i < s->client[k].n; i++) {
        const struct request *r = &s->client[k].request[i];
        if (r->ready > s->now) continue;
        double rate = rate_of(s, r, sending, first);
        if (rate > 0 && s->now + r->left / rate < next) next = s->now + r->left / rate;
      }
    double took = next - s->now;
    s->now = next;
    if (s->w.refuse > 0) {
      s->tokens += took * s->w.refuse;
      if (s->tokens > s->w.refuse / 4) s->tokens = s->w.refuse / 4;
    }
    for (int k = 0; k < s->n; k++) {
      struct client *c = &s->client[k];
      c->credit += c->demand * took;
      if (c->credit > 16 * s->w.bytes) c->credit = 16 * s->w.bytes;
      for (uint64_t i = c->n; i-- > 0;) {
        struct request *r = &c->request[i];
        if (r->ready > s->now - took) continue;
        r->left -= rate_of(s, r, sending, first) * took;
        if (r->left <= 1) finish(s, c, i);
      }
    }
  }
}
static struct sim *sim(struct world w, int clients, uint64_t most, bool on) {
  struct sim *s = calloc(1, sizeof *s);
  assert_non_null(s);
  s->w = w;
  s->n = clients;
  for (int k = 0; k < clients; k++) insitu__tune_init(&s->client[k].tune, most, on);
  return s;
}
/* Bytes a second of a client over its next answers. */
static double speed(struct sim *s, int client, uint64_t answers) {
  struct client *c = &s->client[client];
  double before = c->got, from = s->now;
  uint64_t end = c->answered + answers;
  while (c->answered < end) run(s, s->now + 0.05);
  return (c->got - before) / (s->now - from);
}
/* The best of all fixed limits; *fewest: the lowest that brings 0.95 of it. */
static double best_fixed(struct world w, uint64_t most, uint64_t answers, uint64_t *fewest) {
  double best = 0, got[64];
  uint64_t limit[64];
  int n = 0;
  for (uint64_t l = most;; l = l * 3 / 4) {
    struct sim *s = sim(w, 1, l, false);
    speed(s, 0, 2 * l + 100);
    limit[n] = l;
    got[n] = speed(s, 0, answers);
    if (got[n] > best) best = got[n];
    free(s);
    n++;
    if (l == 1) break;
  }
  for (int i = 0; i < n; i++)
    if (got[i] >= 0.95 * best) *fewest = limit[i];
  return best;
}

/* ---- tests ---- */

enum { MOST = 64 };

/* Of a list of servers, which the searches are compared on: a sanitizer, which looks for other
 * faults than a search that is slow, sees a few. 23 and 7 have no divisor with the lists' periods
 * in common. */
static int every(int nth) {
  return support_slow() ? nth : 1;
}

/* Stores near and far, with and without limits of bandwidth, calm and noisy: the search brings at
 * least 0.9 of the best fixed limit, from its first answer on, and takes no more than it needs. */
static void as_good_as_the_best(void **state) {
  (void)state;
  static const double latency[] = {0.005, 0.05, 0.2}, bandwidth[] = {0, 20e6, 100e6, 400e6, 0};
  for (int i = 0; i < 3 * 5 * 3 * 2; i += every(23)) {
    int b = i / 3 % 5, fifo = i / 45;
    struct world w = {.latency = latency[i % 3],
        .bandwidth = bandwidth[b],
        .each = b == 4 ? 20e6 : 0,
        .noise = i / 15 % 3 * 0.5,
        .bytes = 500e3,
        .fifo = fifo};
    if (fifo && bandwidth[b] <= 0) continue;
    uint64_t fewest = 0;
    double best = best_fixed(w, MOST, 3000, &fewest);
    struct sim *s = sim(w, 1, MOST, true);
    const struct insitu__tune *t = &s->client[0].tune;
    double all = speed(s, 0, 20000), late = speed(s, 0, 10000);
    /* without noise all requests come in waves, and the curve of limits has steps */
    bool enough = t->chosen <= 4 * fewest + 4;
    if (all < 0.9 * best || late < 0.9 * best || !enough)
      fail_msg("latency %g s, bandwidth %g, each %g, noise %g, fifo %d: %.2f and %.2f of the best, "
               "limit %" PRIu64 ", needed %" PRIu64,
          w.latency, w.bandwidth, w.each, w.noise, fifo, all / best, late / best, t->chosen,
          fewest);
    free(s);
  }
}

/* The first answers come as fast as with the highest limit: the search begins there. */
static void no_slower_at_first(void **state) {
  (void)state;
  struct world w = {.latency = 0.05, .bytes = 500e3, .noise = 0.3};
  struct sim *s = sim(w, 1, MOST, true);
  for (int i = 0; i < 40; i++) {
    run(s, s->now + 0.01);
    assert_true(s->client[0].tune.limit == MOST);
  }
  assert_true(s->client[0].answered > 3 * MOST);
  free(s);
}

static void check_shares(struct sim *s, double seconds, const char *what) {
  double before[CLIENTS], sum = 0;
  for (int k = 0; k < s->n; k++) before[k] = s->client[k].got;
  run(s, s->now + seconds);
  for (int k = 0; k < s->n; k++) sum += before[k] = s->client[k].got - before[k];
  for (int k = 0; k < s->n; k++)
    if (before[k] < 0.9 * sum / s->n || before[k] > 1.1 * sum / s->n)
      fail_msg("%s: client %d has %.3f of its share, limit %" PRIu64, what, k,
          before[k] * s->n / sum, s->client[k].tune.chosen);
  if (sum < 0.9 * s->w.bandwidth * seconds)
    fail_msg("%s: %.2f of the bandwidth", what, sum / seconds / s->w.bandwidth);
}

/* Four clients of one server: those that begin together, and three that come to one that has long
 * been there, and has settled at few requests. */
static void four_share(void **state) {
  (void)state;
  for (int i = support_slow() ? 7 : 0; i < 12; i += 5) {
    struct world w = {.latency = i % 3 == 0   ? 0.005
                                 : i % 3 == 1 ? 0.05
                                              : 0.2,
        .bandwidth = 100e6,
        .bytes = 500e3,
        .noise = 0.4,
        .fifo = i / 3 % 2};
    struct sim *s = sim(w, 4, MOST, true);
    bool late = i % 12 / 6;
    for (int k = 1; k < 4 && late; k++) s->client[k].from = 160 + 7 * k;
    run(s, 150);
    if (late && i % 3 == 0) assert_in_range(s->client[0].tune.chosen, 1, MOST / 4);
    if (late) run(s, 450);
    check_shares(s, 300, late ? "one after another" : "together");
    free(s);
  }
}

/* The server becomes another one. */
static void the_world_changes(void **state) {
  (void)state;
  static const struct world worlds[] = {
      {.latency = 0.005, .bandwidth = 50e6, .bytes = 200e3, .noise = 0.3},
      {.latency = 0.2, .bandwidth = 50e6, .bytes = 200e3, .noise = 0.3},
      {.latency = 0.05, .bandwidth = 400e6, .bytes = 200e3, .noise = 0.3},
      {.latency = 0.005, .bandwidth = 10e6, .bytes = 200e3, .noise = 0.3},
      {.latency = 0.05, .each = 5e6, .bytes = 200e3, .noise = 0.3},
  };
  enum { WORLDS = sizeof worlds / sizeof *worlds };
  double best[WORLDS];
  uint64_t fewest[WORLDS];
  for (int i = 0; i < WORLDS; i++) best[i] = best_fixed(worlds[i], MOST, 3000, &fewest[i]);
  struct sim *s = sim(worlds[0], 1, MOST, true);
  for (int i = 0; i < (support_slow() ? 1 : 4) * WORLDS; i++) {
    int k = i * 2 % WORLDS;
    s->w = worlds[k];
    speed(s, 0, 8000);
    double got = speed(s, 0, 8000);
    uint64_t limit = s->client[0].tune.chosen;
    if (got < 0.9 * best[k])
      fail_msg("world %d after %d: %.2f of the best, limit %" PRIu64 ", needed %" PRIu64, k, i,
          got / best[k], limit, fewest[k]);
  }
  free(s);
}

/* A consumer that takes little is no evidence about the server: the limit stays, and serves at once
 * when the consumer wants more. */
static void a_slow_consumer(void **state) {
  (void)state;
  struct world w = {.latency = 0.05, .bytes = 500e3, .noise = 0.3};
  struct sim *s = sim(w, 1, MOST, true);
  s->client[0].demand = 50e6; /* of 640e6 */
  for (int i = 0; i < 1000; i++) {
    run(s, s->now + 0.1);
    assert_true(s->client[0].tune.limit == MOST);
  }
  assert_true(s->client[0].got > 0.95 * 50e6 * s->now);
  assert_false(s->client[0].tune.settled);
  free(s);

  w.bandwidth = 100e6; /* settled, then idle, then wanted again */
  s = sim(w, 1, MOST, true);
  speed(s, 0, 10000);
  uint64_t settled = s->client[0].tune.chosen;
  s->client[0].demand = 5e6;
  for (int i = 0; i < 1000; i++) {
    run(s, s->now + 0.1);
    if (i > 10) assert_int_equal(s->client[0].tune.chosen, settled);
  }
  s->client[0].demand = 0;
  assert_true(speed(s, 0, 5000) > 0.9 * 100e6);
  free(s);
}

/* A loader that has room for fewer requests than the limit: the search begins at these, and brings
 * as much as the best limit below. */
static void little_room(void **state) {
  (void)state;
  for (int i = 0; i < 12; i += every(7)) {
    uint64_t fewest = 0, depth = i % 2 ? 32 : 10;
    struct world w = {.latency = i % 3 == 0   ? 0.005
                                 : i % 3 == 1 ? 0.05
                                              : 0.2,
        .bandwidth = i / 6 ? 20e6 : 0,
        .bytes = 500e3,
        .noise = 0.3};
    double best = best_fixed(w, depth, 3000, &fewest);
    struct sim *s = sim(w, 1, MOST, true);
    s->client[0].depth = depth;
    double got = speed(s, 0, 20000);
    uint64_t limit = s->client[0].tune.chosen;
    if (got < 0.9 * best || limit > 4 * fewest + 4 || limit > 2 * depth)
      fail_msg("latency %g, bandwidth %g, room %" PRIu64 ": %.2f of the best, limit %" PRIu64
               ", needed %" PRIu64,
          w.latency, w.bandwidth, depth, got / best, limit, fewest);
    free(s);
  }
}

/* Who takes batches stops from time to time: what was fetched until then, and what is fetched at
 * first afterwards, says nothing about the server. */
static void pauses(void **state) {
  (void)state;
  for (int i = 1; i < 6; i += every(2)) {
    uint64_t fewest = 0;
    struct world w = {.latency = i % 3 == 0   ? 0.005
                                 : i % 3 == 1 ? 0.05
                                              : 0.2,
        .bandwidth = i / 3 ? 40e6 : 0,
        .bytes = 500e3,
        .noise = 0.3};
    double best = best_fixed(w, MOST, 3000, &fewest), got = 0;
    struct sim *s = sim(w, 1, MOST, true);
    for (int k = 0; k < 150; k++) {
      double before = s->client[0].got;
      run(s, s->now + 2);
      if (k >= 50) got += s->client[0].got - before;
      s->client[0].from = s->now + 2.5; /* longer than all in flight takes */
      run(s, s->now + 2.5);
    }
    uint64_t limit = s->client[0].tune.chosen;
    /* a latency's worth is lost each time */
    if (got < 0.8 * best * 100 * (2 - w.latency))
      fail_msg("latency %g, bandwidth %g: %.2f of the best, limit %" PRIu64 ", needed %" PRIu64,
          w.latency, w.bandwidth, got / best / 100 / (2 - w.latency), limit, fewest);
    free(s);
  }
}

/* Servers that refuse what is too much, that refuse everything for a while, or a request now and
 * then: about as many answers as with the rule of fixed limits, which halves and rises by one, and
 * about as many refusals. */
static void a_server_that_refuses(void **state) {
  (void)state;
  const struct {
    struct world w;
    double until;
  } servers[] = {{{.latency = 0.05, .bytes = 100e3, .noise = 0.3, .refuse = 300}, 300},
      {{.latency = 0.1, .bytes = 100e3, .noise = 0.3, .outage = 8}, 60},
      {{.latency = 0.02, .bytes = 100e3, .noise = 0.3, .outage = 8}, 20},
      {{.latency = 0.1, .bytes = 100e3, .noise = 0.3, .sporadic = 5}, 200},
      {{.latency = 0.1, .bytes = 100e3, .noise = 0.3, .sporadic = 30}, 200}};
  for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
    double answered[2], refused[2];
    for (int on = 0; on < 2; on++) {
      struct sim *s = sim(servers[i].w, 1, 64, on);
      run(s, servers[i].until);
      answered[on] = (double)s->client[0].answered;
      refused[on] = (double)s->client[0].refused;
      if (servers[i].w.refuse > 0) assert_true(s->client[0].tune.limit < 64);
      free(s);
    }
    if (answered[1] < 0.85 * answered[0] || refused[1] > 1.2 * refused[0])
      fail_msg("server %d: %.0f answers and %.0f refusals, %.0f and %.0f without a search", (int)i,
          answered[1], refused[1], answered[0], refused[0]);
  }
}

/* A value of the user's stays, but for a server that refuses: it halves, and then rises by one for
 * each round of answers. */
static void fixed_is_fixed(void **state) {
  (void)state;
  struct world w = {.latency = 0.05, .bandwidth = 20e6, .bytes = 500e3, .noise = 0.3};
  struct sim *s = sim(w, 1, 40, false);
  for (int i = 0; i < 500; i++) {
    run(s, s->now + 0.1);
    assert_true(s->client[0].tune.limit == 40);
    assert_false(insitu__tune_news(&s->client[0].tune));
  }
  insitu__tune_throttled(&s->client[0].tune);
  assert_true(s->client[0].tune.limit == 20);
  for (int i = 0; i < 5; i++) insitu__tune_throttled(&s->client[0].tune);
  assert_true(s->client[0].tune.limit == 1);
  double limit = 1;
  for (int i = 0; i < 3000; i++) {
    limit = limit + 1 / limit < 40 ? limit + 1 / limit : 40;
    insitu__tune_served(&s->client[0].tune);
    assert_true(s->client[0].tune.limit == limit);
  }
  assert_true(limit == 40);
  free(s);
}

/* A server that closes the connection behind each answer gets few requests, whatever they bring;
 * where the user has set the limit it stays. */
static void few_for_those_that_close(void **state) {
  (void)state;
  struct world w = {.latency = 0.05, .bandwidth = 1e9, .bytes = 1e3, .noise = 0.1};
  for (int on = 0; on < 2; on++) {
    struct sim *s = sim(w, 1, 40, on);
    insitu__tune_gently(&s->client[0].tune, (int64_t)(s->now * 1e9), 0);
    for (int i = 0; i < 300; i++) {
      run(s, s->now + 0.1);
      double limit = s->client[0].tune.limit;
      assert_true(on ? limit <= INSITU__TUNE_GENTLE : limit == 40);
    }
    if (on) assert_true(s->client[0].tune.chosen == INSITU__TUNE_GENTLE);
    free(s);
  }
}

/* Whatever comes, the limit lies from 1 to the highest one; it is a whole number but while it rises
 * again. */
static void any_events(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(300); round++) {
    struct insitu__tune t;
    uint64_t most = support_below(4) ? 1 + support_below(300) : 1, in_flight = 0;
    int64_t now = (int64_t)support_below(2), step = 1 + (int64_t)support_below(1u << 24);
    insitu__tune_init(&t, most, true);
    for (int i = 0; i < 5000; i++) {
      now += support_below(3) ? (int64_t)support_below((uint64_t)step) : 0;
      bool begins = (double)in_flight < t.limit && support_below(8);
      if (begins) {
        insitu__tune_count(&t, now, in_flight++);
      } else if (in_flight && support_below(200)) {
        uint64_t bytes = support_below(3) ? support_below(1u << 20) : 0;
        insitu__tune_done(&t, now, in_flight, now - (int64_t)support_below(1u << 28), bytes);
        insitu__tune_count(&t, now, in_flight--);
      } else {
        insitu__tune_throttled(&t);
      }
      if (support_below(2)) insitu__tune_served(&t);
      assert_true(t.limit >= 1 && t.limit <= (double)most);
      assert_true(t.back || t.limit == (double)(uint64_t)t.limit);
      assert_in_range(t.chosen, 1, most);
      insitu__tune_news(&t);
    }
  }
}

/* The log hears of a limit once it is settled, and again only when it is another. */
static void news_are_few(void **state) {
  (void)state;
  struct world w = {.latency = 0.05, .bandwidth = 50e6, .bytes = 500e3, .noise = 0.3};
  struct sim *s = sim(w, 1, MOST, true);
  unsigned told = 0;
  for (int i = 0; i < 3000; i++) {
    run(s, s->now + 0.1);
    bool news = insitu__tune_news(&s->client[0].tune);
    if (news) assert_true(s->client[0].tune.settled);
    told += news;
  }
  assert_in_range(told, 1, 6);
  double rate = s->client[0].tune.usual * 1e9, latency = s->client[0].tune.latency / 1e9;
  assert_true(rate > 0.8 * 50e6 && rate < 1.2 * 50e6);
  double little = (double)s->client[0].tune.chosen * 500e3 / rate; /* Little's law */
  assert_true(latency > 0.7 * little && latency < 1.4 * little);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_good_as_the_best),
      cmocka_unit_test(no_slower_at_first), cmocka_unit_test(four_share),
      cmocka_unit_test(the_world_changes), cmocka_unit_test(a_slow_consumer),
      cmocka_unit_test(a_server_that_refuses), cmocka_unit_test(fixed_is_fixed),
      cmocka_unit_test(few_for_those_that_close), cmocka_unit_test(any_events),
      cmocka_unit_test(news_are_few), cmocka_unit_test(little_room), cmocka_unit_test(pauses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
