/* The small files that a report names, as they are before the tool runs.
 *
 * The agent starts its tool as soon as the hook returns, and the report may be recorded later: the
 * daemon may be starting, or take a large project's baseline. So the content that a tool is about to
 * replace is read here, and appended to the report: src/substrate/coding_agents/files_before.py has the
 * format. Only what can be read in a moment; the rest is recorded as it is when the report is served.
 */
#include <fnmatch.h>

#define MOST_FILES 64
#define MOST_FILE_BYTES (1u << 20)
#define MOST_BYTES_BEFORE (4u << 20)
#define MOST_VALUES 64
#define DEEPEST_DIRECTORY 4

struct piece {
    const char *text; /* inside the quotes, with JSON's escapes */
    size_t size;
};

static struct {
    int report;
    int count;
    size_t bytes;
    char *names[MOST_FILES];
    char *cwd;
} before;

static int is_piece(struct piece piece, const char *text) {
    return piece.size == strlen(text) && memcmp(piece.text, text, piece.size) == 0;
}

static long hex(const char *digits, size_t left) {
    char number[5] = "", *end;
    if (left < 4) return -1;
    memcpy(number, digits, 4);
    long value = strtol(number, &end, 16);
    return end == number + 4 ? value : -1;
}

static char *as_utf8(char *out, long code) {
    if (code < 0x80) *out++ = (char)code;
    else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* A string of JSON as text; NULL if it cannot be a file's name or a command. */
static char *decoded(struct piece piece) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char *text = malloc(piece.size + 1), *out = text;
    const char *at = piece.text, *end = at + piece.size;
    if (text == NULL) return NULL;
    while (at < end) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        if (++at == end) goto wrong;
        const char *found = strchr(escapes, *at);
        if (found != NULL && *at != '\0') {
            *out++ = meant[found - escapes];
            at++;
            continue;
        }
        long code = *at == 'u' ? hex(at + 1, (size_t)(end - at - 1)) : -1;
        if (code <= 0 || (code >= 0xdc00 && code < 0xe000)) goto wrong;
        at += 5;
        if (code >= 0xd800 && code < 0xdc00) {
            long low = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex(at + 2, 4) : -1;
            if (low < 0xdc00 || low >= 0xe000) goto wrong;
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
        }
        out = as_utf8(out, code);
    }
    *out = '\0';
    return text;
wrong:
    free(text);
    return NULL;
}

static int put_all(const char *data, size_t size) {
    while (size > 0) {
        ssize_t put_now = write(before.report, data, size);
        if (put_now <= 0) return 0;
        data += put_now;
        size -= (size_t)put_now;
    }
    return 1;
}

static void put_record(const char *name, const char *mode, const char *data, size_t size) {
    char number[32];
    snprintf(number, sizeof number, "%zu", size);
    off_t start = lseek(before.report, 0, SEEK_CUR);
    int first = before.count == 0; /* the NUL that ends the report */
    if ((first && !put_all("", 1)) || !put_all(name, strlen(name) + 1) ||
        !put_all(mode, strlen(mode) + 1) || !put_all(number, strlen(number) + 1) ||
        !put_all(data, size)) {
        (void)!ftruncate(before.report, start);
        before.count = MOST_FILES;
        return;
    }
    before.names[before.count++] = strdup(name);
    before.bytes += size;
}

