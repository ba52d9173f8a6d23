// What runs while XLA computes. There is no Python in it, so no signal handler can raise in the middle of a call.
//
// fphys/bridge/driver.py reads this file as the body of one Warp function, which Warp compiles for the processor. A
// function's body cannot hold functions, so there are static lambdas instead: they capture nothing, and XLA and threads
// call them by address.

typedef unsigned long long word;
typedef long long integer;
typedef int status;  // Warp has a macro int()

// XLA's C interface, version 0.3 (xla/ffi/api/c_api.h): as much of it as is used here. --------------------------------

struct Metadata {
    word size;
    struct { word size; void* extension; int major, minor; } version;
    unsigned traits;
    integer state;  // the type of the state
};
struct Extension { word size; int type; void* next; Metadata* metadata; };
struct Scalar { int dtype; integer* value; };
struct Buffer { word size; void* extension; int dtype; char* data; };
struct Frame {
    word size;
    Extension* extension;
    void** api;
    void* context;
    int stage;
    struct { word size; void* extension; integer count; int* types; Buffer** items; } arguments, results;
    struct { word size; void* extension; integer count; int* types; void** names; Scalar** items; } attributes;
};
struct ErrorArguments { word size; void* extension; const char* message; int code; };
struct StateArguments { word size; void* extension; void* context; int stage; integer* type; void* state; };
struct StreamArguments { word size; void* extension; void* context; void* stream; };
struct DeviceArguments { word size; void* extension; void* context; int ordinal; };
enum { ERROR_CREATE = 6, STREAM_GET = 10, STATE_SET = 13, STATE_GET = 14, DEVICE_GET = 23 };  // words of its table
enum { ABORTED = 10, INTERNAL = 13 };                                                        // codes of errors
typedef void* (*Service)(void* arguments);                   // returns an error, or null

// What is shared with Python: the structures of driver.py. ------------------------------------------------------------

// A program: what one block of worlds needs, as words. First the number of blocks, and where to add the processor's
// ticks of each call, or 0. Then four lists, each after its length:
//   patches: field address, place
//   clears:  place, bytes
//   copies:  to place, from place, bytes
//   calls:   function, bounds, arguments, adjoint arguments or 0
// A place is a buffer's number (arguments first, then results), a byte offset, and the bytes to the next block's.
// A job is the number of its programs and their addresses.
// A GPU's program has one block: its CUDA context, the same first three lists, and
//   launches: kernel, threads, whether they stride, blocks of a cluster, bytes they share, addresses of the arguments
struct Queue { word begun, jobs; const word* job[1]; };  // as many jobs as it says
struct Call { Queue* queue; Buffer **arguments; word num_arguments; Buffer** results; };
struct Mailbox { word state; Call call; char semaphore[64]; };
struct Team { word busy, size; Mailbox** members; };
enum { MOST_GPUS = 64 };
struct Plan {
    word references, busy;  // executables that hold it; whether a call uses what is packed
    Queue* queue;
    word helpers;
    integer number;
    const word* gpus[MOST_GPUS];  // its program for each GPU, once it is packed
};
struct Slot { integer number; Plan* plan; };
struct Bridge {
    // Out:
    void *instantiate, *execute, *instantiate_cuda, *initialize_cuda, *execute_cuda, *destroy;
    void *run, *serve, *post, *recall, *ticks, *enter, *leave;
    // In and out:
    integer type, type_cuda;  // XLA's numbers, one a platform, for the type of an executable's state, a Plan
    Slot* slots;
    word num_slots;
    Team team;
    word patience;       // looks at a mailbox before a thread goes to sleep
    word running;        // calls in flight
    const char* closed;  // why no call may run any more
    integer reader, writer;  // the ends of a pipe, to which Python writes the signals that arrive
    integer previous;        // the file to which it wrote them before, or -1
    void *set_wakeup_fd, *ours, *before;  // Python's function, and as its arguments the writer and that file
    void* find_lost;         // Python's function that raises an interrupt which the program itself has lost
    word interruptible;      // contexts in which an interrupt ends programs, one in another
    word checked;            // when the pipe was last looked at [s / 20]
    word abandoned;          // whether the programs that run now shall end
    word ended;              // whether one did
    const char *unknown, *interrupted, *failure;
    // Functions of Python, of Warp and of the C library:
    void (*prepare)(integer number);
    void (*prepare_gpu)(integer number, integer ordinal);
    void (*explain)(integer number, integer ordinal, integer launch);  // why it failed; launch -1: memory
    word (*launch)(void* context, void* kernel, word threads, int most_blocks, int block, int strides, int cluster,
                   int shared, void** arguments, void* stream, void* recorder);
    bool (*clear)(void* context, void* to, int value, word size, void* stream);
    bool (*copy)(void* context, void* to, void* from, word size, void* stream);
    status (*check_signals)();
    void* (*call)(void* function, void* argument, void* end);
    void (*release)(void*);
    integer (*number)(void*);
    status (*wait)(void* semaphore), (*wake)(void* semaphore), (*clock)(status, word*), (*sleep)(const word*, word*);
    integer (*read)(status, void*, word), (*write)(status, const void*, word);
};

