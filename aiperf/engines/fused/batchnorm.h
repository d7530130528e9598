/* Batch norm, the addition of a residual, and ReLU or ReLU6, forward and backward. */

/* Sums of x - shift and of its square, by channel; a: shift. */
INLINE void sum_up(struct job *job, long from, long to, int thread, int half)
{
    const long length = job->length;
    const void *restrict x = job->x;
    const float *restrict shift = job->a;
    double *sums = job->sums + 2 * thread * length;
    float *restrict one = job->parts + 2 * thread * length, *restrict two = one + length;
#define BLOCK(start, numbers)                                                                            \
    SIMD                                                                                                 \
    for (long j = 0; j < (numbers); j++) {                                                               \
        float away = get(x, (start) + j, half) - shift[j];                                               \
        one[j] += away;                                                                                  \
        two[j] += away * away;                                                                           \
    }                                                                                                    \
    if (++summed % BLOCKS_A_SUM == 0) fold(one, sums, 2 * length);
    long summed = 0;
    EACH_BLOCK(BLOCK)
#undef BLOCK
    fold(one, sums, 2 * length);
}

static void sum_up_single(struct job *job, long from, long to, int thread) { sum_up(job, from, to, thread, 0); }
static void sum_up_half(struct job *job, long from, long to, int thread) { sum_up(job, from, to, thread, 1); }

/* y = activation((x - a) * b + c + residual) */
INLINE void apply(struct job *job, long from, long to, int half, int added, int activation)
{
    const long length = job->length;
    const void *restrict x = job->x, *restrict residual = job->residual;
    const float *restrict mean = job->a, *restrict scale = job->b, *restrict bias = job->c;
    void *restrict out = job->out;
#define BLOCK(start, numbers)                                                                            \
    SIMD                                                                                                 \
    for (long j = 0; j < (numbers); j++) {                                                               \
        float y = (get(x, (start) + j, half) - mean[j]) * scale[j] + bias[j];                            \
        if (added) y += get(residual, (start) + j, half);                                                \
        if (activation) y = y < 0 ? 0 : y;                                                               \
        if (activation == RELU6) y = y > 6 ? 6 : y;                                                      \
        put(out, (start) + j, y, half);                                                                  \
    }
    EACH_BLOCK_BACK(BLOCK)
#undef BLOCK
}

static void apply_any(struct job *job, long from, long to, int thread)
{
    (void)thread;
#define CASE(half, added, activation)                                                                    \
    case (half) * 6 + (added) * 3 + (activation): apply(job, from, to, half, added, activation); break;
    switch (job->half * 6 + (job->residual != NULL) * 3 + job->activation) {
        CASE(0, 0, 0) CASE(0, 0, 1) CASE(0, 0, 2) CASE(0, 1, 0) CASE(0, 1, 1) CASE(0, 1, 2)
        CASE(1, 0, 0) CASE(1, 0, 1) CASE(1, 0, 2) CASE(1, 1, 0) CASE(1, 1, 1) CASE(1, 1, 2)
    }
#undef CASE
}

/* y of (rows, channels). Training: statistics of x go to `statistics` (mean, then 1 / sqrt(variance + eps)) and
   move the running ones; else `statistics` is NULL and the running ones are used. 0, or 1 without memory. */