/* One file; `is_written`: the tool writes it, so that its absence is a fact worth keeping. */
static void keep_file(const char *name, int is_written) {
    static char data[MOST_FILE_BYTES + 1];
    char path[PATH_MAX], mode[16];
    struct stat found;
    if (before.count >= MOST_FILES || name[0] == '\0') return;
    for (int at = 0; at < before.count; at++)
        if (before.names[at] != NULL && strcmp(before.names[at], name) == 0) return;
    int length = name[0] == '/' ? snprintf(path, sizeof path, "%s", name)
                                : snprintf(path, sizeof path, "%s/%s", before.cwd, name);
    if (length < 0 || (size_t)length >= sizeof path) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == ENOENT && is_written) put_record(name, "-", "", 0);
        return;
    }
    size_t size = 0;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size <= MOST_FILE_BYTES) {
        ssize_t got;
        while (size < sizeof data && (got = read(fd, data + size, sizeof data - size)) > 0) size += (size_t)got;
        snprintf(mode, sizeof mode, "%o", (unsigned)found.st_mode & 07777);
        if (size <= MOST_FILE_BYTES && before.bytes + size <= MOST_BYTES_BEFORE) put_record(name, mode, data, size);
    }
    close(fd);
}

static void keep_word(const char *word, int takes_directories, int depth);

/* The entries of a directory that match a pattern of the shell. */
static void keep_matching(const char *directory, const char *pattern, int takes_directories, int depth) {
    static const char *const never[] = {".", "..", ".git", ".substrate-git", "node_modules", NULL};
    char path[PATH_MAX];
    int length = directory[0] == '/' ? snprintf(path, sizeof path, "%s", directory)
                                     : snprintf(path, sizeof path, "%s/%s", before.cwd, directory);
    if (length < 0 || (size_t)length >= sizeof path || depth > DEEPEST_DIRECTORY) return;
    DIR *open_one = opendir(path);
    if (open_one == NULL) return;
    for (struct dirent *entry; before.count < MOST_FILES && (entry = readdir(open_one)) != NULL;) {
        if (is_one_of(entry->d_name, never) || fnmatch(pattern, entry->d_name, FNM_PERIOD) != 0) continue;
        length = directory[0] == '\0' ? snprintf(path, sizeof path, "%s", entry->d_name)
                                      : snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (length > 0 && (size_t)length < sizeof path) keep_word(path, takes_directories, depth + 1);
    }
    closedir(open_one);
}

static void keep_word(const char *word, int takes_directories, int depth) {
    char path[PATH_MAX];
    struct stat found;
    int length = word[0] == '/' ? snprintf(path, sizeof path, "%s", word)
                                : snprintf(path, sizeof path, "%s/%s", before.cwd, word);
    if (length < 0 || (size_t)length >= sizeof path) return;
    if (lstat(path, &found) == 0) {
        if (S_ISREG(found.st_mode)) keep_file(word, 0);
        else if (S_ISDIR(found.st_mode) && takes_directories) keep_matching(word, "*", 1, depth);
        return;
    }
    char *copy = depth == 0 && strpbrk(word, "*?[") != NULL ? strdup(word) : NULL;
    if (copy == NULL) return;
    char *slash = strrchr(copy, '/');
    if (slash == NULL) keep_matching("", copy, takes_directories, 0);
    else if (slash != copy) {
        *slash = '\0';
        keep_matching(copy, slash + 1, takes_directories, 0);
    }
    free(copy);
}

/* The files that Codex's patch names: src/substrate/model/patch_format.py. */
static void keep_patched(char *patch) {
    static const char *const heads[] = {"*** Update File: ", "*** Delete File: ", "*** Add File: ", "*** Move to: "};
    for (char *line = patch, *next; line != NULL; line = next) {
        if ((next = strchr(line, '\n')) != NULL) *next++ = '\0';
        for (size_t at = 0; at < sizeof heads / sizeof *heads; at++) {
            size_t length = strlen(heads[at]);
            if (strncmp(line, heads[at], length) != 0) continue;
            char *name = line + length, *end = name + strlen(name);
            while (end > name && strchr(" \t\r", end[-1]) != NULL) *--end = '\0';
            while (*name == ' ' || *name == '\t') name++;
            keep_file(name, 1);
        }
    }
}

