/* Rows of a sequence, (batch x positions) of `channels` features: RMS norm, rotary positions, gated activation. */

/* e^x for finite x to 1e-7 of it, at most 2^126; the loops' own, because glibc's cannot be vectorised without
   -ffast-math. Splits x * log2(e) into a whole part, the exponent, and the rest, for a Taylor series. NaN stays. */
INLINE float exponential(float x)
{
    float power = x * 1.44269504f;
    power = power > 126 ? 126 : power;
    power = power < -126 ? -126 : power;
    float whole = rintf(power == power ? power : 0), rest = (power - whole) * 0.693147181f;
    uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return scale * (1 + rest * (1 + rest * (0.5f + rest * (1 / 6.0f + rest * (1 / 24.0f + rest * (1 / 120.0f
        + rest * (1 / 720.0f)))))));
}

struct rows {
    const void *x;
    const void *gradients[3]; /* of up to three readers; those that are missing come last */
    const float *weight;
    float *inverse;           /* of each row 1 / sqrt(mean of squares + epsilon) */
    void *out;
    double epsilon;
    int half_x, half_out;     /* `gradients` have the type of the output */
};

/* out = x * inverse * weight */
INLINE void rms(struct job *job, long from, long to, int half_x, int half_out)
{
    const struct rows *rows = job->x;
    const long channels = job->channels;
    const void *restrict x = rows->x;
    const float *restrict weight = rows->weight;
    void *restrict out = rows->out;
    for (long row = from; row < to; row++) {
        const long start = row * channels;
        float squares = 0;
        _Pragma("omp simd reduction(+:squares)")
        for (long c = 0; c < channels; c++) squares += get(x, start + c, half_x) * get(x, start + c, half_x);
        const float inverse = (float)(1 / sqrt(squares / channels + rows->epsilon));
        rows->inverse[row] = inverse;
        SIMD for (long c = 0; c < channels; c++)
            put(out, start + c, get(x, start + c, half_x) * inverse * weight[c], half_out);
    }
}

/* out = dx, from the sum g of the gradients: inverse * weight * g - x * inverse^3 * mean(weight * g * x).
   job->parts: sums of g * x * inverse, by channel. */
INLINE void rms_back(struct job *job, long from, long to, int thread, int half_x, int half_out, int many)
{
    const struct rows *rows = job->x;
    const long channels = job->channels;
    const void *restrict x = rows->x, *restrict first = rows->gradients[0];
    const void *restrict second = rows->gradients[1], *restrict third = rows->gradients[2];
    const float *restrict weight = rows->weight;
    void *restrict out = rows->out;
    double *sums = job->sums + 2 * thread * job->length;
    float *restrict to_weight = job->parts + 2 * thread * job->length, *restrict g = to_weight + job->length;
    for (long row = from; row < to; row++) {
        const long start = row * channels;
        const float inverse = rows->inverse[row];
        float product = 0;
        _Pragma("omp simd reduction(+:product)")
        for (long c = 0; c < channels; c++) {
            float sum = get(first, start + c, half_out);
            if (many > 1) sum += get(second, start + c, half_out);
            if (many > 2) sum += get(third, start + c, half_out);
            const float scaled = get(x, start + c, half_x) * inverse;
            to_weight[c] += sum * scaled;
            g[c] = sum * weight[c];
            product += g[c] * scaled;
        }
        product /= channels;
        SIMD for (long c = 0; c < channels; c++)
            put(out, start + c, inverse * (g[c] - get(x, start + c, half_x) * inverse * product), half_x);
        if ((row - from + 1) % BLOCKS_A_SUM == 0) fold(to_weight, sums, channels);
    }
    fold(to_weight, sums, channels);
}

static void rms_any(struct job *job, long from, long to, int thread)
{
    (void)thread;
    const struct rows *rows = job->x;
    switch (rows->half_x * 2 + rows->half_out) {
        case 0: rms(job, from, to, 0, 0); break;
        case 1: rms(job, from, to, 0, 1); break;
        case 2: rms(job, from, to, 1, 0); break;
        case 3: rms(job, from, to, 1, 1); break;
    }
}

static void rms_back_any(struct job *job, long from, long to, int thread)
{
    const struct rows *rows = job->x;
    const int many = rows->gradients[2] ? 3 : rows->gradients[1] ? 2 : 1;
#define CASE(half_x, half_out, many)                                                                     \
    case (half_x) * 8 + (half_out) * 4 + (many): rms_back(job, from, to, thread, half_x, half_out, many); break;
    switch (rows->half_x * 8 + rows->half_out * 4 + many) {
        CASE(0, 0, 1) CASE(0, 0, 2) CASE(0, 0, 3) CASE(0, 1, 1) CASE(0, 1, 2) CASE(0, 1, 3)
        CASE(1, 0, 1) CASE(1, 0, 2) CASE(1, 0, 3) CASE(1, 1, 1) CASE(1, 1, 2) CASE(1, 1, 3)
    }
#undef CASE
}