int batchnorm_forward(const void *x, const void *residual, void *y, long rows, long channels, int half,
                      int activation, const float *weight, const float *bias, float *running_mean,
                      float *running_variance, float *statistics, double momentum, double epsilon, int threads)
{
    struct job job = {.x = x, .residual = residual, .out = y, .half = half, .activation = activation};
    void *memory = prepare(&job, rows, channels, threads);
    if (!memory) return 1;
    if (statistics) {
        long some = rows < SHIFT_ROWS ? rows : SHIFT_ROWS;
        for (long c = 0; c < channels; c++) {
            float sum = 0;
            for (long row = 0; row < some; row++) sum += get(x, rows / some * row * channels + c, half);
            job.a[c] = sum / some;
        }
        repeat(job.a, channels, job.length);
        run(&job, half ? sum_up_half : sum_up_single, rows * channels, threads);
    }
    for (long c = 0; c < channels; c++) {
        double mean, deviation;
        if (statistics) {
            double one, two;
            total(&job, c, threads, &one, &two);
            double variance = (two - one * one / rows) / rows;
            if (variance < 0) variance = 0;
            mean = job.a[c] + one / rows;
            deviation = 1 / sqrt(variance + epsilon);
            statistics[c] = (float)mean;
            statistics[channels + c] = (float)deviation;
            variance *= (double)rows / (rows - 1);
            running_mean[c] = (float)((1 - momentum) * running_mean[c] + momentum * mean);
            running_variance[c] = (float)((1 - momentum) * running_variance[c] + momentum * variance);
        } else {
            mean = running_mean[c];
            deviation = 1 / sqrt(running_variance[c] + epsilon);
        }
        job.a[c] = (float)mean;
        job.b[c] = (float)(weight[c] * deviation);
        job.c[c] = bias[c];
    }
    repeat(job.a, channels, job.length);
    repeat(job.b, channels, job.length);
    repeat(job.c, channels, job.length);
    run(&job, apply_any, rows * channels, threads);
    free(memory);
    return 0;
}

/* How the gradient behind the activation is found: from y, or for ReLU alone from x once more. */
enum { WHOLE, FROM_X, FROM_Y, FROM_Y6 };

INLINE float masked(const void *y, const void *first, const void *second, long at, float centred, float scale, float bias, int half,
                    int two, int mask)
{
    float gradient = get(first, at, half);
    if (two) gradient += get(second, at, half);
    if (mask == FROM_X) return centred * scale + bias <= 0 ? 0 : gradient;
    if (mask == WHOLE) return gradient;
    float out = get(y, at, half);
    if (mask == FROM_Y6) return out <= 0 || out >= 6 ? 0 : gradient;
    return out <= 0 ? 0 : gradient;
}

/* Sums of g and g * (x - mean), where g is the gradient before the activation; a: mean, b: scale, c: bias. */
INLINE void sum_gradient(struct job *job, long from, long to, int thread, int half, int two, int mask, int keep)
{
    const long length = job->length;
    const void *restrict x = job->x, *restrict y = job->y, *restrict first = job->first;
    const void *restrict second = job->second;
    const float *restrict mean = job->a, *restrict scale = job->b, *restrict bias = job->c;
    void *restrict kept = job->masked;
    double *sums = job->sums + 2 * thread * length;
    float *restrict plain = job->parts + 2 * thread * length, *restrict times = plain + length;
#define BLOCK(start, numbers)                                                                            \
    SIMD                                                                                                 \
    for (long j = 0; j < (numbers); j++) {                                                               \
        float centred = get(x, (start) + j, half) - mean[j];                                             \
        float g = masked(y, first, second, (start) + j, centred, scale[j], bias[j], half, two, mask); \
        plain[j] += g;                                                                                   \
        times[j] += g * centred;                                                                         \
        if (keep) put(kept, (start) + j, g, half);                                                       \
    }                                                                                                    \
    if (++summed % BLOCKS_A_SUM == 0) fold(plain, sums, 2 * length);
    long summed = 0;
    EACH_BLOCK(BLOCK)
#undef BLOCK
    fold(plain, sums, 2 * length);
}