/* The files that a command's words name; those of a directory if it may be removed or moved. */
static void keep_named_in(char *command) {
    static const char between[] = " \t\r\n;&|<>()\"'`=";
    static const char *const removers[] = {"rm", "mv", "rmdir", "unlink", NULL};
    char *copy = strdup(command), *state = NULL;
    if (copy == NULL) return;
    int takes_directories = 0;
    for (char *word = strtok_r(copy, between, &state); word != NULL; word = strtok_r(NULL, between, &state))
        takes_directories |= is_one_of(word, removers);
    free(copy);
    for (char *word = strtok_r(command, between, &state); word != NULL; word = strtok_r(NULL, between, &state)) {
        size_t length = strlen(word);
        while (length > 1 && word[length - 1] == '/') word[--length] = '\0';
        if (word[0] != '-' && !(length == 1 && strchr("/.", word[0]) != NULL)) keep_word(word, takes_directories, 0);
    }
}

/* What a report says about the files of a tool that is about to run. */
struct wanted {
    int is_before;
    struct piece cwd;
    struct piece files[MOST_VALUES], texts[MOST_VALUES];
    int file_count, text_count;
};

static void take_value(struct wanted *out, int depth, const struct piece *keys, struct piece value) {
    if (depth == 1 && is_piece(keys[1], "hook_event_name"))
        out->is_before = is_piece(value, "PreToolUse") || is_piece(value, "BeforeTool");
    if (depth == 1 && is_piece(keys[1], "cwd")) out->cwd = value;
    if (depth < 2 || depth > 3 || !is_piece(keys[1], "tool_input")) return;
    if (depth == 2 && (is_piece(keys[2], "file_path") || is_piece(keys[2], "notebook_path"))) {
        if (out->file_count < MOST_VALUES) out->files[out->file_count++] = value;
    } else if (is_piece(keys[2], "command") || is_piece(keys[2], "cmd") || is_piece(keys[2], "input") ||
               is_piece(keys[2], "patch")) {
        if (out->text_count < MOST_VALUES) out->texts[out->text_count++] = value;
    }
}

/* Every string of the report with the keys above it. Whether it is valid JSON is found out later. */
static void read_report(struct wanted *out, const char *at, const char *end) {
    struct piece keys[4] = {{"", 0}, {"", 0}, {"", 0}, {"", 0}};
    for (int depth = 0; at < end; at++) {
        if (*at == '{' || *at == '[') depth++;
        else if (*at == '}' || *at == ']') depth--;
        if (*at != '"') continue;
        struct piece value = {at + 1, 0};
        for (at++; at < end && *at != '"'; at++)
            if (*at == '\\') at++;
        if (at >= end) return;
        value.size = (size_t)(at - value.text);
        const char *next = at + 1;
        while (next < end && strchr(" \t\r\n", *next) != NULL && *next != '\0') next++;
        if (next < end && *next == ':') {
            if (depth >= 0 && depth < 4) keys[depth] = value;
        } else {
            take_value(out, depth, keys, value);
        }
    }
}

/* Append to the report what its tool is about to replace. */
static void keep_files_before(int report, size_t size) {
    static struct wanted found;
    if (size == 0) return;
    char *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, report, 0);
    if (text == MAP_FAILED) return;
    read_report(&found, text, text + size);
    before.report = report;
    before.cwd = found.is_before && found.cwd.size ? decoded(found.cwd) : NULL;
    if (before.cwd != NULL && before.cwd[0] == '/') {
        for (int at = 0; at < found.file_count; at++) {
            char *name = decoded(found.files[at]);
            if (name != NULL) keep_file(name, 1);
            free(name);
        }
        for (int at = 0; at < found.text_count; at++) {
            char *words_of = decoded(found.texts[at]);
            if (words_of != NULL && strstr(words_of, "*** Begin Patch") != NULL) keep_patched(words_of);
            else if (words_of != NULL) keep_named_in(words_of);
            free(words_of);
        }
    }
    free(before.cwd);
    munmap(text, size);
}
