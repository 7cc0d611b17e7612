#!/bin/sh
# Fills a folder with what a build for Windows takes from elsewhere: Vulkan's headers and volk, which
# are those of this machine, and jansson and cmocka, static, from the sources of this Debian.
#
#   tools/dev/windows_libraries.sh FOLDER
#
# Takes mingw-w64, CMake, apt-get, dpkg-source and the network. A folder that is whole is left as it
# is. DEBIAN_MIRROR is an archive to take instead of the one that this machine takes.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
folder=${1:?usage: tools/dev/windows_libraries.sh FOLDER}
libraries="jansson cmocka"

if [ -e "$folder/whole" ] && [ -e "$folder/jansson-license" ]; then
    exit 0
fi
. "$root/tools/dev/archive.sh"

need dpkg-source cmake x86_64-w64-mingw32-gcc
open_archive "deb-src @ $(. /etc/os-release && echo "$VERSION_CODENAME") main"
quietly own_apt update
rm -rf --one-file-system "$folder"
mkdir -p "$folder/include" "$folder/lib/cmake/VulkanHeaders"
folder=$(CDPATH='' cd -- "$folder" && pwd)

# The headers that this machine's compiler finds: they are the same for every system.
include=$(pkg-config --variable=includedir vulkan 2>/dev/null || echo /usr/include)
for header in vulkan vk_video volk.h volk.c; do
    cp -r "$include/$header" "$folder/include/" || fail "no $header in $include"
done
cat >"$folder/lib/cmake/VulkanHeaders/VulkanHeadersConfig.cmake" <<'END'
add_library(Vulkan::Headers INTERFACE IMPORTED)
get_filename_component(folder "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
set_target_properties(Vulkan::Headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${folder}")
END

for library in $libraries; do
    (cd "$work" && quietly own_apt source "$library")
    source=$(find "$work" -maxdepth 1 -type d -name "$library-*")
    quietly cmake -S "$source" -B "$work/$library" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_TOOLCHAIN_FILE="$root/cmake/windows.cmake" -DCMAKE_INSTALL_PREFIX="$folder" \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_C_FLAGS=-D__USE_MINGW_ANSI_STDIO=1 \
        -DBUILD_SHARED_LIBS=OFF -DCMAKE_POLICY_VERSION_MINIMUM=3.5 \
        -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON \
        -DWITH_EXAMPLES=OFF -DUNIT_TESTING=OFF -DWITH_STATIC_LIB=ON
    quietly cmake --build "$work/$library" --target install
done
cp "$work"/jansson-*/LICENSE "$folder/jansson-license"
# cmocka builds a DLL too, which a linker would prefer.
rm -rf "$folder/bin" "$folder/lib/"*.dll.a
[ ! -e "$folder/lib/libcmocka-static.a" ] ||
    mv "$folder/lib/libcmocka-static.a" "$folder/lib/libcmocka.a"
[ -e "$folder/lib/libcmocka.a" ] || fail "cmocka gave no static library"
: >"$folder/whole"
echo "windows_libraries: $folder"
