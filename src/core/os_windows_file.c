#include "core/os_windows.h"
#include "core/os.h"

#include <windows.h>

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHARE_ALL (FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE)

void os_windows_set_errno(void)
{
    static const struct {
        DWORD error;
        int code;
    } rows[] = {
        {ERROR_FILE_NOT_FOUND, ENOENT},
        {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_NAME, ENOENT},
        {ERROR_BAD_PATHNAME, ENOENT},
        {ERROR_BAD_NETPATH, ENOENT},
        {ERROR_INVALID_DRIVE, ENOENT},
        {ERROR_ACCESS_DENIED, EACCES},
        {ERROR_SHARING_VIOLATION, EACCES},
        {ERROR_LOCK_VIOLATION, EACCES},
        {ERROR_WRITE_PROTECT, EROFS},
        {ERROR_ALREADY_EXISTS, EEXIST},
        {ERROR_FILE_EXISTS, EEXIST},
        {ERROR_DIRECTORY, ENOTDIR},
        {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
        {ERROR_OUTOFMEMORY, ENOMEM},
        {ERROR_COMMITMENT_LIMIT, ENOMEM},
        {ERROR_DISK_FULL, ENOSPC},
        {ERROR_HANDLE_DISK_FULL, ENOSPC},
        {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
        {ERROR_INVALID_HANDLE, EBADF},
        {ERROR_INVALID_PARAMETER, EINVAL},
        {ERROR_NO_UNICODE_TRANSLATION, EILSEQ},
    };
    const DWORD error = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].error == error)
            errno = rows[i].code;
}

/* ---- Characters ------------------------------------------------------------------------------ */

/* Gives a path from its root, without the limit of 260 characters, and frees `path`. */
static wchar_t *lift_limit(wchar_t *path)
{
    static const wchar_t local[] = L"\\\\?\\", network[] = L"\\\\?\\UNC";
    const DWORD room = GetFullPathNameW(path, 0, NULL, NULL);
    const size_t before = sizeof network / sizeof network[0];
    wchar_t *whole = room ? malloc((before + room) * sizeof *whole) : NULL;
    if (whole && GetFullPathNameW(path, room, whole + before, NULL)) {
        const wchar_t *prefix = whole[before] == L'\\' ? network : local;
        wchar_t *rest = whole + before + (prefix == network); /* "\\server" loses a slash */
        const size_t length = wcslen(prefix);
        memmove(whole + length, rest, (wcslen(rest) + 1) * sizeof *whole);
        memcpy(whole, prefix, length * sizeof *whole);
    } else {
        free(whole);
        whole = NULL;
        errno = room ? ENOMEM : ENOENT;
    }
    free(path);
    return whole;
}

/* Whether a name between slashes is longer than file systems take: the system says no more than that
 * there is no such path. */
static bool has_long_name(const wchar_t *path)
{
    size_t length = 0;
    while (*path && length <= 255) {
        length = *path == L'/' || *path == L'\\' ? 0 : length + 1;
        path++;
    }
    return length > 255;
}

wchar_t *os_windows_wide(const char *path)
{
    const int size = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    if (!size) {
        os_windows_set_errno();
        return NULL;
    }
    wchar_t *wide = malloc((size_t)size * sizeof *wide);
    if (!wide) {
        errno = ENOMEM;
        return NULL;
    }
    MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, size);
    if (has_long_name(wide)) {
        free(wide);
        errno = ENAMETOOLONG;
        return NULL;
    }
    /* A folder's name has to leave room for 12 more. */
    return size < MAX_PATH - 12 || wcsncmp(wide, L"\\\\?\\", 4) == 0 ? wide : lift_limit(wide);
}

char *os_windows_utf8(const wchar_t *text)
{
    const int size = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char *utf8 = malloc(size ? (size_t)size : 1);
    if (!utf8)
        errno = ENOMEM;
    else if (!WideCharToMultiByte(CP_UTF8, 0, text, -1, utf8, size, NULL, NULL))
        *utf8 = '\0';
    return utf8;
}

