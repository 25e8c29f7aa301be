/* A libnvidia-ml.so.1 without a GPU: it answers from a scenario file, named by stub_scenario() or NVML_STUB_SCENARIO.
 *
 * A line is `driver KEY VALUES...` or `gpu N KEY VALUES...`. A function whose key is absent is not supported.
 * KEY `fail:FUNCTION` makes that function return the code; `hang:FUNCTION` makes it wait so many milliseconds,
 * or until the file changes. `lost CODE` makes all functions of that GPU return the code. MIG instances are GPUs
 * with a number of 100 and more and a `parent`. The file is read again whenever it has changed. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#ifndef VERSION
#define VERSION ""
#endif

typedef unsigned long long u64;
typedef struct { int device; char key[64]; int count; u64 values[6]; char text[96]; } Entry;

enum { SUCCESS = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, MISMATCH = 18 };
enum { MOST = 4096, DRIVER = -1 };

static Entry entries[MOST];
static int entry_count, troubled, initialised, events_given;
static char scenario[512];
static struct timespec loaded;
static long init_calls, shutdown_calls, pcie_calls;

static void load(void) {
    char line[512];
    FILE *file = fopen(scenario, "r");
    entry_count = 0;
    troubled = 0;
    events_given = 0;
    while (file && fgets(line, sizeof line, file) && entry_count < MOST) {
        Entry *entry = &entries[entry_count];
        int used = 0;
        memset(entry, 0, sizeof *entry);
        if (sscanf(line, "gpu %d %63s %n", &entry->device, entry->key, &used) < 2) {
            entry->device = DRIVER;
            if (sscanf(line, "driver %63s %n", entry->key, &used) < 1) continue;
        }
        char *rest = line + used, *end = rest;
        rest[strcspn(rest, "\n")] = 0;
        snprintf(entry->text, sizeof entry->text, "%s", rest);
        while (entry->count < 6) {
            u64 value = strtoull(rest, &end, 0);
            if (end == rest) break;
            entry->values[entry->count++] = value;
            rest = end;
        }
        troubled |= strchr(entry->key, ':') || !strcmp(entry->key, "lost");
        entry_count++;
    }
    if (file) fclose(file);
}

static void refresh(void) {
    struct stat state;
    if (!scenario[0] && getenv("NVML_STUB_SCENARIO")) snprintf(scenario, sizeof scenario, "%s", getenv("NVML_STUB_SCENARIO"));
    if (stat(scenario, &state)) return;
    if (state.st_mtim.tv_sec == loaded.tv_sec && state.st_mtim.tv_nsec == loaded.tv_nsec) return;
    loaded = state.st_mtim;
    load();
}

static Entry *find_nth(int device, const char *key, int nth) {
    for (int i = 0; i < entry_count; i++)
        if (entries[i].device == device && !strcmp(entries[i].key, key) && nth-- == 0) return &entries[i];
    return NULL;
}

static Entry *find(int device, const char *key) { return find_nth(device, key, 0); }

static int how_many(int device, const char *key) {
    int count = 0;
    while (find_nth(device, key, count)) count++;
    return count;
}

static void hang(int device, const char *key) {
    struct timespec pause = {0, 5000000};
    Entry *entry = find(device, key);
    for (u64 waited = 0; entry && waited < entry->values[0]; waited += 5) {
        nanosleep(&pause, NULL);
        refresh();
        entry = find(device, key);
    }
}

/* What every call goes through: 0, or the code to return. */
static int enter(int device, const char *function) {
    char key[96];
    Entry *entry;
    refresh();
    if (!initialised) return UNINITIALIZED;
    if (!troubled) return SUCCESS;
    snprintf(key, sizeof key, "hang:%s", function);
    hang(device, key);
    snprintf(key, sizeof key, "fail:%s", function);
    if ((entry = find(DRIVER, key)) || (entry = find(device, key)) || (entry = find(device, "lost"))) return entry->values[0];
    return SUCCESS;
}

#define HANDLE(device) ((void *)(long)((device) + 1))
#define DEVICE(handle) ((int)(long)(handle) - 1)
#define ENTER(device) do { int code_ = enter(device, __func__); if (code_) return code_; } while (0)

