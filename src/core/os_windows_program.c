#include "core/os_windows.h"
#include "core/os.h"

#include <windows.h>

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <shellapi.h>
#include <stdlib.h>
#include <string.h>

/* A process ends with what it allocates here. Where that fails, the arguments stay as they were. */
void os_program_begin(int *argc, char ***argv)
{
    int n = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **list = wide ? calloc((size_t)n + 1, sizeof *list) : NULL;
    bool whole = list;
    for (int i = 0; i < n && whole; i++)
        whole = (list[i] = os_windows_utf8(wide[i]));
    if (whole) {
        *argc = n;
        *argv = list;
    }
    LocalFree(wide);
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    SetConsoleOutputCP(CP_UTF8);
}

/* ---- Streams in memory: a temporary file, as the system has no such streams ------------------ */

bool os_memory_open(struct os_memory *memory)
{
    wchar_t folder[MAX_PATH + 1], name[MAX_PATH + 1];
    *memory = (struct os_memory){0};
    if (!GetTempPathW(MAX_PATH + 1, folder) || !GetTempFileNameW(folder, L"vka", 0, name)) {
        os_windows_set_errno();
        return false;
    }
    memory->stream = _wfopen(name, L"w+bTD"); /* kept in memory if there is room; deleted at last */
    return memory->stream;
}

bool os_memory_close(struct os_memory *memory)
{
    FILE *stream = memory->stream;
    const bool written = fflush(stream) == 0 && !ferror(stream);
    const long long size = written ? _ftelli64(stream) : -1;
    if (size >= 0)
        memory->text = malloc((size_t)size + 1);
    if (memory->text) {
        memory->size = (size_t)size;
        memory->text[size] = '\0';
        rewind(stream);
        if (fread(memory->text, 1, memory->size, stream) != memory->size) {
            free(memory->text);
            memory->text = NULL;
        }
    }
    fclose(stream);
    memory->stream = NULL;
    return memory->text;
}

/* ---- The user's folders, environment, terminal ----------------------------------------------- */

/* A variable as UTF-8; the caller frees it. NULL: there is none. */
static char *get_variable(const char *name)
{
    wchar_t wide[64];
    if (!MultiByteToWideChar(CP_UTF8, 0, name, -1, wide, sizeof wide / sizeof wide[0]))
        return NULL;
    const wchar_t *value = _wgetenv(wide);
    return value ? os_windows_utf8(value) : NULL;
}

const char *os_environment(const char *name)
{
    static _Thread_local char *last;
    free(last);
    last = get_variable(name);
    return last;
}

static void make_folder(const char *path)
{
    wchar_t *wide = os_windows_wide(path);
    if (wide)
        CreateDirectoryW(wide, NULL);
    free(wide);
}

/* From the root of a drive or of another machine. */
static bool is_absolute(const char *path)
{
    return path[0] && ((path[1] == ':' && (path[2] == '\\' || path[2] == '/')) ||
                       (path[0] == '\\' && path[1] == '\\'));
}

bool os_cache_folder(const char *name, bool make, char folder[OS_PATH_SIZE])
{
    char *base = get_variable("LOCALAPPDATA");
    const bool usable =
        base && is_absolute(base) && strlen(base) + strlen(name) + 2 <= OS_PATH_SIZE;
    if (usable) {
        snprintf(folder, OS_PATH_SIZE, "%s\\%s", base, name);
        if (make) {
            make_folder(base);
            make_folder(folder);
        }
    }
    free(base);
    return usable && (make || os_look(folder) == OS_FOLDER);
}

/* Such a terminal also understands the sequences that move its cursor. */
bool os_is_terminal(FILE *stream)
{
    HANDLE handle = (HANDLE)_get_osfhandle(_fileno(stream));
    DWORD mode;
    return GetConsoleMode(handle, &mode) &&
           SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

/* ---- Names in a folder ----------------------------------------------------------------------- */

struct os_folder {
    HANDLE search;
    WIN32_FIND_DATAW found;
    bool fresh; /* found was not given out yet */
    char *name;
};

struct os_folder *os_folder_open(const char *path)
{
    const size_t length = strlen(path);
    if (os_look(path) != OS_FOLDER) { /* a file is found below itself else */
        if (os_look(path) == OS_FILE)
            errno = ENOTDIR;
        return NULL;
    }
    struct os_folder *folder = calloc(1, sizeof *folder);
    char *all = malloc(length + 3);
    if (folder)
        folder->search = INVALID_HANDLE_VALUE;
    if (folder && all) {
        memcpy(all, path, length);
        memcpy(all + length, "/*", 3);
        wchar_t *wide = os_windows_wide(all);
        if (wide)
            folder->search = FindFirstFileW(wide, &folder->found);
        if (wide && folder->search == INVALID_HANDLE_VALUE)
            os_windows_set_errno();
        folder->fresh = true;
        free(wide);
    } else {
        errno = ENOMEM;
    }
    free(all);
    if (folder && folder->search == INVALID_HANDLE_VALUE)
        os_folder_close(&folder);
    return folder;
}

const char *os_folder_next(struct os_folder *folder, bool *is_folder)
{
    const DWORD attributes = FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT;
    while (folder->fresh || FindNextFileW(folder->search, &folder->found)) {
        folder->fresh = false;
        const wchar_t *name = folder->found.cFileName;
        if (wcscmp(name, L".") == 0 || wcscmp(name, L"..") == 0)
            continue;
        free(folder->name);
        folder->name = os_windows_utf8(name);
        *is_folder = (folder->found.dwFileAttributes & attributes) == FILE_ATTRIBUTE_DIRECTORY;
        return folder->name;
    }
    return NULL;
}

void os_folder_close(struct os_folder **folder)
{
    if (!*folder)
        return;
    const int code = errno;
    if ((*folder)->search && (*folder)->search != INVALID_HANDLE_VALUE)
        FindClose((*folder)->search);
    free((*folder)->name);
    free(*folder);
    *folder = NULL;
    errno = code;
}