int rms_forward(const void *x, const float *weight, void *out, float *inverse, long rows, long channels,
                int half_x, int half_out, double epsilon, int threads)
{
    struct rows all = {.x = x, .weight = weight, .inverse = inverse, .out = out, .epsilon = epsilon,
                       .half_x = half_x, .half_out = half_out};
    struct job job = {.x = &all, .channels = channels, .blocks = rows};
    run(&job, rms_any, rows * channels, threads);
    return 0;
}

int rms_backward(const void *first, const void *second, const void *third, const void *x, const float *weight,
                 float *inverse, void *to_x, float *to_weight, long rows, long channels, int half_x,
                 int half_out, int threads)
{
    struct rows all = {.x = x, .gradients = {first, second, third}, .weight = weight, .inverse = inverse,
                       .out = to_x, .half_x = half_x, .half_out = half_out};
    struct job job = {.x = &all};
    void *memory = prepare(&job, rows, channels, threads);
    if (!memory) return 1;
    job.blocks = rows;
    run(&job, rms_back_any, rows * channels, threads);
    for (long c = 0; c < channels; c++) {
        double sum = 0;
        for (int thread = 0; thread < threads; thread++) sum += job.sums[2 * thread * job.length + c];
        to_weight[c] = (float)sum;
    }
    free(memory);
    return 0;
}

/* Each head of `width` features is turned as the pairs (first half, second half) by the angles of its position;
   `way` is 1, or -1 for the same angles the other way. */
struct heads {
    const void *x;
    void *out;
    const float *cosines, *sines; /* (positions, width / 2) */
    long width, positions;
    float way;
    int half_x, half_out;
};

INLINE void turned(struct job *job, long from, long to, int half_x, int half_out)
{
    const struct heads *heads = job->x;
    const void *restrict x = heads->x;
    void *restrict out = heads->out;
    const long channels = job->channels, width = heads->width, pairs = width / 2;
    const float way = heads->way;
    for (long row = from; row < to; row++) {
        const float *restrict cosine = heads->cosines + row % heads->positions * pairs;
        const float *restrict sine = heads->sines + row % heads->positions * pairs;
        for (long head = row * channels; head < (row + 1) * channels; head += width)
            SIMD for (long j = 0; j < pairs; j++) {
                const float one = get(x, head + j, half_x), two = get(x, head + pairs + j, half_x);
                put(out, head + j, one * cosine[j] - two * sine[j] * way, half_out);
                put(out, head + pairs + j, one * sine[j] * way + two * cosine[j], half_out);
            }
    }
}

static void turned_any(struct job *job, long from, long to, int thread)
{
    (void)thread;
    const struct heads *heads = job->x;
    switch (heads->half_x * 2 + heads->half_out) {
        case 0: turned(job, from, to, 0, 0); break;
        case 1: turned(job, from, to, 0, 1); break;
        case 2: turned(job, from, to, 1, 0); break;
        case 3: turned(job, from, to, 1, 1); break;
    }
}

/* `turns`: the cosines, then the sines. */
int turn(const void *x, const float *turns, void *out, long rows, long channels, long width, long positions,
         int half_x, int half_out, int back, int threads)
{
    struct heads heads = {x, out, turns, turns + positions * (width / 2), width, positions, back ? -1 : 1,
                          half_x, half_out};
    struct job job = {.x = &heads, .channels = channels, .blocks = rows};
    run(&job, turned_any, rows * channels, threads);
    return 0;
}

/* out = silu(z) * x, or of its gradient `first`: out = that of x, masked = that of z. */
INLINE void silu(struct job *job, long from, long to, int half, int back)
{
    const void *restrict x = job->x, *restrict z = job->z, *restrict first = job->first;
    void *restrict out = job->out, *restrict masked = job->masked;
    const long end = to == job->blocks ? job->tail : to * GATED;
    SIMD for (long at = from * GATED; at < end; at++) {
        const float gate = get(z, at, half), share = 1 / (1 + exponential(-gate));
        const float number = back ? get(first, at, half) : get(x, at, half);
        put(out, at, number * gate * share, half);
        if (back) put(masked, at, number * get(x, at, half) * share * (1 + gate * (1 - share)), half);
    }
}
static void silu_any(struct job *job, long from, long to, int thread)
{
    (void)thread;
    switch (job->half * 2 + (job->first != NULL)) {
        case 0: silu(job, from, to, 0, 0); break;
        case 1: silu(job, from, to, 0, 1); break;
        case 2: silu(job, from, to, 1, 0); break;
        case 3: silu(job, from, to, 1, 1); break;
    }
}

int silu_product(const void *first, const void *z, const void *x, void *out, void *to_z, long numbers, int half,
                 int threads)
{
    struct job job = {.first = first, .z = z, .x = x, .out = out, .masked = to_z, .half = half,
                      .blocks = (numbers + GATED - 1) / GATED, .tail = numbers};
    run(&job, silu_any, numbers, threads);
    return 0;
}