static int number(int device, const char *key, int which, unsigned *out) {
    Entry *entry = find(device, key);
    if (!entry || entry->count <= which) return NOT_SUPPORTED;
    *out = (unsigned)entry->values[which];
    return SUCCESS;
}

static int number64(int device, const char *key, int which, u64 *out) {
    Entry *entry = find(device, key);
    if (!entry || entry->count <= which) return NOT_SUPPORTED;
    *out = entry->values[which];
    return SUCCESS;
}

static int text(int device, const char *key, char *out, unsigned size) {
    Entry *entry = find(device, key);
    if (!entry) return NOT_SUPPORTED;
    snprintf(out, size, "%s", entry->text);
    return SUCCESS;
}

/* For tests: NVML_STUB_MARK names a file that is made as soon as the library is loaded. */
__attribute__((constructor)) static void mark(void) {
    FILE *file = getenv("NVML_STUB_MARK") ? fopen(getenv("NVML_STUB_MARK"), "w") : NULL;
    if (file) fclose(file);
}
void stub_scenario(const char *path) { snprintf(scenario, sizeof scenario, "%s", path); loaded.tv_sec = 0; initialised = 0; init_calls = shutdown_calls = pcie_calls = 0; refresh(); }
long stub_calls(int which) { return which == 0 ? init_calls : which == 1 ? shutdown_calls : pcie_calls; }

int nvmlInitWithFlags(unsigned flags) {
    Entry *entry;
    refresh();
    init_calls++;
    hang(DRIVER, "hang:nvmlInitWithFlags");
    if ((entry = find(DRIVER, "init"))) return entry->values[0];
    if (VERSION[0] && (entry = find(DRIVER, "version")) && strcmp(entry->text, VERSION)) return MISMATCH;
    /* without NVML_INIT_FLAG_NO_GPUS a driver without GPUs is an error */
    if (!(flags & 1) && !find(0, "uuid")) return NOT_FOUND;
    initialised = 1;
    return SUCCESS;
}
int nvmlShutdown(void) { shutdown_calls++; initialised = 0; return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stub"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(DRIVER); return text(DRIVER, "version", out, size); }

int nvmlDeviceGetCount_v2(unsigned *out) {
    ENTER(DRIVER);
    for (*out = 0; find(*out, "uuid"); ++*out) {}
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    ENTER((int)index);
    *out = HANDLE((int)index);
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) { ENTER(DEVICE(handle)); return text(DEVICE(handle), "uuid", out, size); }
int nvmlDeviceGetName(void *handle, char *out, unsigned size) { ENTER(DEVICE(handle)); return text(DEVICE(handle), "name", out, size); }
int nvmlDeviceGetVbiosVersion(void *handle, char *out, unsigned size) { ENTER(DEVICE(handle)); return text(DEVICE(handle), "vbios", out, size); }
int nvmlDeviceGetArchitecture(void *handle, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "architecture", 0, out); }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(void *handle, Pci *out) { ENTER(DEVICE(handle)); return text(DEVICE(handle), "bus", out->address, sizeof out->address); }

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(void *handle, Utilization *out) {
    ENTER(DEVICE(handle));
    number(DEVICE(handle), "util", 1, &out->memory);
    return number(DEVICE(handle), "util", 0, &out->gpu);
}