/* dx = b * g + d * (x - mean) + e, with e in the place of `parts`. */
INLINE void to_input(struct job *job, long from, long to, int half, int two, int mask)
{
    const long length = job->length;
    const void *restrict x = job->x, *restrict y = job->y, *restrict first = job->first;
    const void *restrict second = job->second;
    const float *restrict mean = job->a, *restrict scale = job->b, *restrict bias = job->c;
    const float *restrict slope = job->d, *restrict rest = job->parts;
    void *restrict out = job->out;
#define BLOCK(start, numbers)                                                                            \
    SIMD                                                                                                 \
    for (long j = 0; j < (numbers); j++) {                                                               \
        float centred = get(x, (start) + j, half) - mean[j];                                             \
        float g = masked(y, first, second, (start) + j, centred, scale[j], bias[j], half, two, mask); \
        put(out, (start) + j, scale[j] * g + slope[j] * centred + rest[j], half);                        \
    }
    EACH_BLOCK_BACK(BLOCK)
#undef BLOCK
}

#define CASE(half, two, mask) case (half) * 8 + (two) * 4 + (mask): DO(half, two, mask); break;
#define CASES                                                                                            \
    switch (job->half * 8 + (job->second != NULL) * 4 + job->activation) {                               \
        CASE(0, 0, 0) CASE(0, 0, 1) CASE(0, 0, 2) CASE(0, 0, 3)                                          \
        CASE(0, 1, 0) CASE(0, 1, 1) CASE(0, 1, 2) CASE(0, 1, 3)                                          \
        CASE(1, 0, 0) CASE(1, 0, 1) CASE(1, 0, 2) CASE(1, 0, 3)                                          \
        CASE(1, 1, 0) CASE(1, 1, 1) CASE(1, 1, 2) CASE(1, 1, 3)                                          \
    }

static void sum_gradient_any(struct job *job, long from, long to, int thread)
{
#define DO(half, two, mask) sum_gradient(job, from, to, thread, half, two, mask, 0)
    CASES
#undef DO
}

static void sum_and_keep_any(struct job *job, long from, long to, int thread)
{
#define DO(half, two, mask) sum_gradient(job, from, to, thread, half, two, mask, 1)
    CASES
#undef DO
}

static void to_input_any(struct job *job, long from, long to, int thread)
{
    (void)thread;
#define DO(half, two, mask) to_input(job, from, to, half, two, mask)
    CASES
#undef DO
}
#undef CASES
#undef CASE

/* dx, and of the parameters, from one or two gradients of y. `masked` is the residual's gradient, or NULL where
   it is the same as y's or where there is no residual; y is needed with a residual and for ReLU6. */
int batchnorm_backward(const void *first, const void *second, const void *x, const void *y, void *masked_out,
                       void *dx, long rows, long channels, int half, int activation, const float *weight,
                       const float *bias, const float *statistics, float *to_weight, float *to_bias, int threads)
{
    struct job job = {.x = x, .y = y, .first = first, .second = second, .out = dx, .masked = masked_out};
    void *memory = prepare(&job, rows, channels, threads);
    if (!memory) return 1;
    job.half = half;
    job.activation = activation == NOTHING ? WHOLE : activation == RELU6 ? FROM_Y6 : y ? FROM_Y : FROM_X;
    for (long c = 0; c < channels; c++) {
        job.a[c] = statistics[c];
        job.b[c] = weight[c] * statistics[channels + c];
        job.c[c] = bias[c];
    }
    repeat(job.a, channels, job.length);
    repeat(job.b, channels, job.length);
    repeat(job.c, channels, job.length);
    run(&job, masked_out ? sum_and_keep_any : sum_gradient_any, rows * channels, threads);
    for (long c = 0; c < channels; c++) {
        double sum, product, deviation = statistics[channels + c];
        total(&job, c, threads, &sum, &product);
        to_bias[c] = (float)sum;
        to_weight[c] = (float)(product * deviation);
        job.d[c] = (float)(-(double)weight[c] * deviation * deviation * deviation * product / rows);
        job.parts[c] = (float)(-(double)weight[c] * deviation * sum / rows);
    }
    repeat(job.d, channels, job.length);
    repeat(job.parts, channels, job.length);
    if (masked_out) job.first = masked_out, job.second = NULL, job.activation = WHOLE;
    run(&job, to_input_any, rows * channels, threads);
    free(memory);
    return 0;
}