static Bridge* bridge;
bridge = (Bridge*)address;

// Locks and mailboxes. ------------------------------------------------------------------------------------------------

enum : word { ASLEEP, IDLE, POSTED, BUSY };

static auto load = [](const word* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); };
static auto store = [](word* at, word value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); };
static auto change = [](word* at, word from, word to) {
    return __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
};
// Whether `at` comes to hold `value`, or to hold something else, within the bridge's patience.
static auto watch = [](const word* at, word value, bool until) {
    for (word looks = bridge->patience; (load(at) == value) != until && looks > 0; --looks) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return (load(at) == value) == until;
};
static auto wait_while = [](const word* at, word value) {
    const word nap[2] = {0, 50000};  // nanoseconds
    for (bool over = watch(at, value, false); !over; over = load(at) != value) bridge->sleep(nap, nullptr);
};
static auto lock = [](word* at) {
    while (!change(at, 0, 1)) wait_while(at, 1);
};

// Doing a call's jobs, alone or with a team. --------------------------------------------------------------------------

static auto locate = [](const Call& call, const word* place, word block) {
    const word i = place[0], n = call.num_arguments;
    return (i < n ? call.arguments[i] : call.results[i - n])->data + place[1] + block * place[2];
};
static auto do_job = [](const word* job, const Call& call) {
    typedef void (*Forward)(void*, void*);
    typedef void (*Backward)(void*, void*, void*);
    for (word programs = *job++; programs > 0; --programs) {
        const word* start = (const word*)*job++;
        const word blocks = *start++;
        word* const ticks = (word*)*start++;
        for (word block = 0; block < blocks; ++block) {
            const word* p = start;
            auto at = [&](const word* place) { return locate(call, place, block); };
            for (word n = *p++; n > 0; --n, p += 4) *(char**)p[0] = at(p + 1);
            for (word n = *p++; n > 0; --n, p += 4) __builtin_memset(at(p), 0, p[3]);
            for (word n = *p++; n > 0; --n, p += 7) __builtin_memcpy(at(p), at(p + 3), p[6]);
            word* tick = ticks;
            for (word n = *p++; n > 0; --n, p += 4) {
                if (tick) *tick -= __builtin_readcyclecounter();
                if (p[3]) ((Backward)p[0])((void*)p[1], (void*)p[2], (void*)p[3]);
                else ((Forward)p[0])((void*)p[1], (void*)p[2]);
                if (tick) *tick++ += __builtin_readcyclecounter();
            }
        }
    }
};
// Do the jobs that nobody has begun.
static auto work = [](const Call& call) {
    for (word i; (i = __atomic_fetch_add(&call.queue->begun, 1, __ATOMIC_RELAXED)) < call.queue->jobs;)
        do_job(call.queue->job[i], call);
};
// A team's thread. To be woken takes longer than a small job, so it watches its mailbox for a while before it sleeps.
static auto serve = [](Mailbox* box) {
    for (;;) {
        while (bridge->wait(box->semaphore) != 0) {}
        do {
            while (watch(&box->state, POSTED, true))
                if (change(&box->state, POSTED, BUSY)) {
                    work(box->call);
                    store(&box->state, IDLE);
                }
        } while (!change(&box->state, IDLE, ASLEEP));
    }
};
static auto post = [](Mailbox* box, const Call* call) {
    box->call = *call;
    if (__atomic_exchange_n(&box->state, POSTED, __ATOMIC_ACQ_REL) == ASLEEP) bridge->wake(box->semaphore);
};
// Take a call back that nobody came for, otherwise wait until it is done.
static auto recall = [](Mailbox* box) {
    if (!change(&box->state, POSTED, IDLE)) wait_while(&box->state, BUSY);
};
// All jobs of a call, with a team's help. While the team helps another caller, this one does all of its jobs itself.
static auto run = [](Team* team, word helpers, const Call* call) {
    call->queue->begun = 0;
    if (helpers == 0 || !change(&team->busy, 0, 1)) return work(*call);
    helpers = helpers < team->size ? helpers : team->size;
    for (word i = 0; i < helpers; ++i) post(team->members[i], call);
    work(*call);
    for (word i = 0; i < helpers; ++i) recall(team->members[i]);
    store(&team->busy, 0);
};