/* memory TOTAL RESERVED USED */
typedef struct { u64 total, free, used; } Memory1;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo(void *handle, Memory1 *out) {
    ENTER(DEVICE(handle));
    number64(DEVICE(handle), "memory", 0, &out->total);
    return number64(DEVICE(handle), "memory", 2, &out->used);
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *out) {
    ENTER(DEVICE(handle));
    number64(DEVICE(handle), "memory", 0, &out->total);
    number64(DEVICE(handle), "memory", 1, &out->reserved);
    return number64(DEVICE(handle), "memory", 2, &out->used);
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "power", 0, out); }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "limit", 0, out); }
int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *least, unsigned *most) {
    ENTER(DEVICE(handle));
    number(DEVICE(handle), "limits", 0, least);
    return number(DEVICE(handle), "limits", 1, most);
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, u64 *out) { ENTER(DEVICE(handle)); return number64(DEVICE(handle), "energy", 0, out); }
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "temperature", sensor, out); }
int nvmlDeviceGetFanSpeed(void *handle, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "fan", 0, out); }
int nvmlDeviceGetPerformanceState(void *handle, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "state", 0, out); }
int nvmlDeviceGetComputeMode(void *handle, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "mode", 0, out); }
/* clocks GRAPHICS SM MEMORY */
int nvmlDeviceGetClockInfo(void *handle, unsigned kind, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "clocks", kind, out); }
int nvmlDeviceGetMaxClockInfo(void *handle, unsigned kind, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "maxclocks", kind, out); }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *out) { ENTER(DEVICE(handle)); return number64(DEVICE(handle), "reasons", 0, out); }
/* ecc CORRECTED UNCORRECTED */
int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, u64 *out) { (void)counter; ENTER(DEVICE(handle)); return number64(DEVICE(handle), "ecc", kind, out); }
int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(DEVICE(handle));
    *pending = *failed = 0;
    number(DEVICE(handle), "remapped", 1, uncorrected);
    return number(DEVICE(handle), "remapped", 0, corrected);
}
/* pcie SENT RECEIVED */
int nvmlDeviceGetPcieThroughput(void *handle, unsigned which, unsigned *out) { pcie_calls++; ENTER(DEVICE(handle)); return number(DEVICE(handle), "pcie", which, out); }

/* compute|graphics|mps PID MEMORY */
typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } Process;
static int processes(int device, const char *key, unsigned *count, Process *out) {
    unsigned there = how_many(device, key), room = *count;
    *count = there;
    if (there > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++) {
        Entry *entry = find_nth(device, key, i);
        out[i] = (Process){(unsigned)entry->values[0], entry->count > 1 ? entry->values[1] : ~0ull, ~0u, ~0u};
    }
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) { ENTER(DEVICE(handle)); return processes(DEVICE(handle), "compute", count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, Process *out) { ENTER(DEVICE(handle)); return processes(DEVICE(handle), "graphics", count, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) { ENTER(DEVICE(handle)); return processes(DEVICE(handle), "mps", count, out); }

/* sample PID TIMESTAMP SM MEMORY; like the driver, it hands out old ones too */
typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } Sample;
int nvmlDeviceGetProcessUtilization(void *handle, Sample *out, unsigned *count, u64 since) {
    int device = DEVICE(handle);
    unsigned there = how_many(device, "sample"), room = *count;
    (void)since;
    ENTER(device);
    *count = there;
    if (!there) return SUCCESS;
    if (!out || there > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++) {
        Entry *entry = find_nth(device, "sample", i);
        out[i] = (Sample){(unsigned)entry->values[0], entry->values[1], (unsigned)entry->values[2], (unsigned)entry->values[3], 0, 0};
    }
    return SUCCESS;
}

/* mig MODE MOST; the instances are GPUs 100 + 10 * N and on */
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    ENTER(DEVICE(handle));
    *pending = 0;
    return number(DEVICE(handle), "mig", 0, current);
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out) { ENTER(DEVICE(handle)); return number(DEVICE(handle), "mig", 1, out); }
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out) {
    int instance = 100 + 10 * DEVICE(handle) + (int)index;
    ENTER(DEVICE(handle));
    if (!find(instance, "uuid")) return NOT_FOUND;
    *out = HANDLE(instance);
    return SUCCESS;
}

/* xid CODE */
typedef struct { void *device; u64 type, data; unsigned gpu_instance, compute_instance; } Event;
int nvmlEventSetCreate(void **out) { ENTER(DRIVER); *out = HANDLE(9999); return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(void *handle, u64 types, void *set) { (void)types; (void)set; ENTER(DEVICE(handle)); return SUCCESS; }
int nvmlEventSetWait_v2(void *set, Event *out, unsigned timeout) {
    int passed = 0;
    (void)set;
    (void)timeout;
    ENTER(DRIVER);
    for (int i = 0; i < entry_count; i++) {
        if (strcmp(entries[i].key, "xid") || passed++ < events_given) continue;
        events_given++;
        *out = (Event){HANDLE(entries[i].device), 8, entries[i].values[0], ~0u, ~0u};
        return SUCCESS;
    }
    return TIMEOUT;
}