void os_error_text(int code, char *text, size_t size)
{
    if (code < 0 || code >= _sys_nerr)
        snprintf(text, size, "error %d", code);
    else
        snprintf(text, size, "%s", _sys_errlist[code]);
}

/* ---- Places ---------------------------------------------------------------------------------- */

size_t os_folder_length(const char *path)
{
    size_t length = path[0] && path[1] == ':' ? 2 : 0; /* of a drive */
    for (size_t i = length; path[i]; i++)
        if (path[i] == '/' || path[i] == '\\')
            length = i + 1;
    return length;
}

/* INVALID_HANDLE_VALUE, errno: there is no such file or folder, or it cannot be opened. */
static HANDLE open_path(const char *path, DWORD access, DWORD flags)
{
    HANDLE handle = INVALID_HANDLE_VALUE;
    wchar_t *wide = os_windows_wide(path);
    if (wide) {
        handle = CreateFileW(wide, access, SHARE_ALL, NULL, OPEN_EXISTING, flags, NULL);
        if (handle == INVALID_HANDLE_VALUE)
            os_windows_set_errno();
    }
    free(wide);
    return handle;
}

static enum os_place look_at(HANDLE handle)
{
    BY_HANDLE_FILE_INFORMATION info;
    if (GetFileType(handle) != FILE_TYPE_DISK)
        return OS_OTHER;
    if (!GetFileInformationByHandle(handle, &info))
        return OS_OTHER;
    return info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? OS_FOLDER : OS_FILE;
}

enum os_place os_look(const char *path)
{
    HANDLE handle = open_path(path, 0, FILE_FLAG_BACKUP_SEMANTICS); /* the flag is for folders */
    if (handle == INVALID_HANDLE_VALUE)
        return errno == ENOENT ? OS_NOTHING : OS_UNKNOWN;
    enum os_place place = look_at(handle);
    CloseHandle(handle);
    errno = ENOENT;
    return place;
}

bool os_same_file(const char *a, const char *b)
{
    const char *const paths[] = {a, b};
    BY_HANDLE_FILE_INFORMATION info[2];
    bool there = true;
    for (int i = 0; i < 2 && there; i++) {
        HANDLE handle = open_path(paths[i], 0, FILE_FLAG_BACKUP_SEMANTICS);
        there = handle != INVALID_HANDLE_VALUE;
        if (there) {
            there = GetFileInformationByHandle(handle, &info[i]);
            CloseHandle(handle);
        }
    }
    return there && info[0].dwVolumeSerialNumber == info[1].dwVolumeSerialNumber &&
           info[0].nFileIndexHigh == info[1].nFileIndexHigh &&
           info[0].nFileIndexLow == info[1].nFileIndexLow;
}

/* ---- Reading --------------------------------------------------------------------------------- */

FILE *os_open_file(const char *path, uint64_t *size)
{
    LARGE_INTEGER bytes = {0};
    /* Others may rename and delete it meanwhile, as the CRT's own functions would forbid. */
    HANDLE handle = open_path(path, GENERIC_READ, FILE_ATTRIBUTE_NORMAL);
    if (handle == INVALID_HANDLE_VALUE) {
        const int code = errno;
        errno = code == EACCES && os_look(path) == OS_FOLDER ? EISDIR : code;
        return NULL;
    }
    const bool regular = look_at(handle) == OS_FILE && GetFileSizeEx(handle, &bytes);
    const int descriptor = _open_osfhandle((intptr_t)handle, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
    if (descriptor < 0) {
        CloseHandle(handle);
        errno = EMFILE;
        return NULL;
    }
    FILE *file = _fdopen(descriptor, "rb");
    if (file)
        *size = regular ? (uint64_t)bytes.QuadPart : OS_NO_SIZE;
    else
        _close(descriptor);
    return file;
}

void *os_map_file(FILE *file, size_t size)
{
    void *data = NULL;
    HANDLE handle = (HANDLE)_get_osfhandle(_fileno(file));
    HANDLE mapping = CreateFileMappingW(handle, NULL, PAGE_READONLY, 0, 0, NULL);
    if (mapping)
        data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size);
    if (!data)
        os_windows_set_errno();
    if (mapping)
        CloseHandle(mapping); /* the view keeps it */
    return data;
}

