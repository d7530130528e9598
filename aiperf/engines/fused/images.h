/* What takes images one by one: the mean of a channel, its gate, and each stride-th pixel. */

#define IMAGE_LOOP                                                                                       \
    const long channels = job->channels, area = job->area;                                               \
    for (long image = from; image < to; image++)

/* out (images, channels) = mean of x */
INLINE void mean(struct job *job, long from, long to, int thread, int half)
{
    const void *restrict x = job->x;
    const long length = job->length;
    float *restrict sum = job->parts + 2 * thread * length;
    IMAGE_LOOP {
        const long start = image * area * channels, numbers = area * channels;
        memset(sum, 0, (size_t)length * sizeof *sum);
        long at = 0;
        for (; at + length <= numbers; at += length)
            SIMD for (long j = 0; j < length; j++) sum[j] += get(x, start + at + j, half);
        SIMD for (long j = 0; j < numbers - at; j++) sum[j] += get(x, start + at + j, half);
        for (long c = 0; c < channels; c++) {
            float whole = 0;
            for (long j = c; j < length; j += channels) whole += sum[j];
            put(job->out, image * channels + c, whole / area, half);
        }
    }
}

/* out = x (images, channels) / area everywhere */
INLINE void spread(struct job *job, long from, long to, int half)
{
    const size_t size = (size_t)job->channels * (half ? 2 : 4);
    IMAGE_LOOP {
        char *start = (char *)job->out + (size_t)(image * area) * size;
        for (long c = 0; c < channels; c++) put(start, c, get(job->x, image * channels + c, half) / area, half);
        /* Doubling what is written: few calls also for few channels. */
        for (long done = 1; done < area; done *= 2)
            memcpy(start + done * size, start, (size_t)(done < area - done ? done : area - done) * size);
    }
}

INLINE const float *gates_of(struct job *job, long image, int thread)
{
    float *gates = job->parts + 2 * thread * job->length;
    for (long c = 0; c < job->channels; c++) gates[c] = get(job->z, image * job->channels + c, job->half);
    repeat(gates, job->channels, job->length);
    return gates;
}

/* out = x * z, z of (images, channels) */
INLINE void gate(struct job *job, long from, long to, int thread, int half)
{
    const void *restrict x = job->x;
    void *restrict out = job->out;
    const long length = job->length;
    IMAGE_LOOP {
        const float *restrict gates = gates_of(job, image, thread);
        const long start = image * area * channels, numbers = area * channels;
        long at = 0;
        for (; at + length <= numbers; at += length)
            SIMD for (long j = 0; j < length; j++)
                put(out, start + at + j, get(x, start + at + j, half) * gates[j], half);
        SIMD for (long j = 0; j < numbers - at; j++)
            put(out, start + at + j, get(x, start + at + j, half) * gates[j], half);
    }
}

/* out = g * z, masked (images, channels) = sum of g * x, where g = first + second */
INLINE void gate_back(struct job *job, long from, long to, int thread, int half, int two)
{
    const void *restrict x = job->x, *restrict first = job->first, *restrict second = job->second;
    void *restrict out = job->out;
    const long length = job->length;
    float *restrict sum = job->parts + (2 * thread + 1) * length;
    IMAGE_LOOP {
        const float *restrict gates = gates_of(job, image, thread);
        const long start = image * area * channels, numbers = area * channels;
        memset(sum, 0, (size_t)length * sizeof *sum);
        for (long at = 0; at < numbers; at += length) {
            const long many = numbers - at < length ? numbers - at : length;
            SIMD for (long j = 0; j < many; j++) {
                float g = get(first, start + at + j, half);
                if (two) g += get(second, start + at + j, half);
                sum[j] += g * get(x, start + at + j, half);
                put(out, start + at + j, g * gates[j], half);
            }
        }
        for (long c = 0; c < channels; c++) {
            float whole = 0;
            for (long j = c; j < length; j += channels) whole += sum[j];
            put(job->masked, image * channels + c, whole, half);
        }
    }
}

#define BOTH(name, call_single, call_half)                                                               \
    static void name##_any(struct job *job, long from, long to, int thread)                              \
    {                                                                                                    \
        (void)thread;                                                                                    \
        if (job->half) call_half;                                                                        \
        else call_single;                                                                                \
    }
BOTH(mean, mean(job, from, to, thread, 0), mean(job, from, to, thread, 1))
BOTH(spread, spread(job, from, to, 0), spread(job, from, to, 1))
BOTH(gate, gate(job, from, to, thread, 0), gate(job, from, to, thread, 1))
BOTH(gate_back_one, gate_back(job, from, to, thread, 0, 0), gate_back(job, from, to, thread, 1, 0))
BOTH(gate_back_two, gate_back(job, from, to, thread, 0, 1), gate_back(job, from, to, thread, 1, 1))

static int by_image(struct job *job, void (*work)(struct job *, long, long, int), long images, long area,
                    long channels, int half, int threads)
{
    void *memory = prepare(job, images * area, channels, threads);
    if (!memory) return 1;
    job->blocks = images, job->area = area, job->half = half;
    run(job, work, images * area * channels, threads);
    free(memory);
    return 0;
}

int mean_forward(const void *x, void *out, long images, long area, long channels, int half, int threads)
{
    struct job job = {.x = x, .out = out};
    return by_image(&job, mean_any, images, area, channels, half, threads);
}

int mean_backward(const void *x, void *out, long images, long area, long channels, int half, int threads)
{
    struct job job = {.x = x, .out = out};
    return by_image(&job, spread_any, images, area, channels, half, threads);
}

int gate_forward(const void *x, const void *z, void *out, long images, long area, long channels, int half,
                 int threads)
{
    struct job job = {.x = x, .z = z, .out = out};
    return by_image(&job, gate_any, images, area, channels, half, threads);
}

int gate_backward(const void *first, const void *second, const void *x, const void *z, void *to_x, void *to_z,
                  long images, long area, long channels, int half, int threads)
{
    struct job job = {.x = x, .z = z, .first = first, .second = second, .out = to_x, .masked = to_z};
    return by_image(&job, second ? gate_back_two_any : gate_back_one_any, images, area, channels, half, threads);
}

/* Each stride-th pixel of images (height, width), or back with zeros between; `size` bytes a pixel. */
struct pixels { const char *from; char *to; long height, width, down, right; size_t size; int back; };

static void take(struct job *job, long from, long to, int thread)
{
    (void)thread;
    const struct pixels *p = job->x;
    const long rows = (p->height + p->down - 1) / p->down, columns = (p->width + p->right - 1) / p->right;
    for (long image = from; image < to; image++) {
        const size_t many = (size_t)(image * rows * columns), all = (size_t)(image * p->height * p->width);
        if (p->back) memset(p->to + all * p->size, 0, (size_t)(p->height * p->width) * p->size);
        for (long row = 0; row < rows; row++)
            for (long column = 0; column < columns; column++) {
                size_t few = (many + (size_t)(row * columns + column)) * p->size;
                size_t wide = (all + (size_t)(row * p->down * p->width + column * p->right)) * p->size;
                if (p->back) memcpy(p->to + wide, p->from + few, p->size);
                else memcpy(p->to + few, p->from + wide, p->size);
            }
    }
}

int pixels(const void *from, void *to, long images, long height, long width, long down, long right, long size,
           int back, int threads)
{
    struct pixels pixels = {from, to, height, width, down, right, (size_t)size, back};
    struct job job = {.x = &pixels, .blocks = images};
    run(&job, take, images * height * width * size / 4, threads);
    return 0;
}