// What XLA calls. -----------------------------------------------------------------------------------------------------

static auto error = [](Frame* frame, const char* message, int code) {
    ErrorArguments arguments = {sizeof(ErrorArguments), nullptr, message, code};
    return ((Service)frame->api[ERROR_CREATE])(&arguments);
};
static auto describe = [](Frame* frame, unsigned traits) -> void* {
    Metadata* metadata = frame->extension->metadata;
    metadata->version.major = 0, metadata->version.minor = 3, metadata->traits = traits;
    return nullptr;
};
// The state of an executable is the plan that its attribute names. Python frees no plan that an executable holds.
static auto hold = [](Frame* frame, integer* type, Plan* plan) -> void* {
    __atomic_fetch_add(&plan->references, 1, __ATOMIC_ACQ_REL);
    StateArguments set = {sizeof(StateArguments), nullptr, frame->context, frame->stage, type, plan};
    return ((Service)frame->api[STATE_SET])(&set);
};
static auto named = [](Frame* frame) -> Plan* {
    const integer number = *frame->attributes.items[0]->value;
    for (word i = 0; i < bridge->num_slots; ++i)
        if (bridge->slots[i].number == number) return bridge->slots[i].plan;
    return nullptr;
};
static auto instantiate = [](Frame* frame) -> void* {
    if (frame->extension) return describe(frame, 0);
    Plan* plan = named(frame);
    if (!plan) return error(frame, bridge->unknown, INTERNAL);
    if (!plan->queue) bridge->prepare(plan->number);
    if (!plan->queue) return error(frame, bridge->failure, INTERNAL);
    return hold(frame, &bridge->type, plan);
};
static auto destroy = [](void* plan) { __atomic_fetch_sub(&((Plan*)plan)->references, 1, __ATOMIC_ACQ_REL); };