void os_unmap_file(void *data, size_t size)
{
    (void)size;
    UnmapViewOfFile(data);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* The descriptor of a new file, or -1 and errno. */
static int create_file(const char *name)
{
    wchar_t *wide = os_windows_wide(name);
    const int flags = _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT;
    int handle = wide ? _wopen(wide, flags, _S_IREAD | _S_IWRITE) : -1;
    free(wide);
    return handle;
}

bool os_draft_create(struct os_draft *draft, const char *path)
{
    static atomic_uint serial; /* two threads of a process never try the same name */
    const size_t folder = os_folder_length(path), size = folder + 48;
    *draft = (struct os_draft){.path = path, .handle = -1, .permissions = -1};
    draft->name = malloc(size);
    if (!draft->name) {
        errno = ENOMEM;
        return false;
    }
    memcpy(draft->name, path, folder);
    /* The name only exists if a process with the same id died while it wrote. */
    for (int attempt = 0; attempt < 1000 && draft->handle < 0; attempt++) {
        snprintf(draft->name + folder, size - folder, ".vka-%lu-%u.tmp", GetCurrentProcessId(),
                 atomic_fetch_add(&serial, 1));
        draft->handle = create_file(draft->name);
        if (draft->handle < 0 && errno != EEXIST)
            break;
    }
    if (draft->handle >= 0)
        return true;
    int code = errno;
    free(draft->name);
    draft->name = NULL;
    errno = code;
    return false;
}

bool os_draft_write(struct os_draft *draft, const void *data, size_t size)
{
    const size_t most = (size_t)1 << 30; /* bytes that every system accepts in one call */
    for (size_t done = 0; done < size;) {
        size_t left = size - done;
        int n =
            _write(draft->handle, (const char *)data + done, (unsigned)(left < most ? left : most));
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* One attempt of replace_file. */
static bool try_replace(const wchar_t *from, const wchar_t *to)
{
    const DWORD attributes = GetFileAttributesW(to);
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY)) {
        errno = EISDIR;
        return false;
    }
    /* The first keeps the access rights of the old file, the second needs none. */
    if (ReplaceFileW(to, from, NULL, REPLACEFILE_IGNORE_MERGE_ERRORS, NULL, NULL) ||
        MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
        return true;
    os_windows_set_errno();
    return false;
}

/* Puts a file in the place of another, or where nothing is. Others that replace or scan the file at
 * this moment forbid it for a moment. */
static bool replace_file(const char *name, const char *path)
{
    bool done = false;
    wchar_t *from = os_windows_wide(name), *to = from ? os_windows_wide(path) : NULL;
    for (int attempt = 0; to && !done && attempt < 50; attempt++) {
        if (attempt > 0)
            Sleep(4);
        done = try_replace(from, to);
        if (!done && errno != EACCES)
            break;
    }
    const int code = errno;
    free(from);
    free(to);
    errno = code;
    return done;
}

bool os_draft_keep(struct os_draft *draft)
{
    const int handle = draft->handle;
    if (_commit(handle) != 0)
        return false;
    draft->handle = -1;
    if (_close(handle) != 0 || !replace_file(draft->name, draft->path))
        return false;
    free(draft->name);
    draft->name = NULL;
    return true;
}

void os_draft_discard(struct os_draft *draft)
{
    const int code = errno;
    if (draft->handle >= 0)
        _close(draft->handle);
    wchar_t *wide = draft->name ? os_windows_wide(draft->name) : NULL;
    if (wide)
        DeleteFileW(wide);
    free(wide);
    free(draft->name);
    *draft = (struct os_draft){.handle = -1};
    errno = code;
}