// Read the signals that have arrived, and pass them on to the file that Python wrote them to before.
static auto read_signals = []() {
    enum { INTERRUPT = 2 };
    char signals[4096];
    for (integer count; (count = bridge->read(bridge->reader, signals, sizeof(signals))) > 0;) {
        for (integer i = 0; i < count; ++i)
            if (signals[i] == INTERRUPT) bridge->abandoned = 1;
        if (bridge->previous >= 0) bridge->write(bridge->previous, signals, count);
    }
};
// Whether an interrupt shall end the running programs. It is looked for twenty times a second.
static auto interrupted = []() -> bool {
    enum { MONOTONIC = 1 };
    if (!bridge->interruptible || bridge->abandoned) return bridge->abandoned;
    word time[2];
    bridge->clock(MONOTONIC, time);
    const word now = time[0] * 20 + time[1] / 50000000;
    if (now != bridge->checked) {
        bridge->checked = now;
        read_signals();
    }
    return bridge->abandoned;
};
// The two ends of the context `interruptible`. Python code there could be interrupted itself.
static auto enter = [](void*) -> status {
    if (bridge->interruptible) return ++bridge->interruptible, 0;
    bridge->before = bridge->call(bridge->set_wakeup_fd, bridge->ours, nullptr);
    if (!bridge->before) return 0;  // ctypes raises what Python has set
    bridge->previous = bridge->number(bridge->before);
    bridge->ended = 0;
    bridge->interruptible = 1;
    return 0;
};
static auto leave = [](void*, void*, void* exception, void*) -> status {
    if (!bridge->interruptible || --bridge->interruptible) return 0;
    bridge->release(bridge->call(bridge->set_wakeup_fd, bridge->before, nullptr));
    bridge->release(bridge->before);
    read_signals();
    bridge->abandoned = 0;
    // What these two raise, ctypes passes on.
    if (bridge->check_signals() == 0 && bridge->ended)
        bridge->release(bridge->call(bridge->find_lost, exception, nullptr));
    return 0;
};
static auto execute = [](Frame* frame) -> void* {
    if (frame->extension) return describe(frame, 0);
    StateArguments get = {sizeof(StateArguments), nullptr, frame->context, 0, &bridge->type, nullptr};
    if (void* failed = ((Service)frame->api[STATE_GET])(&get)) return failed;
    Plan* plan = (Plan*)get.state;
    void* result = nullptr;
    __atomic_fetch_add(&bridge->running, 1, __ATOMIC_ACQ_REL);
    if (bridge->closed) {
        result = error(frame, bridge->closed, INTERNAL);
    } else if (interrupted()) {
        bridge->ended = 1;
        result = error(frame, bridge->interrupted, ABORTED);
    } else {
        const Call call = {plan->queue, frame->arguments.items, (word)frame->arguments.count, frame->results.items};
        lock(&plan->busy);
        run(&bridge->team, plan->helpers, &call);
        store(&plan->busy, 0);
    }
    __atomic_fetch_sub(&bridge->running, 1, __ATOMIC_ACQ_REL);
    return result;
};
// On a GPU. XLA makes an executable for no particular one. Before each run of a program it initialises its calls, and
// there a plan is packed for the GPU: compiling, loading and allocating are not allowed while XLA captures a graph.
static auto instantiate_cuda = [](Frame* frame) -> void* {
    if (frame->extension) return describe(frame, 0);
    Plan* plan = named(frame);
    return plan ? hold(frame, &bridge->type_cuda, plan) : error(frame, bridge->unknown, INTERNAL);
};
struct Work { Plan* plan; const word* program; integer ordinal; };
static auto find_work = [](Frame* frame, Work* work) -> void* {
    StateArguments get = {sizeof(StateArguments), nullptr, frame->context, 0, &bridge->type_cuda, nullptr};
    if (void* failed = ((Service)frame->api[STATE_GET])(&get)) return failed;
    DeviceArguments device = {sizeof(DeviceArguments), nullptr, frame->context, 0};
    if (void* failed = ((Service)frame->api[DEVICE_GET])(&device)) return failed;
    Plan* plan = (Plan*)get.state;
    if (device.ordinal < 0 || device.ordinal >= MOST_GPUS)
        return error(frame, "fphys.BridgeError: it runs on the first 64 GPUs of a process only", INTERNAL);
    const word** packed = &plan->gpus[device.ordinal];
    if (!__atomic_load_n(packed, __ATOMIC_ACQUIRE)) bridge->prepare_gpu(plan->number, device.ordinal);
    *work = {plan, __atomic_load_n(packed, __ATOMIC_ACQUIRE), device.ordinal};
    return work->program ? nullptr : error(frame, bridge->failure, INTERNAL);
};
static auto initialize_cuda = [](Frame* frame) -> void* {
    if (frame->extension) return describe(frame, 0);
    Work work;
    return bridge->closed ? nullptr : find_work(frame, &work);
};
// Everything goes to XLA's stream and nothing waits, so XLA may capture it. CUDA copies arguments as it is given them.
// Returns which launch failed, -1 for clearing or copying memory, -2 if none did.
static auto launch_all = [](const word* p, const Call& call, void* stream) -> integer {
    enum { BLOCK = 256 };  // threads; kernels are compiled for it
    void* const context = (void*)*p++;
    auto at = [&](const word* place) { return locate(call, place, 0); };
    for (word n = *p++; n > 0; --n, p += 4) *(char**)p[0] = at(p + 1);
    for (word n = *p++; n > 0; --n, p += 4)
        if (!bridge->clear(context, at(p), 0, p[3], stream)) return -1;
    for (word n = *p++; n > 0; --n, p += 7)
        if (!bridge->copy(context, at(p), at(p + 3), p[6], stream)) return -1;
    const word launches = *p++;
    for (word i = 0; i < launches; ++i, p += 6)
        if (bridge->launch(context, (void*)p[0], p[1], 0, BLOCK, p[2], p[3], p[4], (void**)p[5], stream, nullptr))
            return i;
    return -2;
};
static auto execute_cuda = [](Frame* frame) -> void* {
    if (frame->extension) return describe(frame, 1);  // XLA may capture it in a graph
    void* result = nullptr;
    __atomic_fetch_add(&bridge->running, 1, __ATOMIC_ACQ_REL);
    Work work;
    StreamArguments get = {sizeof(StreamArguments), nullptr, frame->context, nullptr};
    if (bridge->closed) {
        result = error(frame, bridge->closed, INTERNAL);
    } else if (interrupted()) {
        bridge->ended = 1;
        result = error(frame, bridge->interrupted, ABORTED);
    } else if (!(result = find_work(frame, &work)) && !(result = ((Service)frame->api[STREAM_GET])(&get))) {
        const Call call = {nullptr, frame->arguments.items, (word)frame->arguments.count, frame->results.items};
        lock(&work.plan->busy);
        const integer failed = launch_all(work.program, call, get.stream);
        store(&work.plan->busy, 0);
        if (failed != -2) {
            bridge->explain(work.plan->number, work.ordinal, failed);
            result = error(frame, bridge->failure, INTERNAL);
        }
    }
    __atomic_fetch_sub(&bridge->running, 1, __ATOMIC_ACQ_REL);
    return result;
};
static auto ticks = [](word* now) { *now = __builtin_readcyclecounter(); };

bridge->instantiate = (void*)(void* (*)(Frame*))instantiate;
bridge->execute = (void*)(void* (*)(Frame*))execute;
bridge->instantiate_cuda = (void*)(void* (*)(Frame*))instantiate_cuda;
bridge->initialize_cuda = (void*)(void* (*)(Frame*))initialize_cuda;
bridge->execute_cuda = (void*)(void* (*)(Frame*))execute_cuda;
bridge->destroy = (void*)(void (*)(void*))destroy;
bridge->run = (void*)(void (*)(Team*, word, const Call*))run;
bridge->serve = (void*)(void (*)(Mailbox*))serve;
bridge->post = (void*)(void (*)(Mailbox*, const Call*))post;
bridge->recall = (void*)(void (*)(Mailbox*))recall;
bridge->ticks = (void*)(void (*)(word*))ticks;
bridge->enter = (void*)(status (*)(void*))enter;
bridge->leave = (void*)(status (*)(void*, void*, void*, void*))leave;
